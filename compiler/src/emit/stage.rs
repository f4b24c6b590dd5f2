//! Tensors between the caller, who holds them dense with the extents of a run, and the kernels, which have room for the greatest.

use mcc_kernel::{Address, Builder, Lane, Op, Operand, Type, VReg};
use mcc_support::TensorType;

/// Bytes that one step copies where there are as many.
const VECTOR_BYTES: u32 = 16;

/// An input or output that lies in the arena while the kernels run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Staged {
    /// Place among the inputs or the outputs.
    place: usize,
    arena_offset: u64,
    element_bytes: u32,
    /// Of each axis, the greatest extent and the symbol of the extent, if it has one.
    axes: Vec<(usize, Option<usize>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the caller.
    In,
    Out,
}

impl Staged {
    /// Tensor `place` of a type with the largest extents; of each dimension its symbol, if it has one.
    pub fn new(place: usize, ty: &TensorType, symbols: &[Option<usize>], arena_offset: u64) -> Self {
        let axes = ty.shape.iter().copied().zip(symbols.iter().copied()).collect();
        Self { place, arena_offset, element_bytes: ty.dtype.size_bytes() as u32, axes }
    }

    pub fn arena_offset(&self) -> u64 {
        self.arena_offset
    }

    /// The caller's memory, found in a table, and the arena's.
    pub fn pointers(&self, builder: &mut Builder, table: VReg, arena: VReg) -> (VReg, VReg) {
        let dense = builder.load_ptr(Address::new(table, 8 * self.place as i64));
        (dense, builder.lea(Address::new(arena, self.arena_offset as i64)))
    }
}

/// Copies the elements that exist; `lengths` are the extents of all symbols.
pub fn copy(builder: &mut Builder, staged: &Staged, lengths: &[VReg], dense: VReg, wide: VReg, direction: Direction) {
    // What lies within the last axis with a symbol is dense on both sides.
    let last = staged.axes.iter().rposition(|(_, symbol)| symbol.is_some()).expect("a staged tensor has a symbol");
    let mut stride = i64::from(staged.element_bytes);
    let mut outer = Vec::new();
    for (axis, &(extent, symbol)) in staged.axes.iter().enumerate().rev() {
        if axis <= last {
            let count = symbol.map_or(Operand::Const(extent as i64), |symbol| Operand::Reg(lengths[symbol]));
            outer.push((count, stride));
        }
        stride *= extent as i64;
    }
    let (Operand::Reg(count), row_bytes) = outer.remove(0) else { unreachable!("its last axis has a symbol") };
    outer.reverse();
    let row_bytes = builder.int(row_bytes);
    let bytes = builder.binary(Op::Mul, count, row_bytes);
    let run = Run { bytes, element_bytes: staged.element_bytes, direction };
    rows(builder, &outer, &run, dense, Address::new(wide, 0));
}

/// A dense piece.
struct Run {
    bytes: VReg,
    element_bytes: u32,
    direction: Direction,
}

/// Loops over the outer axes, each with its count and its distance in the arena; gives the caller's memory behind the last run.
fn rows(builder: &mut Builder, outer: &[(Operand, i64)], run: &Run, dense: VReg, wide: Address) -> VReg {
    let Some((&(count, stride), rest)) = outer.split_first() else {
        let wide = builder.lea(wide);
        run.copy(builder, dense, wide);
        return builder.lea(Address { base: dense, terms: vec![(run.bytes, 1)], displacement: 0 });
    };
    let results = builder.for_loop(Operand::Const(0), count, 1, &[dense], |builder, index, carried| {
        let mut wide = wide.clone();
        wide.terms.push((index, stride));
        vec![rows(builder, rest, run, carried[0], wide)]
    });
    results[0]
}

impl Run {
    fn copy(&self, builder: &mut Builder, dense: VReg, wide: VReg) {
        let (from, to) = match self.direction {
            Direction::In => (dense, wide),
            Direction::Out => (wide, dense),
        };
        let mask = builder.int(-i64::from(VECTOR_BYTES));
        let whole = builder.binary(Op::And, self.bytes, mask);
        let lane = match self.element_bytes {
            1 => Lane::I8,
            2 => Lane::I16,
            4 => Lane::I32,
            _ => Lane::I64,
        };
        let vector = Type::vector(lane, (VECTOR_BYTES / lane.bytes()) as u8);
        for (ty, begin, end) in [
            (vector, Operand::Const(0), Operand::Reg(whole)),
            (Type::scalar(lane), Operand::Reg(whole), Operand::Reg(self.bytes)),
        ] {
            let step = i64::from(lane.bytes()) * i64::from(ty.lanes());
            builder.for_loop(begin, end, step, &[], |builder, index, _| {
                let at = |base| Address { base, terms: vec![(index, 1)], displacement: 0 };
                let value = builder.load(ty, at(from), lane.bytes());
                builder.store(value, at(to), lane.bytes());
                Vec::new()
            });
        }
    }
}
