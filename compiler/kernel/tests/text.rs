//! Parsing what was printed gives the same kernel.

use mcc_conformance::{random_kernel, signatures};
use mcc_kernel::{Facts, Lane, OpKind, text, verify};

/// A machine with vectors of 16 and 64 bytes of everything.
fn facts() -> Facts {
    let kinds = [
        OpKind::Move,
        OpKind::AddSub,
        OpKind::Mul,
        OpKind::Div,
        OpKind::MinMax,
        OpKind::Fma,
        OpKind::Sqrt,
        OpKind::Round,
        OpKind::Bits,
        OpKind::Shift,
        OpKind::IntFloat,
        OpKind::First,
    ];
    let lanes = |lane: Lane| [128, 512].map(|bits| (lane, (bits / lane.bits()) as u8));
    let supported =
        kinds.into_iter().flat_map(|kind| Lane::ALL.into_iter().flat_map(lanes).map(move |(lane, lanes)| (kind, lane, lanes)));
    Facts {
        supported: supported.collect(),
        vector_bytes: 64,
        vector_registers: 32,
        general_registers: 16,
        fma: true,
        strict_alignment: false,
        l1_bytes: 1 << 15,
        l2_bytes: 1 << 20,
        ..Facts::default()
    }
}

#[test]
fn random_kernels_survive() {
    let facts = facts();
    let signatures = signatures(&facts);
    for seed in 0..400 {
        let kernel = random_kernel(&signatures, seed);
        verify::verify(&kernel, Some(&facts)).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", text::print(&kernel)));
        let printed = text::print(&kernel);
        let parsed = text::parse(&printed).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{printed}"));
        assert_eq!(parsed, kernel, "seed {seed}\n{printed}");
    }
}

const EVERYTHING_ELSE: &str = "\
kernel @everything.else(v0: ptr, v1: i64, v2: i32) {
  slot 0: 24 align 8
  slot 1: 64 align 16
  unused v3: mask16x8
  v4 = lea.ptr [v0 + v1 + v1*-4 - 9223372036854775808]
  v5 = load.ptr [v4 + 8]
  store.ptr v5, [v0 - 8]
  prefetch [v5 + v1*64]
  v6 = slot_addr.ptr 1
  v7 = symbol_addr.ptr @model.weights
  v8 = call.i32 @f(v7, v1, v2)
  call @g()
  v9 = call_ptr.i32 v5(v8)
  call_ptr v5(v6, v1)
  v10 = const.f64 0x7ff8000000000001 ; NaN
  v11 = const.i8 -1
  v12 = const.f32 0xffffffffffffffff ; NaN
  v13 = const.mask8 1
  while {
    v14 = mask_not.mask8 v13
  } test v14 do {
  }
  loop v15 in -3..v1 step 7 {
    if v13 {
    } else {
      store.i8 v11, [v6 + v15] align 1
    }
  }
  return v9
}
";

#[test]
fn each_form_survives() {
    let kernel = text::parse(EVERYTHING_ELSE).unwrap();
    assert_eq!(text::print(&kernel), EVERYTHING_ELSE);
    verify::verify(&kernel, None).unwrap();
    let twice = EVERYTHING_ELSE.repeat(2);
    assert_eq!(text::parse_all(&twice).unwrap(), [kernel.clone(), kernel]);
}

#[test]
fn errors_name_the_line() {
    for (body, expected) in [
        ("v1 = frobnicate.i64 v0, v0", "there is no operation 'frobnicate'"),
        ("v1 = add.q64 v0, v0", "there is no operation 'add.q64'"),
        ("v1 = add v0, v0", "'add' has a result and does not state its type"),
        ("v0 = const.i64 1", "v0 is defined twice"),
        ("v2 = const.i64 1", "numbered without gaps"),
        ("v1 = load.i32 [v0 4] align 4", "expected '+', '-' or ']'"),
        ("loop v1 in 0..4 step 1 carry (v2 = v0) {\n} -> (v3)", "1 values are carried and 0 yielded"),
        ("v1 = const.i64 0x1ffffffffffffffff", "at most 64 bits"),
    ] {
        let error = text::parse(&format!("kernel @k(v0: ptr) {{\n{body}\n}}\n")).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("line "), "{error}\nis not about: {expected}");
    }
}
