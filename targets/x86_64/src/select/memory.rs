//! Addresses, loads and stores.

use mcc_kernel::mach::Reg;
use mcc_kernel::{Address, Lane, Op, Type, VReg};

use super::form::{Form, Memory, Origin, Source};
use super::{Context, Selector, is_vector, repeated, vector_bits};
use crate::encode::Imm;
use crate::pool::Pool;
use crate::rows::{self, Row};

impl Pool {
    /// A constant lane.
    pub fn scalar(&mut self, lane_bits: u32, bits: u64) -> Memory {
        Memory::at(Origin::Pool(self.entry(bits.to_le_bytes()[..lane_bits as usize / 8].to_vec())), 0)
    }

    /// A constant in every lane of a vector.
    pub fn vector(&mut self, vector_bits: u32, lane_bits: u32, bits: u64) -> Memory {
        let bytes = repeated(lane_bits, bits).to_le_bytes().repeat(vector_bits as usize / 64);
        Memory::at(Origin::Pool(self.entry(bytes)), 0)
    }
}

/// Vector registers that the values and constants of an inner loop may take; more constants are read from memory where they are used.
const HELD: [(usize, usize); 2] = [(0, 12), (8, 28)];

/// Instructions in a row that read one constant from a register rather than each from memory.
const MANY: usize = 6;

impl<const V4: bool> Selector<V4> {
    /// An address as instructions take it: constant parts are in the displacement, one term may be an index.
    pub(super) fn address(&mut self, cx: &mut Context, address: &Address) -> Memory {
        let mut base = address.base;
        let mut terms = address.terms.clone();
        let mut displacement = address.displacement;
        let mut slot = None;
        while let Some((op, _)) = cx.def(base) {
            match op {
                Op::Lea(inner) if cx.sinkable(base).is_some() || inner.terms.is_empty() && !cx.is_asked(base) => {
                    displacement = displacement.wrapping_add(inner.displacement);
                    terms.extend(&inner.terms);
                    base = inner.base;
                }
                Op::SlotAddr(index) if terms.len() < 2 => {
                    slot = Some(*index);
                    break;
                }
                _ => break,
            }
        }
        terms.retain(|&(reg, scale)| match cx.constant(reg) {
            Some(value) => {
                displacement = displacement.wrapping_add((value as i64).wrapping_mul(scale));
                false
            }
            None => true,
        });
        let mut index = match terms[..] {
            [(reg, scale @ (1 | 2 | 4 | 8))] => Some((cx.reg(reg), scale as u8)),
            _ => None,
        };
        let origin = match slot {
            Some(slot) if index.is_some() || terms.is_empty() => Origin::Slot(slot),
            _ if terms.is_empty() || index.is_some() => Origin::Reg(cx.reg(base)),
            _ => Origin::Reg(cx.pointer(base, &terms)),
        };
        let displacement = i32::try_from(displacement).unwrap_or_else(|_| {
            let far = cx.constant_reg(Type::I64, displacement as u64);
            if let Some((reg, scale)) = index {
                let sum = Self::general(cx);
                let memory = Memory { origin: Origin::Reg(far), index: Some((reg, scale)), displacement: 0, is_broadcast: false };
                Form::new(rows::LEA, 64).def(sum).rm(memory.into()).push(cx);
                index = Some((sum, 1));
            } else {
                index = Some((far, 1));
            }
            0
        });
        Memory { origin, index, displacement, is_broadcast: false }
    }

    /// `to = base + Σ register · scale`.
    pub(super) fn sum(&mut self, cx: &mut Context, to: Reg, base: VReg, terms: &[(VReg, i64)]) {
        let mut sum = cx.reg(base);
        for (position, &(reg, scale)) in terms.iter().enumerate() {
            let term = cx.reg(reg);
            let (term, scale) = match scale {
                1 | 2 | 4 | 8 => (term, scale as u8),
                _ => (self.scaled(cx, term, scale), 1),
            };
            let next = if position + 1 == terms.len() { to } else { Self::general(cx) };
            let memory = Memory { origin: Origin::Reg(sum), index: Some((term, scale)), displacement: 0, is_broadcast: false };
            Form::new(rows::LEA, 64).def(next).rm(memory.into()).push(cx);
            sum = next;
        }
    }

    fn scaled(&mut self, cx: &mut Context, term: Reg, scale: i64) -> Reg {
        let product = Self::general(cx);
        match i32::try_from(scale) {
            Ok(scale) => Form::new(rows::IMUL_IMM, 64).def(product).rm(term.into()).imm(Imm::Word(scale)).push(cx),
            Err(_) => {
                let scale = cx.constant_reg(Type::I64, scale as u64);
                Self::general_binary(cx, rows::IMUL, 64, product, term, scale);
            }
        }
        product
    }

    pub(super) fn lea(&mut self, cx: &mut Context, to: Reg, address: &Address) {
        let memory = self.address(cx, address);
        match memory {
            Memory { origin: Origin::Reg(base), index: None, displacement: 0, .. } => Self::rename(cx, base, to),
            _ => Form::new(rows::LEA, 64).def(to).rm(memory.into()).push(cx),
        }
    }

    pub(super) fn slot_address(&mut self, cx: &mut Context, to: Reg, slot: u32) {
        Form::new(rows::LEA, 64).def(to).rm(Memory::at(Origin::Slot(slot), 0).into()).push(cx);
    }

    pub(super) fn symbol_address(&mut self, cx: &mut Context, to: Reg, name: &str) {
        let symbol = self.symbol(name);
        Form::new(rows::LEA, 64).def(to).rm(Memory::at(Origin::Symbol(symbol), 0).into()).push(cx);
    }

    pub(super) fn prefetch(&mut self, cx: &mut Context, address: &Address) {
        let memory = self.address(cx, address);
        Form::new(rows::PREFETCHT0, 32).ext(1).rm(memory.into()).push(cx);
    }

    pub(super) fn load(&mut self, cx: &mut Context, ty: Type, to: Reg, address: &Address) {
        let memory = self.address(cx, address);
        Self::load_from(cx, ty, to, memory);
    }

    pub(super) fn load_from(cx: &mut Context, ty: Type, to: Reg, memory: Memory) {
        let (row, bits) = match ty {
            Type::Ptr => (rows::MOV, 64),
            Type::Data { lanes: 2.., .. } => (rows::VMOVUPS, vector_bits(ty)),
            Type::Data { lane, .. } => match lane {
                Lane::I8 => (rows::MOVZX_8, 32),
                Lane::I16 => (rows::MOVZX_16, 32),
                Lane::I32 => (rows::MOV, 32),
                Lane::I64 => (rows::MOV, 64),
                Lane::F32 => (rows::VMOVSS, 128),
                Lane::F64 => (rows::VMOVSD, 128),
            },
            Type::Mask { .. } => cx.unsupported(&Op::Bitcast),
        };
        Form::new(row, bits).def(to).rm(memory.into()).push(cx);
    }

    pub(super) fn store(&mut self, cx: &mut Context, address: &Address, value: VReg) {
        let ty = cx.ty(value);
        let memory = self.address(cx, address);
        // Constants of integers go without a register.
        if let (Some(bits), Type::Data { lane: Lane::I32 | Lane::I64, lanes: 1 }) = (cx.constant(value), ty) {
            let lane = ty.lane();
            let signed = if lane == Lane::I32 { Ok(bits as u32 as i32) } else { i32::try_from(bits as i64) };
            if let Ok(value) = signed {
                let form = Form::new(rows::MOV_IMM, lane.bits()).ext(0).rm(memory.into());
                return form.imm(Imm::Word(value)).push(cx);
            }
        }
        let value = cx.reg(value);
        Self::store_to(cx, ty, memory, value);
    }

    pub(super) fn store_to(cx: &mut Context, ty: Type, memory: Memory, value: Reg) {
        let (row, bits): (Row, u32) = match ty {
            Type::Ptr => (rows::MOV_STORE, 64),
            Type::Data { lanes: 2.., .. } => (rows::VMOVUPS_STORE, vector_bits(ty)),
            Type::Data { lane, .. } => match lane {
                Lane::I8 => (rows::MOV_STORE_8, 8),
                Lane::I16 => (rows::MOV_STORE, 16),
                Lane::I32 => (rows::MOV_STORE, 32),
                Lane::I64 => (rows::MOV_STORE, 64),
                Lane::F32 => (rows::VMOVSS_STORE, 128),
                Lane::F64 => (rows::VMOVSD_STORE, 128),
            },
            Type::Mask { .. } => cx.unsupported(&Op::Bitcast),
        };
        Form::new(row, bits).reg(value).rm(memory.into()).push(cx);
    }

    /// A value in a register or, where only the present instruction needs it, in memory. What is read there has the size of the
    /// value, or of a lane where `may_broadcast`.
    pub(super) fn source(&mut self, cx: &mut Context, value: VReg, may_broadcast: bool) -> Source {
        let ty = cx.ty(value);
        if let Some(bits) = cx.constant(value) {
            return self.constant_source(cx, ty, bits, may_broadcast);
        }
        if let Some(address) = sinkable_load(cx, value) {
            return self.address(cx, address).into();
        }
        if let (true, Some((Op::Splat, args))) = (V4 && may_broadcast && is_vector(ty), cx.sinkable(value))
            && let Some(address) = sinkable_load(cx, args[0])
        {
            return self.address(cx, address).broadcast().into();
        }
        cx.reg(value).into()
    }

    /// Whether an inner loop is open whose values and constants leave no vector register.
    pub(super) fn is_crowded(cx: &Context) -> bool {
        let [values, constants] = cx.held_floats();
        let (least, most) = HELD[usize::from(V4)];
        cx.in_inner_loop() && constants >= least && values + constants >= most
    }

    pub(super) fn constant_source(&mut self, cx: &mut Context, ty: Type, bits: u64, may_broadcast: bool) -> Source {
        let is_many = !cx.in_inner_loop() || Self::is_crowded(cx);
        let Type::Data { lane, lanes } = ty else { return cx.constant_reg(ty, bits).into() };
        // Zeros need no memory.
        if bits == 0 || !is_many {
            return cx.constant_reg(ty, bits).into();
        }
        // Registers are scarcer than loads, but for very many.
        if let (true, Some(reg)) = (lanes > 1, cx.near_constant(ty, bits, MANY)) {
            return reg.into();
        }
        match lanes {
            1 => self.pool.scalar(lane.bits(), bits).into(),
            _ if V4 && may_broadcast => self.pool.scalar(lane.bits(), bits).broadcast().into(),
            _ => self.pool.vector(vector_bits(ty), lane.bits(), bits).into(),
        }
    }

    /// Whether [`source`](Self::source) would be in memory.
    pub(super) fn is_in_memory(&self, cx: &Context, value: VReg, may_broadcast: bool) -> bool {
        sinkable_load(cx, value).is_some()
            || V4
                && may_broadcast
                && matches!(cx.sinkable(value), Some((Op::Splat, args)) if sinkable_load(cx, args[0]).is_some())
    }
}

/// The address of a load that only the present instruction needs.
pub(super) fn sinkable_load<'k>(cx: &Context<'k>, value: VReg) -> Option<&'k Address> {
    match cx.sinkable(value) {
        Some((Op::Load { address, .. }, _)) => Some(address),
        _ => None,
    }
}
