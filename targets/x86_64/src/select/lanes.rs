//! Vectors from scalars, and scalars from vectors.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Lane, Op, Type, VReg};

use super::form::{Form, Memory, Source};
use super::memory::sinkable_load;
use super::{Context, Selector, by_width, vector_bits};
use crate::encode::Imm;
use crate::rows;

impl<const V4: bool> Selector<V4> {
    pub(super) fn splat(&mut self, cx: &mut Context, ty: Type, to: Reg, scalar: VReg) {
        let Type::Data { lane, .. } = ty else { return self.splat_mask(cx, ty, to, scalar) };
        if let Some(address) = sinkable_load(cx, scalar) {
            let memory = self.address(cx, address);
            return self.splat_from_memory(cx, ty, to, memory);
        }
        let scalar = cx.reg(scalar);
        match lane {
            Lane::F32 => Self::unary(cx, rows::VBROADCASTSS, vector_bits(ty), to, scalar),
            Lane::F64 if vector_bits(ty) == 128 => Self::unary(cx, rows::VMOVDDUP, 128, to, scalar),
            Lane::F64 => Self::unary(cx, rows::VBROADCASTSD, vector_bits(ty), to, scalar),
            _ => self.splat_general(cx, lane.bits(), vector_bits(ty), to, scalar),
        }
    }

    /// A lane in memory, in every lane; a scalar is loaded.
    pub(super) fn splat_from_memory(&mut self, cx: &mut Context, ty: Type, to: Reg, memory: Memory) {
        let bits = vector_bits(ty);
        let row = match ty.lane() {
            _ if ty.lanes() == 1 => return Self::load_from(cx, ty, to, memory),
            Lane::F32 => rows::VBROADCASTSS,
            Lane::F64 if bits == 128 => rows::VMOVDDUP,
            Lane::F64 => rows::VBROADCASTSD,
            lane => rows::VPBROADCAST[by_width(lane.bits())],
        };
        Self::unary(cx, row, bits, to, memory);
    }

    pub(super) fn pack(&mut self, cx: &mut Context, ty: Type, to: Reg, lanes: &[VReg]) {
        if let [lane] = *lanes {
            let lane = cx.reg(lane);
            return Self::rename(cx, lane, to);
        }
        let Type::Data { lane, .. } = ty else { return self.pack_mask(cx, ty, to, lanes) };
        if lane.bits() >= 32 {
            return self.pack_wide(cx, ty, to, lanes);
        }
        for (index, &value) in lanes.iter().enumerate() {
            let place = self.scratch(index as i32 * lane.bytes() as i32);
            let value = cx.reg(value);
            Self::store_to(cx, Type::scalar(lane), place, value);
        }
        let place = self.scratch(0);
        Form::new(rows::VMOVUPS, vector_bits(ty)).def(to).rm(place.into()).push(cx);
    }

    /// Quarters of 128 bits, which are then put together.
    fn pack_wide(&mut self, cx: &mut Context, ty: Type, to: Reg, lanes: &[VReg]) {
        let each = 128 / ty.lane().bits() as usize;
        let mut parts: Vec<Reg> = Vec::new();
        let count = lanes.len() / each;
        for quarter in lanes.chunks(each) {
            let part = if count == 1 { to } else { Self::vector(cx) };
            self.pack_quarter(cx, ty.lane(), part, quarter);
            parts.push(part);
        }
        let mut bits = 128;
        while parts.len() > 1 {
            bits *= 2;
            let row = if bits == 256 { rows::VINSERT_128 } else { rows::VINSERT_256 };
            parts = parts
                .chunks(2)
                .map(|pair| {
                    let whole = if bits == vector_bits(ty) { to } else { Self::vector(cx) };
                    Form::new(row, bits).def(whole).vvvv(pair[0]).rm(pair[1].into()).imm(Imm::Byte(1)).push(cx);
                    whole
                })
                .collect();
        }
    }

    fn pack_quarter(&mut self, cx: &mut Context, lane: Lane, to: Reg, lanes: &[VReg]) {
        let row = match lane {
            Lane::F32 => rows::VINSERTPS,
            Lane::I32 => rows::VPINSRD,
            Lane::F64 => rows::VMOVLHPS,
            _ => rows::VPINSRQ,
        };
        let mut vector = match lane.is_float() {
            true => cx.reg(lanes[0]),
            false => {
                let scalar = self.lane_source(cx, lanes[0]);
                let low = Self::vector(cx);
                Form::new(if lane == Lane::I64 { rows::VMOVQ } else { rows::VMOVD }, 128).def(low).rm(scalar).push(cx);
                low
            }
        };
        for (index, &value) in lanes.iter().enumerate().skip(1) {
            let imm = match lane {
                Lane::F32 => Imm::Byte((index as u8) << 4),
                Lane::F64 => Imm::None,
                _ => Imm::Byte(index as u8),
            };
            // The move of two lanes reads registers only.
            let source = if lane == Lane::F64 { cx.reg(value).into() } else { self.lane_source(cx, value) };
            let next = if index + 1 == lanes.len() { to } else { Self::vector(cx) };
            Form::new(row, 128).def(next).vvvv(vector).rm(source).imm(imm).push(cx);
            vector = next;
        }
    }

    fn lane_source(&mut self, cx: &mut Context, value: VReg) -> Source {
        match sinkable_load(cx, value) {
            Some(address) => self.address(cx, address).into(),
            None => cx.reg(value).into(),
        }
    }

    /// One lane, or a half of the lanes, from this lane on.
    pub(super) fn extract(&mut self, cx: &mut Context, from: Type, ty: Type, to: Reg, vector: VReg, lane: u8) {
        if matches!(from, Type::Mask { lanes: 2.., .. }) {
            return self.extract_mask(cx, from, to, vector, lane);
        }
        let vector = cx.reg(vector);
        if from.lanes() == 1 {
            return Self::rename(cx, vector, to);
        }
        if ty.lanes() > 1 {
            let row = if vector_bits(from) == 512 { rows::VEXTRACT_256 } else { rows::VEXTRACT_128 };
            return match lane {
                0 => Self::rename(cx, vector, to),
                _ => Form::new(row, vector_bits(from)).reg(vector).def_rm(to).imm(Imm::Byte(1)).push(cx),
            };
        }
        if !from.lane().is_float() {
            return self.extract_integer(cx, from, to, vector, lane);
        }
        let (quarter, lane) = self.quarter(cx, from, vector, lane);
        match (lane, from.lane()) {
            (0, _) => Self::rename(cx, quarter, to),
            (_, Lane::F32) => Form::new(rows::VPERMILPS, 128).def(to).rm(quarter.into()).imm(Imm::Byte(lane)).push(cx),
            _ => Form::new(rows::VPERMILPD, 128).def(to).rm(quarter.into()).imm(Imm::Byte(lane)).push(cx),
        }
    }

    /// The 128 bits with a lane, and the lane's position there.
    fn quarter(&mut self, cx: &mut Context, from: Type, vector: Reg, lane: u8) -> (Reg, u8) {
        let each = (128 / from.lane().bits()) as u8;
        let bits = vector_bits(from);
        if lane < each {
            return (vector, lane);
        }
        let part = Self::vector(cx);
        // The stored part is the operand in ModRM.rm.
        Form::new(rows::VEXTRACT_128, bits).reg(vector).def_rm(part).imm(Imm::Byte(lane / each)).push(cx);
        (part, lane % each)
    }

    pub(super) fn extract_integer(&mut self, cx: &mut Context, from: Type, to: Reg, vector: Reg, lane: u8) {
        let (quarter, lane) = self.quarter(cx, from, vector, lane);
        let width = by_width(from.lane().bits());
        let form = match (lane, width) {
            (0, 2) => Form::new(rows::VMOVD_STORE, 128),
            (0, 3) => Form::new(rows::VMOVQ_STORE, 128),
            _ => Form::new(rows::VPEXTR[width], 128).imm(Imm::Byte(lane)),
        };
        form.reg(quarter).def_rm(to).push(cx);
    }

    /// The same bits in another kind of register, or under another name.
    pub(super) fn bitcast(&mut self, cx: &mut Context, from: Type, ty: Type, to: Reg, value: VReg) {
        let value = cx.reg(value);
        let is_wide = ty.lane().bits() == 64;
        match (cx.class_of(from), cx.class_of(ty)) {
            (RegClass::Int, RegClass::Float) => {
                Form::new(if is_wide { rows::VMOVQ } else { rows::VMOVD }, 128).def(to).rm(value.into()).push(cx);
            }
            (RegClass::Float, RegClass::Int) => {
                let row = if is_wide { rows::VMOVQ_STORE } else { rows::VMOVD_STORE };
                Form::new(row, 128).reg(value).def_rm(to).push(cx);
            }
            _ => Self::rename(cx, value, to),
        }
    }

    pub(super) fn convert_bits(&mut self, cx: &mut Context, from: Type, ty: Type, to: Reg, op: &Op, value: VReg) {
        match op {
            Op::Bitcast => self.bitcast(cx, from, ty, to, value),
            Op::ExtendS | Op::ExtendU => {
                let source = self.lane_source(cx, value);
                let bits = if ty.lane() == Lane::I64 { 64 } else { 32 };
                Self::extend(cx, from.lane(), *op == Op::ExtendS, to, source, bits);
            }
            Op::Wrap => {
                let value = cx.reg(value);
                Self::rename(cx, value, to);
            }
            Op::Promote | Op::Demote => {
                let row = if *op == Op::Promote { rows::VCVTSS2SD } else { rows::VCVTSD2SS };
                let value = cx.reg(value);
                Form::new(row, 128).def(to).vvvv(value).rm(value.into()).push(cx);
            }
            _ => cx.unsupported(op),
        }
    }
}
