//! What machine code would do silently is an error of the interpreter.

use mcc_kernel::interp::{Memory, Pointer, Program, Value, run};
use mcc_kernel::{Kernel, text};

fn parse(body: &str) -> Kernel {
    text::parse(&format!("kernel @k(v0: ptr, v1: i64) {{\n{body}\n}}\n")).unwrap()
}

/// Runs on a region of 32 bytes, of which the first 16 are defined.
fn run_on(body: &str, argument: i64) -> Result<Option<i32>, String> {
    let mut memory = Memory::new();
    let buffer = memory.alloc(32, 8);
    memory.write(buffer, &[1; 16]).unwrap();
    run(&parse(body), &mut memory, &[Value::Ptr(buffer), Value::I64(argument)])
}

#[test]
fn faults_name_the_instruction() {
    let load = "v2 = load.i32 [v0 + v1*4] align 4\nreturn v2";
    assert_eq!(run_on(load, 3), Ok(Some(0x0101_0101)));
    for (body, argument, fault, instruction) in [
        (load, 4, "byte 16 of region 0 is read before it is written", "v2 = load.i32 [v0 + v1*4] align 4"),
        (load, 8, "4 bytes at offset 32 of region 0, which has 32 bytes", "v2 = load.i32"),
        (load, -1, "4 bytes at offset -4 of region 0", "v2 = load.i32"),
        ("v2 = load.i16 [v0 + v1] align 2", 1, "is not a multiple of 2", "v2 = load.i16"),
        ("v2 = load.i64 [v0 + v1] align 1", 12, "byte 16 of region 0 is read before", "v2 = load.i64"),
        ("v2 = load.ptr [v0]\nv3 = load.i8 [v2] align 1", 0, "where there is no memory", "v3 = load.i8"),
        ("store.i64 v1, [v0 + 28] align 4", 0, "8 bytes at offset 28", "store.i64 v1"),
        (
            "slot 0: 8 align 8\nv2 = slot_addr.ptr 0\nv3 = load.i64 [v2] align 8",
            0,
            "is read before it is written",
            "v3 = load.i64",
        ),
        ("v2 = load_first.i32x4 3, [v0 + v1*4] align 4", 2, "byte 16 of region 0 is read before", "v2 = load_first.i32x4"),
        ("v2 = const.i32x4 0\nstore_first.i32x4 v2, 3, [v0 + 24] align 4", 0, "12 bytes at offset 24", "store_first.i32x4 v2"),
        ("call @other()", 0, "the symbol @other is not defined", "call @other()"),
        ("call_ptr v0()", 0, "is not the address of a function", "call_ptr v0()"),
        ("call @k(v0)", 0, "takes 2 arguments, not 1", "call @k(v0)"),
        ("call @k(v0, v1)", 0, "calls nest too deeply", "call @k(v0, v1)"),
        ("loop v2 in v1..9223372036854775807 step 2 {\n}", i64::MAX - 1, "the index overflows", "a loop's index"),
        (
            "v2 = const.mask8 1\nif v2 {\nloop v3 in 0..1 step 1 {\nv4 = load.i8 [v0 - 9] align 1\n}\n} else {\n}",
            0,
            "1 bytes at",
            "v4 = load.i8 [v0 - 9] align 1",
        ),
    ] {
        let error = run_on(body, argument).expect_err(fault);
        let named = error.starts_with("kernel @k: ") && error.contains(instruction);
        assert!(named && error.contains(fault), "{error}\nis not about: {fault} at {instruction}");
    }
}

#[test]
fn memory_knows_constants_poison_and_pointers() {
    let kernel = parse("v2 = load.ptr [v0]\nv3 = load.i32 [v2 + v1] align 4\nstore.i32 v3, [v0 + 8] align 4\nreturn v3");
    let mut memory = Memory::new();
    let (table, data) = (memory.alloc(16, 8), memory.alloc(8, 4));
    memory.write_pointer(table, data).unwrap();
    let args = [Value::Ptr(table), Value::I64(4)];
    let fault = run(&kernel, &mut memory, &args).unwrap_err();
    assert!(fault.contains("byte 4 of region 1 is read before it is written"), "{fault}");
    memory.write(data, &7i32.to_le_bytes()).unwrap();
    memory.poison(data);
    assert_eq!(run(&kernel, &mut memory, &args), Ok(Some(-1)));
    assert_eq!(run(&kernel, &mut memory, &[Value::Ptr(table), Value::I64(0)]), Ok(Some(7)));
    assert_eq!(memory.read(table.offset(8), 4).unwrap(), 7i32.to_le_bytes());
    memory.protect(table);
    let fault = run(&kernel, &mut memory, &args).unwrap_err();
    assert!(fault.contains("store.i32 v3") && fault.contains("the region is constant"), "{fault}");
    let fault = run(&kernel, &mut memory, &[Value::Ptr(Pointer::NULL), Value::I64(0)]).unwrap_err();
    assert!(fault.contains("where there is no memory"), "{fault}");
    let fault = run(&kernel, &mut memory, &[Value::I64(0), Value::I64(0)]).unwrap_err();
    assert!(fault.contains("takes [Ptr, "), "{fault}");
}

#[test]
fn slots_are_gone_after_the_call() {
    let escape =
        text::parse("kernel @escape(v0: ptr) {\nslot 0: 4 align 4\nv1 = slot_addr.ptr 0\nstore.ptr v1, [v0]\n}\n").unwrap();
    let user = parse("call @escape(v0)\nv2 = load.ptr [v0]\nstore.i64 v1, [v2] align 4");
    let mut memory = Memory::new();
    let buffer = memory.alloc(8, 8);
    let program = Program::new([&user, &escape]);
    let fault = program.run("k", &mut memory, &[Value::Ptr(buffer), Value::I64(0)]).unwrap_err();
    assert!(fault.contains("where there is no memory"), "{fault}");
}
