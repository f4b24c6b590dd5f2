//! The kernel IR as data.
//!
//! Values are virtual registers, each defined once (SSA); control flow is structured. Semantics are exact: the interpreter and
//! every target give the same bits, except for the sign and payload of NaNs that arithmetic makes.

use mcc_support::{EntityMap, entity_id};

entity_id!(/// A virtual register.
    VReg, "v");

/// The type of one lane. Integers have no sign; operations do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Lane {
    pub const ALL: [Lane; 6] = [Lane::I8, Lane::I16, Lane::I32, Lane::I64, Lane::F32, Lane::F64];

    pub fn bits(self) -> u32 {
        match self {
            Lane::I8 => 8,
            Lane::I16 => 16,
            Lane::I32 | Lane::F32 => 32,
            Lane::I64 | Lane::F64 => 64,
        }
    }

    pub fn bytes(self) -> u32 {
        self.bits() / 8
    }

    pub fn is_float(self) -> bool {
        matches!(self, Lane::F32 | Lane::F64)
    }

    pub fn name(self) -> &'static str {
        match self {
            Lane::I8 => "i8",
            Lane::I16 => "i16",
            Lane::I32 => "i32",
            Lane::I64 => "i64",
            Lane::F32 => "f32",
            Lane::F64 => "f64",
        }
    }
}

/// The type of a register. Text: `ptr`, `f32`, `f32x4`, `mask32` (a scalar condition beside 32-bit lanes), `mask32x4`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Type {
    Ptr,
    /// `lanes` is 1 for a scalar.
    Data {
        lane: Lane,
        lanes: u8,
    },
    /// The result of comparing lanes of `bits` bits.
    Mask {
        bits: u8,
        lanes: u8,
    },
}

impl Type {
    pub const I32: Type = Type::scalar(Lane::I32);
    pub const I64: Type = Type::scalar(Lane::I64);
    pub const F32: Type = Type::scalar(Lane::F32);

    pub const fn scalar(lane: Lane) -> Type {
        Type::Data { lane, lanes: 1 }
    }

    pub const fn vector(lane: Lane, lanes: u8) -> Type {
        Type::Data { lane, lanes }
    }

    /// The mask that comparing two values of this type gives.
    pub fn mask(self) -> Type {
        match self {
            Type::Data { lane, lanes } => Type::Mask { bits: lane.bits() as u8, lanes },
            Type::Mask { .. } => self,
            Type::Ptr => panic!("pointers are not compared"),
        }
    }

    /// The lane type; panics for pointers and masks.
    pub fn lane(self) -> Lane {
        match self {
            Type::Data { lane, .. } => lane,
            other => panic!("{other:?} has no lane type"),
        }
    }

    pub fn lanes(self) -> u8 {
        match self {
            Type::Ptr => 1,
            Type::Data { lanes, .. } | Type::Mask { lanes, .. } => lanes,
        }
    }

    /// The same lanes in another number.
    pub fn with_lanes(self, lanes: u8) -> Type {
        match self {
            Type::Ptr => panic!("pointers have no lanes"),
            Type::Data { lane, .. } => Type::Data { lane, lanes },
            Type::Mask { bits, .. } => Type::Mask { bits, lanes },
        }
    }
}

/// `base + Σ register · scale + displacement`, in bytes. Terms are `i64` registers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    pub base: VReg,
    pub terms: Vec<(VReg, i64)>,
    pub displacement: i64,
}

impl Address {
    pub fn new(base: VReg, displacement: i64) -> Self {
        Self { base, terms: Vec::new(), displacement }
    }
}

/// Signed comparison for integers unless the operation says otherwise; for floats every condition but `Ne` is false on NaN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cond {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What an instruction computes. Lane-wise unless said otherwise; operands and result have one type unless said otherwise.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// The constant with these low bits in every lane; a mask is set by 1, a pointer may be 0. No operands.
    Const(u64),

    // Arithmetic. Integers wrap.
    Add,
    Sub,
    Mul,
    /// Floats: IEEE. Integers: signed, truncating; division by 0 gives 0, the least value by -1 gives itself.
    Div,
    /// Unsigned integer division; by 0 gives 0.
    DivU,
    /// Signed remainder with the sign of the dividend; by 0 or by -1 gives 0.
    Rem,
    /// Unsigned remainder; by 0 gives 0.
    RemU,
    /// Floats: flips the sign bit. Integers wrap.
    Neg,
    /// Floats: clears the sign bit. Integers wrap.
    Abs,
    /// `a < b ? a : b`: for floats the second operand where either is NaN or both are zero. Signed for integers.
    Min,
    /// `a > b ? a : b`, likewise.
    Max,
    MinU,
    MaxU,
    /// `a · b + c`, rounded once. Floats; of `f64` only where the target's facts have it.
    Fma,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
    /// To the nearest integer, ties to even.
    Nearest,

    // Bits of integers.
    And,
    Or,
    Xor,
    Not,
    /// The second operand is an `i32` scalar, the amount, taken modulo the lane's width.
    Shl,
    /// Copies the sign.
    ShrS,
    ShrU,

    // Masks.
    /// Two equal data operands to a mask.
    Cmp(Cond),
    /// Unsigned integers.
    CmpU(Cond),
    /// `select mask, a, b`: lanes of `a` where the mask is set. `a` and `b` may be data of the mask's width and lanes, or, where
    /// the mask has one lane, of any type.
    Select,
    MaskAnd,
    MaskOr,
    MaskXor,
    MaskNot,
    /// A mask to integers of 0 or 1; the result's lane has the mask's width or, where both have one lane, any width.
    MaskToInt,
    /// Integers to the mask of their width: set where not 0.
    IntToMask,
    /// Between masks of one lane count, where the widths differ.
    MaskResize,

    // Conversions: the result's type says to what; lane counts are equal.
    /// Integer to a wider one, copying the sign.
    ExtendS,
    /// Integer to a wider one, with zeros.
    ExtendU,
    /// Integer to a narrower one, low bits.
    Wrap,
    /// Signed integer of 32 or 64 bits to float, rounded to nearest even.
    IntToFloatS,
    IntToFloatU,
    /// Float to integer of 32 or 64 bits: truncates, saturates, NaN gives 0.
    FloatToIntS,
    FloatToIntU,
    /// f32 to f64.
    Promote,
    /// f64 to f32, rounded to nearest even.
    Demote,
    /// The same bits as another data type of the same lane width and count.
    Bitcast,

    // Lanes.
    /// A scalar in every lane.
    Splat,
    /// Scalars (data or masks), one for each lane, in order.
    Pack,
    /// One lane of a vector (data or mask) as a scalar; of data also a half of the lanes, from this lane on.
    Extract(u8),
    /// The first so many lanes of a vector, then those of another from there on.
    Splice(u8),

    // Pointers and memory.
    /// `base + Σ register · scale + displacement` as a pointer.
    Lea(Address),
    /// Loads data (never masks); no alignment is assumed beyond `align` bytes.
    Load {
        address: Address,
        align: u32,
    },
    /// Stores the one operand.
    Store {
        address: Address,
        align: u32,
    },
    /// Loads the first so many lanes of a vector. The others are 0, and what lies there in memory is not touched.
    LoadFirst {
        lanes: u8,
        address: Address,
        align: u32,
    },
    /// Stores the first so many lanes of the one operand, a vector.
    StoreFirst {
        lanes: u8,
        address: Address,
        align: u32,
    },
    /// Loads a pointer.
    LoadPtr(Address),
    /// Stores the one operand, a pointer.
    StorePtr(Address),
    /// A hint to bring the line into the nearest cache.
    Prefetch(Address),
    /// The address of a slot of the frame. No operands.
    SlotAddr(u32),
    /// The address of a symbol of the same object. No operands.
    SymbolAddr(String),
    /// Calls a function of the same object with the operands; the result, if any, is an `i32`.
    Call(String),
    /// Calls through the first operand, a pointer, with the others.
    CallPtr,
}

/// A constant or a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    Const(i64),
    Reg(VReg),
}

pub type Block = Vec<Node>;

#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    Inst { result: Option<VReg>, op: Op, args: Vec<VReg> },
    Loop(Loop),
    If(If),
    While(While),
}

/// A value that a loop carries: `param` in the body is `init` in the first round, then the previous round's `next`;
/// `result` is its last value after the loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    pub param: VReg,
    pub init: VReg,
    pub next: VReg,
    pub result: VReg,
}

/// `for index in (begin..end).step_by(step)`; no round where `begin >= end`. `end + step` fits an `i64`.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// An `i64`, defined in the body.
    pub index: VReg,
    pub begin: Operand,
    pub end: Operand,
    /// Positive.
    pub step: i64,
    pub carried: Vec<Carried>,
    pub body: Block,
}

/// `results` are `(result, value of the then block, value of the else block)`.
#[derive(Clone, PartialEq, Debug)]
pub struct If {
    /// A mask of one lane.
    pub cond: VReg,
    pub then: Block,
    pub otherwise: Block,
    pub results: Vec<(VReg, VReg, VReg)>,
}

/// `loop { test; if !cond { break }; body }`. The test sees the carried parameters; `result` is the parameter's value when the
/// condition failed.
#[derive(Clone, PartialEq, Debug)]
pub struct While {
    pub carried: Vec<Carried>,
    pub test: Block,
    /// A mask of one lane, defined in the test.
    pub cond: VReg,
    pub body: Block,
}

/// Space in the function's frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    pub size_bytes: u32,
    /// A power of two, at most 16.
    pub align_bytes: u32,
}

/// One function. Kernels of nests take `(args: ptr, begin: i64, end: i64)`: a table of the pointers to their buffers and the part
/// of the outermost axis to run; the entry function takes the caller's `mcc_call` and returns a status.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    pub name: String,
    pub params: Vec<VReg>,
    /// Types of all registers.
    pub types: EntityMap<VReg, Type>,
    pub slots: Vec<Slot>,
    pub body: Block,
    /// An `i32`, for functions that return one.
    pub result: Option<VReg>,
}
