//! Inner loops of products: nothing but loads, multiply-adds and the loop's own counting.

use std::collections::BTreeSet;

use mcc_kernel::{Address, Arch, Builder, Cpu, Kernel, Op, Operand, Target, Type, VReg};
use mcc_target_aarch64::TARGET;

fn cpu(name: &str) -> Cpu {
    let features = BTreeSet::from(["neon"]);
    Cpu {
        arch: Arch::Aarch64,
        name: name.to_string(),
        features,
        protection: Default::default(),
        strict_alignment: false,
        windows_abi: false,
    }
}

/// `rows × vectors` sums over `depth` steps, four of them in a round: rows of A lie `stride` bytes apart, panels of B side by side.
fn product(rows: usize, vectors: usize, stride: i64, depth: i64) -> Kernel {
    let mut builder = Builder::new("product", &[Type::Ptr, Type::I64, Type::I64]);
    let table = builder.param(0);
    let [a, b, bias, out] = [0, 8, 16, 24].map(|at| builder.load_ptr(Address::new(table, at)));
    let vector = Type::vector(mcc_kernel::Lane::F32, 4);
    let biases: Vec<VReg> = (0..vectors).map(|at| builder.load(vector, Address::new(bias, 16 * at as i64), 16)).collect();
    let zero = builder.constant(vector, 0);
    let mut init = vec![zero; rows * vectors];
    init.extend([a, b]);
    let sums = builder.for_loop(Operand::Const(0), Operand::Const(depth / 4), 1, &init, |builder, _, params| {
        let mut sums = params[..rows * vectors].to_vec();
        let [a, b] = [params[rows * vectors], params[rows * vectors + 1]];
        for step in 0..4 {
            let panel: Vec<VReg> =
                (0..vectors).map(|at| builder.load(vector, Address::new(b, (16 * (step * vectors + at)) as i64), 16)).collect();
            for row in 0..rows {
                let factor = builder.load(Type::F32, Address::new(a, row as i64 * stride + 4 * step as i64), 4);
                let factor = builder.splat(factor, 4);
                for (at, &column) in panel.iter().enumerate() {
                    sums[row * vectors + at] = builder.fma(factor, column, sums[row * vectors + at]);
                }
            }
        }
        let a = builder.lea(Address::new(a, 16));
        let b = builder.lea(Address::new(b, 64 * vectors as i64));
        sums.extend([a, b]);
        sums
    });
    for row in 0..rows {
        for at in 0..vectors {
            let sum = builder.binary(Op::Add, sums[row * vectors + at], biases[at]);
            builder.store(sum, Address::new(out, (row * vectors + at) as i64 * 16), 4);
        }
    }
    builder.finish(None)
}

/// What a word does, as far as loops of products have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    MultiplyAdd,
    Load,
    Store,
    Move,
    Branch,
    Other,
}

fn kind(word: u32) -> Kind {
    let is = |mask: u32, value: u32| word & mask == value;
    match () {
        () if is(0xBF80_F400, 0x0F80_1000) => Kind::MultiplyAdd,
        () if is(0x3B20_0C00, 0x3820_0800) || is(0x3B00_0000, 0x3900_0000) || is(0x3B20_0000, 0x3800_0000) => {
            if is(0x0040_0000, 0) { Kind::Store } else { Kind::Load }
        }
        () if is(0x3A00_0000, 0x2800_0000) => {
            if is(0x0040_0000, 0) {
                Kind::Store
            } else {
                Kind::Load
            }
        }
        // Of the same two operands.
        () if is(0xBFE0_FC00, 0x0EA0_1C00) && word >> 16 & 31 == word >> 5 & 31 => Kind::Move,
        () if is(0x7FE0_FFE0, 0x2A00_03E0) => Kind::Move,
        () if is(0x7C00_0000, 0x1400_0000) || is(0xFF00_0010, 0x5400_0000) => Kind::Branch,
        () => Kind::Other,
    }
}

/// The instructions of the longest loop that has no other inside: from the target of a branch back to the branch.
fn inner_loop(bytes: &[u8]) -> Vec<Kind> {
    let words: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    let back = words.iter().enumerate().filter_map(|(at, &word)| {
        let displacement = ((word >> 5 & 0x7_FFFF) as i32) << 13 >> 13;
        let is_back = word & 0xFF00_0010 == 0x5400_0000 && displacement < 0;
        is_back.then(|| (at as i32 + displacement) as usize..at + 1)
    });
    let body = back.max_by_key(|range| range.len()).expect("there is a loop");
    words[body].iter().map(|&word| kind(word)).collect()
}

#[test]
fn loops_of_products_neither_spill_nor_move() {
    // Rows nearby, rows beyond what a load reaches, and tiles as large as the registers allow.
    for (rows, vectors, stride) in
        [(8, 2, 256), (14, 1, 4608), (7, 3, 256), (5, 4, 1024), (4, 4, 36864), (6, 2, 20000), (1, 8, 16)]
    {
        for name in ["armv8-a", "cortex-a53", "cortex-a55", "neoverse-n1"] {
            let code = TARGET.compile(&product(rows, vectors, stride, 64), &cpu(name));
            let body = inner_loop(&code.bytes);
            let count = |wanted: Kind| body.iter().filter(|&&kind| kind == wanted).count();
            let place = format!("{rows}×{vectors}, rows {stride} bytes apart, {name}: {body:?}");
            assert_eq!(count(Kind::MultiplyAdd), 4 * rows * vectors, "{place}");
            // Four factors of a row come by one load, panels by pairs.
            assert_eq!(count(Kind::Load), rows + 2 * vectors, "{place}");
            assert_eq!(count(Kind::Store) + count(Kind::Move), 0, "{place}");
            assert!(count(Kind::Branch) == 1 && count(Kind::Other) <= 2, "{place}");
        }
    }
}
