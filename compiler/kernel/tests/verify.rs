//! Each property that the verifier states, by a kernel that breaks it.

use std::collections::BTreeSet;

use mcc_kernel::{Facts, Kernel, Lane, Node, OpKind, Type, VReg, text, verify};

fn parse(body: &str) -> Kernel {
    let text = format!("kernel @k(v0: ptr, v1: i64, v2: i32) {{\n{body}\n}}\n");
    text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn check(kernel: &Kernel, facts: Option<&Facts>, expected: &str) {
    let error = verify::verify(kernel, facts).expect_err(expected);
    assert!(error.starts_with("kernel @k: ") && error.contains(expected), "{error}\nis not about: {expected}");
}

/// Bodies, and a part of the message that each gives.
const REFUSED: [(&str, &str); 47] = [
    // Registers.
    ("v3 = add.i64 v1, v4\nv4 = const.i64 0", "v4 is used where no definition of it is visible"),
    ("loop v3 in 0..4 step 1 {\nv4 = const.i64 0\n}\nv5 = add.i64 v4, v1", "v4 is used where no definition"),
    ("loop v3 in 0..4 step 1 {\n}\nv4 = add.i64 v3, v1", "v3 is used where no definition"),
    ("loop v3 in 0..4 step 1 carry (v4 = v1) {\nyield v4\n} -> (v5)\nv6 = add.i64 v4, v1", "v4 is used where"),
    ("v3 = cmp.eq.mask64 v1, v1\nif v3 {\nv4 = const.i64 0\n} else {\nv5 = add.i64 v4, v1\n}", "v4 is used where"),
    ("v3 = cmp.eq.mask64 v1, v1\nif v3 {\nv4 = const.i64 0\nyield v4\n} else {\nyield v4\n} -> (v5)", "v4 is used where"),
    ("while {\nv3 = cmp.eq.mask64 v1, v1\n} test v3 do {\n}\nv4 = select.i64 v3, v1, v1", "v3 is used where"),
    ("v3 = const.f32x65 0", "v3 has 65 lanes"),
    ("v3 = const.mask7 0", "v3 is a mask7"),
    ("return v1", "the result v1 is i64, not i32"),
    // Control.
    ("loop v3 in 0..v2 step 1 {\n}", "the bound v2 is i32, not i64"),
    ("loop v3 in 0..4 step 0 {\n}", "the step is 0"),
    ("loop v3 in 0..4 step 1 carry (v4 = v1) {\nyield v2\n} -> (v5)", "the next value v2 is i32, not i64"),
    ("if v2 {\n} else {\n}", "the condition v2 is i32"),
    ("v3 = const.mask32x4 0\nif v3 {\n} else {\n}", "the condition v3 is mask32x4"),
    ("while {\n} test v1 do {\n}", "the condition v1 is i64"),
    ("v3 = const.mask8 1\nif v3 {\nyield v1\n} else {\nyield v2\n} -> (v4)", "the value v2 is i32, not i64"),
    // Operands and results.
    ("v3 = add.i64 v1, v2", "does not give i64 from (i64, i32)"),
    ("v3 = add.i64 v1", "does not give i64 from (i64)"),
    ("v3 = add.ptr v0, v0", "does not give ptr"),
    ("v3 = sqrt.i64 v1", "does not give i64"),
    ("v3 = const.f32 0\nv4 = and.f32 v3, v3", "does not give f32"),
    ("v3 = const.f32 0\nv4 = cmp_u.lt.mask32 v3, v3", "does not give mask32"),
    ("v3 = cmp.lt.mask32 v1, v1", "does not give mask32 from (i64, i64)"),
    ("v3 = shl.i64 v1, v1", "does not give i64 from (i64, i64)"),
    ("v3 = extend_s.i32 v1", "does not give i32 from (i64)"),
    ("v3 = wrap.i64 v2", "does not give i64 from (i32)"),
    ("v3 = const.i16 0\nv4 = int_to_float_s.f32 v3", "does not give f32 from (i16)"),
    ("v3 = const.mask32x4 0\nv4 = const.i16x4 0\nv5 = select.i16x4 v3, v4, v4", "does not give i16x4"),
    ("v3 = const.mask32x4 0\nv4 = mask_to_int.i8x4 v3", "does not give i8x4"),
    ("v3 = const.f32x4 0\nv4 = extract.f32 v3, 4", "does not give f32 from (f32x4)"),
    ("v3 = const.f32x4 0\nv4 = splice.f32x4 v3, v3, 4", "does not give f32x4 from (f32x4, f32x4)"),
    ("v3 = load_first.f32x4 0, [v0] align 4", "does not give f32x4 from ()"),
    ("v3 = const.f32x4 0\nstore_first.f32x4 v3, 4, [v0] align 4", "a store of 4 lanes of f32x4"),
    ("v3 = const.f32 0\nv4 = pack.f32x4 v3, v3, v3", "does not give f32x4 from (f32, f32, f32)"),
    ("v3 = splat.i64 v1", "does not give i64"),
    ("v3 = bitcast.f64 v2", "does not give f64 from (i32)"),
    ("v3 = const.mask32 2", "does not give mask32"),
    ("v3 = const.ptr 8", "does not give ptr"),
    ("v3 = load.mask32 [v0] align 4", "does not give mask32"),
    ("store.ptr v1, [v0]", "a store of i64 as a pointer"),
    ("v3 = const.f32 0\ncall @f(v3)", "f32 is not passed to functions"),
    ("v3 = call.i64 @f()", "does not give i64"),
    // Addresses, slots.
    ("v3 = load.i32 [v1] align 4", "the base v1 is i64, not ptr"),
    ("v3 = load.i32 [v0 + v2*4] align 4", "the term v2 is i32, not i64"),
    ("v3 = load.i32 [v0] align 3", "an alignment of 3 bytes"),
    ("slot 0: 8 align 32\nv3 = slot_addr.ptr 0", "slot 0 is aligned to 32 bytes"),
];

#[test]
fn what_is_malformed_is_refused() {
    for (body, expected) in REFUSED {
        check(&parse(body), None, expected);
    }
    check(&parse("v3 = slot_addr.ptr 0"), None, "there is no slot 0");
    check(&parse("slot 0: 0 align 8"), None, "slot 0 is empty");
}

#[test]
fn registers_are_defined_once() {
    let mut kernel = parse("v3 = const.i64 0\nv4 = const.i64 1");
    let Node::Inst { result, .. } = &mut kernel.body[1] else { panic!("an instruction") };
    *result = Some(VReg(3));
    check(&kernel, None, "v3 is defined twice");
    let mut kernel = parse("");
    kernel.params.push(VReg(9));
    check(&kernel, None, "v9 has no type");
    let mut kernel = parse("");
    let vector = kernel.types.push(Type::vector(Lane::I32, 4));
    kernel.params.push(vector);
    check(&kernel, None, "parameter v3 is i32x4");
}

#[test]
fn facts_bound_what_vectors_do() {
    let facts = Facts {
        supported: BTreeSet::from([(OpKind::Move, Lane::F32, 4), (OpKind::AddSub, Lane::F32, 4)]),
        vector_bytes: 16,
        vector_registers: 16,
        general_registers: 16,
        fma: false,
        strict_alignment: false,
        l1_bytes: 1 << 15,
        l2_bytes: 1 << 20,
        ..Facts::default()
    };
    let vector = "v3 = const.f32x4 0\n";
    let fits = format!("{vector}v4 = add.f32x4 v3, v3\nv5 = cmp.lt.mask32x4 v3, v4\nv6 = select.f32x4 v5, v3, v4");
    verify::verify(&parse(&fits), Some(&facts)).unwrap();
    for (body, expected) in [
        ("v4 = mul.f32x4 v3, v3", "the target has no Mul of f32x4"),
        ("v4 = const.f64 0\nv5 = fma.f64 v4, v4, v4", "the target has no fma"),
        ("v4 = promote.f64x4 v3", "one lane only"),
        ("v4 = splice.f32x4 v3, v3, 1", "the target has no First of f32x4"),
        ("v4 = const.f32x8 0", "the target has no Move of f32x8"),
        ("v4 = const.mask64x2 0", "the target has no Move of mask64x2"),
    ] {
        let kernel = parse(&format!("{vector}{body}"));
        verify::verify(&kernel, None).unwrap();
        check(&kernel, Some(&facts), expected);
    }
}
