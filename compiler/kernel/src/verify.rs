//! Checks that a kernel is well formed. A kernel that is not is a bug of what built it.
//!
//! Registers
//! * each is defined once, and used only where its definition is visible: later in the same block or in a block within it.
//!   What the test of a `while` defines is visible in its body.
//! * types have 1 to 64 lanes; masks have the width of a lane: 8, 16, 32 or 64 bits.
//! * parameters are `ptr`, `i32` or `i64`; the result is an `i32`.
//!
//! Control
//! * the index and the bounds of a loop are `i64`, its step is positive.
//! * a carried value's parameter, first value, next value and result have one type; so have the three registers of an `if`'s result.
//! * conditions are masks of one lane.
//!
//! Instructions
//! * the number and types of operands, and whether there is a result and of what type, are as the operation says in [`Op`].
//! * a constant is data, a mask of 0 or 1, or the null pointer.
//! * an extracted lane exists; the first lanes that a load, store or splice takes are at least one and not all; a slot exists, has at least one byte and an alignment that is a power of two up to 16.
//! * an address starts at a `ptr` and adds `i64` registers; an alignment is a power of two.
//! * symbols have a name.
//!
//! Target, where its facts are given
//! * every operation on more than one lane is a supported combination for each of its types with more than one lane.
//! * `fma` of `f64` is used only where it exists.

use mcc_support::EntityId;

use crate::ir::{Address, Block, Carried, Kernel, Lane, Node, Op, Operand, Type, VReg};
use crate::target::{Facts, OpKind};
use crate::text;

type Check = Result<(), String>;

macro_rules! check {
    ($condition:expr, $($arg:tt)*) => { if !($condition) { return Err(format!($($arg)*)); } };
}

/// Verifies a kernel for any target, or for the one with these facts. The error names the kernel, the line and what is wrong.
pub fn verify(kernel: &Kernel, facts: Option<&Facts>) -> Check {
    let count = kernel.types.len();
    let mut verifier = Verifier { kernel, facts, defined: vec![false; count], visible: vec![false; count], scope: Vec::new() };
    verifier.kernel().map_err(|error| format!("kernel @{}: {error}", kernel.name))
}

struct Verifier<'a> {
    kernel: &'a Kernel,
    facts: Option<&'a Facts>,
    defined: Vec<bool>,
    visible: Vec<bool>,
    /// The visible registers in the order of their definitions.
    scope: Vec<VReg>,
}

impl Verifier<'_> {
    fn kernel(&mut self) -> Check {
        for (reg, ty) in self.kernel.types.iter() {
            check!((1..=64).contains(&ty.lanes()), "{reg} has {} lanes", ty.lanes());
            check!(!matches!(ty, Type::Mask { bits, .. } if ![8, 16, 32, 64].contains(bits)), "{reg} is a {ty}");
        }
        for (index, slot) in self.kernel.slots.iter().enumerate() {
            check!(slot.size_bytes > 0, "slot {index} is empty");
            check!([1, 2, 4, 8, 16].contains(&slot.align_bytes), "slot {index} is aligned to {} bytes", slot.align_bytes);
        }
        for &param in &self.kernel.params {
            self.define(param)?;
            let ty = self.kernel.types[param];
            check!([Type::Ptr, Type::I32, Type::I64].contains(&ty), "parameter {param} is {ty}");
        }
        self.block(&self.kernel.body)?;
        match self.kernel.result {
            Some(result) => self.expect(result, Type::I32, "the result"),
            None => Ok(()),
        }
    }

    fn define(&mut self, reg: VReg) -> Check {
        check!(reg.index() < self.defined.len(), "{reg} has no type");
        check!(!self.defined[reg.index()], "{reg} is defined twice");
        self.defined[reg.index()] = true;
        self.visible[reg.index()] = true;
        self.scope.push(reg);
        Ok(())
    }

    /// Hides what was defined since the scope had this length.
    fn leave(&mut self, length: usize) {
        for reg in self.scope.drain(length..) {
            self.visible[reg.index()] = false;
        }
    }

    fn ty(&self, reg: VReg) -> Result<Type, String> {
        check!(self.visible.get(reg.index()) == Some(&true), "{reg} is used where no definition of it is visible");
        Ok(self.kernel.types[reg])
    }

    fn expect(&self, reg: VReg, ty: Type, what: &str) -> Check {
        let found = self.ty(reg)?;
        check!(found == ty, "{what} {reg} is {found}, not {ty}");
        Ok(())
    }

    fn condition(&self, reg: VReg) -> Check {
        let ty = self.ty(reg)?;
        check!(matches!(ty, Type::Mask { lanes: 1, .. }), "the condition {reg} is {ty}, not a mask of one lane");
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Check {
        for node in block {
            match node {
                Node::Inst { result, op, args } => {
                    let place = |error| format!("{}: {error}", text::instruction(&self.kernel.types, *result, op, args));
                    self.inst(*result, op, args).map_err(place)?;
                    result.map_or(Ok(()), |result| self.define(result))?;
                }
                Node::Loop(node) => {
                    let place = |error| format!("loop {}: {error}", node.index);
                    check!(node.step > 0, "loop {}: the step is {}", node.index, node.step);
                    for bound in [node.begin, node.end] {
                        if let Operand::Reg(reg) = bound {
                            self.expect(reg, Type::I64, "the bound").map_err(place)?;
                        }
                    }
                    self.inits(&node.carried).map_err(place)?;
                    let outer = self.scope.len();
                    self.define(node.index).map_err(place)?;
                    self.expect(node.index, Type::I64, "the index").map_err(place)?;
                    self.params(&node.carried).map_err(place)?;
                    self.block(&node.body)?;
                    self.nexts(&node.carried).map_err(place)?;
                    self.leave(outer);
                    node.carried.iter().try_for_each(|carried| self.define(carried.result)).map_err(place)?;
                }
                Node::While(node) => {
                    let place = |error| format!("while {}: {error}", node.cond);
                    self.inits(&node.carried).map_err(place)?;
                    let outer = self.scope.len();
                    self.params(&node.carried).map_err(place)?;
                    self.block(&node.test)?;
                    self.condition(node.cond).map_err(place)?;
                    self.block(&node.body)?;
                    self.nexts(&node.carried).map_err(place)?;
                    self.leave(outer);
                    node.carried.iter().try_for_each(|carried| self.define(carried.result)).map_err(place)?;
                }
                Node::If(node) => {
                    let place = |error| format!("if {}: {error}", node.cond);
                    self.condition(node.cond).map_err(place)?;
                    let branches = [(&node.then, true), (&node.otherwise, false)];
                    for (branch, is_then) in branches {
                        let outer = self.scope.len();
                        self.block(branch)?;
                        for &(result, then, otherwise) in &node.results {
                            let ty = *self.kernel.types.get(result).ok_or_else(|| place(format!("{result} has no type")))?;
                            self.expect(if is_then { then } else { otherwise }, ty, "the value").map_err(place)?;
                        }
                        self.leave(outer);
                    }
                    node.results.iter().try_for_each(|&(result, ..)| self.define(result)).map_err(place)?;
                }
            }
        }
        Ok(())
    }

    fn inits(&self, carried: &[Carried]) -> Check {
        for carried in carried {
            let ty = self.ty(carried.init)?;
            for reg in [carried.param, carried.result] {
                let found = self.kernel.types.get(reg);
                check!(found == Some(&ty), "{reg} is not of type {ty}, as the value that it is given first");
            }
        }
        Ok(())
    }

    fn params(&mut self, carried: &[Carried]) -> Check {
        carried.iter().try_for_each(|carried| self.define(carried.param))
    }

    fn nexts(&self, carried: &[Carried]) -> Check {
        carried.iter().try_for_each(|carried| self.expect(carried.next, self.kernel.types[carried.param], "the next value"))
    }

    fn inst(&self, result: Option<VReg>, op: &Op, args: &[VReg]) -> Check {
        let args = args.iter().map(|&reg| self.ty(reg)).collect::<Result<Vec<_>, _>>()?;
        let result = match result {
            Some(reg) => Some(*self.kernel.types.get(reg).ok_or_else(|| format!("{reg} has no type"))?),
            None => None,
        };
        match op {
            Op::Lea(address) | Op::LoadPtr(address) | Op::StorePtr(address) | Op::Prefetch(address) => self.address(address)?,
            Op::Load { address, align }
            | Op::Store { address, align }
            | Op::LoadFirst { address, align, .. }
            | Op::StoreFirst { address, align, .. } => {
                self.address(address)?;
                check!(align.is_power_of_two(), "an alignment of {align} bytes");
            }
            Op::SlotAddr(slot) => check!((*slot as usize) < self.kernel.slots.len(), "there is no slot {slot}"),
            Op::SymbolAddr(name) | Op::Call(name) => check!(!name.is_empty(), "the symbol has no name"),
            _ => {}
        }
        match result {
            Some(ty) => gives(op, ty, &args)?,
            None => takes(op, &args)?,
        }
        self.supported(op, result.iter().chain(&args))
    }

    fn address(&self, address: &Address) -> Check {
        self.expect(address.base, Type::Ptr, "the base")?;
        address.terms.iter().try_for_each(|&(reg, _)| self.expect(reg, Type::I64, "the term"))
    }

    fn supported<'a>(&self, op: &Op, types: impl Iterator<Item = &'a Type>) -> Check {
        let Some(facts) = self.facts else { return Ok(()) };
        let types: Vec<&Type> = types.collect();
        check!(*op != Op::Fma || facts.fma || types[0].lane() == Lane::F32, "the target has no fma");
        if OpKind::of(op) == Some(OpKind::IntFloat) && types.iter().any(|ty| ty.lanes() > 1) {
            let is_same = types.iter().all(|ty| ty.lane().bits() == types[0].lane().bits());
            check!(is_same, "vectors are not converted to lanes of another width");
        }
        for ty in types.into_iter().filter(|ty| ty.lanes() > 1) {
            let kind = OpKind::of(op).ok_or_else(|| format!("the operation has one lane only, not {ty}"))?;
            let lanes = Lane::ALL.into_iter().filter(|lane| match ty {
                Type::Data { lane: found, .. } => lane == found,
                Type::Mask { bits, .. } => lane.bits() == u32::from(*bits),
                Type::Ptr => false,
            });
            let found = lanes.into_iter().any(|lane| facts.supports(kind, lane, ty.lanes()));
            check!(found, "the target has no {kind:?} of {ty}");
        }
        Ok(())
    }
}

/// Operations without a result.
fn takes(op: &Op, args: &[Type]) -> Check {
    match (op, args) {
        (Op::Store { .. }, [ty]) => check!(matches!(ty, Type::Data { .. }), "a store of {ty}"),
        (Op::StoreFirst { lanes, .. }, [ty]) => check!(is_part(*ty, *lanes), "a store of {lanes} lanes of {ty}"),
        (Op::StorePtr(_), [ty]) => check!(*ty == Type::Ptr, "a store of {ty} as a pointer"),
        (Op::Prefetch(_), []) => {}
        (Op::Call(_), args) => arguments(args)?,
        (Op::CallPtr, [Type::Ptr, args @ ..]) => arguments(args)?,
        _ => return Err(format!("without result, the operation does not take {}", list(args))),
    }
    Ok(())
}

fn arguments(args: &[Type]) -> Check {
    match args.iter().find(|ty| ![Type::Ptr, Type::I32, Type::I64].contains(ty)) {
        Some(ty) => Err(format!("{ty} is not passed to functions")),
        None => Ok(()),
    }
}

fn list(types: &[Type]) -> String {
    format!("({})", types.iter().map(Type::to_string).collect::<Vec<_>>().join(", "))
}

/// Operations with a result of type `ty`.
fn gives(op: &Op, ty: Type, args: &[Type]) -> Check {
    let is_data = matches!(ty, Type::Data { .. });
    let is_mask = matches!(ty, Type::Mask { .. });
    let is_float = is_data && ty.lane().is_float();
    let is_int = is_data && !ty.lane().is_float();
    let same = |count: usize| args.len() == count && args.iter().all(|&arg| arg == ty);
    let fits = match op {
        Op::Const(bits) => args.is_empty() && (is_data || is_mask && *bits <= 1 || *bits == 0),
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Min | Op::Max => is_data && same(2),
        Op::Neg | Op::Abs => is_data && same(1),
        Op::Fma => is_float && same(3),
        Op::Sqrt | Op::Floor | Op::Ceil | Op::Trunc | Op::Nearest => is_float && same(1),
        Op::DivU | Op::Rem | Op::RemU | Op::MinU | Op::MaxU | Op::And | Op::Or | Op::Xor => is_int && same(2),
        Op::Not => is_int && same(1),
        Op::Shl | Op::ShrS | Op::ShrU => is_int && args == [ty, Type::I32],
        Op::Cmp(_) | Op::CmpU(_) | Op::Select | Op::MaskAnd | Op::MaskOr | Op::MaskXor | Op::MaskNot => {
            is_selection(op, ty, args)
        }
        Op::MaskToInt | Op::IntToMask | Op::MaskResize => is_mask_change(op, ty, args),
        Op::ExtendS | Op::ExtendU | Op::Wrap | Op::Promote | Op::Demote | Op::Bitcast => is_data && is_conversion(op, ty, args),
        Op::IntToFloatS | Op::IntToFloatU | Op::FloatToIntS | Op::FloatToIntU => is_data && is_conversion(op, ty, args),
        Op::Splat => ty != Type::Ptr && ty.lanes() > 1 && args == [ty.with_lanes(1)],
        Op::Pack => ty != Type::Ptr && args.len() == usize::from(ty.lanes()) && args.iter().all(|&arg| arg == ty.with_lanes(1)),
        Op::Extract(lane) => match args {
            [vector] if *vector != Type::Ptr && *lane < vector.lanes() => {
                let is_half = is_data && vector.lanes() == 2 * ty.lanes() && lane.is_multiple_of(ty.lanes());
                ty == vector.with_lanes(1) || is_half && ty == vector.with_lanes(ty.lanes())
            }
            _ => false,
        },
        Op::Splice(lanes) => is_part(ty, *lanes) && same(2),
        Op::Load { .. } => is_data && args.is_empty(),
        Op::LoadFirst { lanes, .. } => is_part(ty, *lanes) && args.is_empty(),
        Op::Lea(_) | Op::LoadPtr(_) | Op::SlotAddr(_) | Op::SymbolAddr(_) => ty == Type::Ptr && args.is_empty(),
        Op::Call(_) => ty == Type::I32 && arguments(args).is_ok(),
        Op::CallPtr => ty == Type::I32 && args.first() == Some(&Type::Ptr) && arguments(&args[1..]).is_ok(),
        Op::Store { .. } | Op::StoreFirst { .. } | Op::StorePtr(_) | Op::Prefetch(_) => false,
    };
    check!(fits, "the operation does not give {ty} from {}", list(args));
    Ok(())
}

/// Whether so many lanes are some of a vector, but not all.
fn is_part(ty: Type, lanes: u8) -> bool {
    matches!(ty, Type::Data { .. }) && (1..ty.lanes()).contains(&lanes)
}

fn is_selection(op: &Op, ty: Type, args: &[Type]) -> bool {
    match (op, args) {
        (Op::Cmp(_), [a @ Type::Data { .. }, b]) => a == b && ty == a.mask(),
        (Op::CmpU(_), [a @ Type::Data { lane, .. }, b]) => a == b && ty == a.mask() && !lane.is_float(),
        (Op::Select, [Type::Mask { lanes: 1, .. }, a, b]) => *a == ty && *b == ty,
        (Op::Select, [mask @ Type::Mask { .. }, a @ Type::Data { .. }, b]) => *a == ty && *b == ty && *mask == ty.mask(),
        (Op::MaskAnd | Op::MaskOr | Op::MaskXor, [a @ Type::Mask { .. }, b]) => *a == ty && *b == ty,
        (Op::MaskNot, [a @ Type::Mask { .. }]) => *a == ty,
        _ => false,
    }
}

fn is_mask_change(op: &Op, ty: Type, args: &[Type]) -> bool {
    match (op, ty, args) {
        (Op::MaskToInt, Type::Data { lane, lanes }, [mask @ Type::Mask { lanes: found, .. }]) => {
            !lane.is_float() && *found == lanes && (lanes == 1 || *mask == ty.mask())
        }
        (Op::IntToMask, Type::Mask { .. }, [int @ Type::Data { lane, .. }]) => !lane.is_float() && ty == int.mask(),
        (Op::MaskResize, Type::Mask { bits, lanes }, [Type::Mask { bits: from, lanes: found }]) => {
            bits != *from && lanes == *found
        }
        _ => false,
    }
}

fn is_conversion(op: &Op, ty: Type, args: &[Type]) -> bool {
    let [Type::Data { lane: from, lanes }] = *args else { return false };
    let to = ty.lane();
    let is_wide = |lane: Lane| lane.bits() >= 32;
    lanes == ty.lanes()
        && match op {
            Op::ExtendS | Op::ExtendU => !from.is_float() && !to.is_float() && from.bits() < to.bits(),
            Op::Wrap => !from.is_float() && !to.is_float() && from.bits() > to.bits(),
            Op::IntToFloatS | Op::IntToFloatU => !from.is_float() && is_wide(from) && to.is_float(),
            Op::FloatToIntS | Op::FloatToIntU => from.is_float() && !to.is_float() && is_wide(to),
            Op::Promote => from == Lane::F32 && to == Lane::F64,
            Op::Demote => from == Lane::F64 && to == Lane::F32,
            _ => from != to && from.bits() == to.bits(),
        }
}
