//! The first lanes of vectors: what lies behind them in memory is not touched.

use mcc_kernel::mach::Reg;
use mcc_kernel::{Address, Type, VReg};

use super::form::{Form, Memory, Origin};
use super::{Context, Selector, vector_bits};
use crate::encode::Imm;
use crate::rows::{self, Row};

/// The type by which a register is asked for that tells of the first lanes of a vector, whose number is the constant: no mask has
/// so many lanes of this width.
fn first_lanes_type(lane_bits: u32) -> Type {
    Type::Mask { bits: lane_bits as u8, lanes: u8::MAX }
}

/// The width of the lanes that such a register tells of.
pub(super) fn of_first_lanes(ty: Type) -> Option<u32> {
    match ty {
        Type::Mask { bits, lanes: u8::MAX } => Some(u32::from(bits)),
        _ => None,
    }
}

/// Moves of so many bits between memory and a vector register, for which nothing tells which lanes.
fn whole(bits: u32) -> Option<(Row, Row, u32)> {
    match bits {
        32 => Some((rows::VMOVSS, rows::VMOVSS_STORE, 128)),
        64 => Some((rows::VMOVSD, rows::VMOVSD_STORE, 128)),
        128 | 256 => Some((rows::VMOVUPS, rows::VMOVUPS_STORE, bits)),
        _ => None,
    }
}

impl Memory {
    fn moved(self, bytes: u32) -> Memory {
        Memory { displacement: self.displacement + bytes as i32, ..self }
    }
}

impl<const V4: bool> Selector<V4> {
    /// A mask register, or a vector of all ones and then all zeros.
    pub(super) fn first_lanes(&mut self, cx: &mut Context, to: Reg, lane_bits: u32, lanes: u8) {
        if V4 {
            let set = Self::general(cx);
            Self::load_constant(cx, set, (1 << lanes) - 1);
            return Form::new(rows::KMOV_FROM, 128).def(to).rm(set.into()).push(cx);
        }
        let ones = usize::from(lanes) * lane_bits as usize / 8;
        let entry = self.pool.entry((0..32).map(|byte| if byte < ones { 0xff } else { 0 }).collect());
        Form::new(rows::VMOVUPS, 256).def(to).rm(Memory::at(Origin::Pool(entry), 0).into()).push(cx);
    }

    pub(super) fn load_first(&mut self, cx: &mut Context, ty: Type, to: Reg, lanes: u8, address: &Address) {
        let lane_bits = ty.lane().bits();
        // These clear the other lanes.
        if let Some((row, _, bits)) = whole(u32::from(lanes) * lane_bits) {
            let memory = self.address(cx, address);
            return Form::new(row, bits).def(to).rm(memory.into()).push(cx);
        }
        let first = cx.constant_reg(first_lanes_type(lane_bits), u64::from(lanes));
        let memory = self.address(cx, address);
        if V4 {
            let row = if lane_bits == 64 { rows::VMOVUPD } else { rows::VMOVUPS };
            return Form::new(row, vector_bits(ty)).def(to).mask(first).zeroing().rm(memory.into()).push(cx);
        }
        let row = rows::VPMASKMOV[usize::from(lane_bits == 64)];
        Form::new(row, vector_bits(ty)).def(to).vvvv(first).rm(memory.into()).push(cx);
    }

    pub(super) fn store_first(&mut self, cx: &mut Context, lanes: u8, address: &Address, value: VReg) {
        let ty = cx.ty(value);
        let lane_bits = ty.lane().bits();
        let memory = self.address(cx, address);
        let value = cx.reg(value);
        let bits = u32::from(lanes) * lane_bits;
        if V4 && whole(bits).is_none() {
            let first = cx.constant_reg(first_lanes_type(lane_bits), u64::from(lanes));
            let row = if lane_bits == 64 { rows::VMOVUPD_STORE } else { rows::VMOVUPS_STORE };
            return Form::new(row, vector_bits(ty)).mask(first).reg(value).rm(memory.into()).push(cx);
        }
        Self::store_bits(cx, vector_bits(ty), bits, memory, value);
    }

    /// The lowest bits, in pieces: stores under a mask take long before AVX-512.
    fn store_bits(cx: &mut Context, vector_bits: u32, bits: u32, memory: Memory, value: Reg) {
        if let Some((_, row, width)) = whole(bits) {
            return Form::new(row, width).reg(value).rm(memory.into()).push(cx);
        }
        if bits > 128 {
            Self::store_bits(cx, vector_bits, 128, memory, value);
            let upper = Self::vector(cx);
            Form::new(rows::VEXTRACT_128, vector_bits).reg(value).def_rm(upper).imm(Imm::Byte(1)).push(cx);
            return Self::store_bits(cx, 128, bits - 128, memory.moved(16), upper);
        }
        // Three lanes of 32 bits.
        Self::store_bits(cx, 128, 64, memory, value);
        Form::new(rows::VPEXTR[2], 128).reg(value).rm(memory.moved(8).into()).imm(Imm::Byte(2)).push(cx);
    }

    /// The first lanes of one vector, the others of another.
    pub(super) fn splice(&mut self, cx: &mut Context, ty: Type, to: Reg, lanes: u8, args: &[VReg]) {
        let (lane_bits, bits) = (ty.lane().bits(), vector_bits(ty));
        if V4 {
            let first = cx.constant_reg(first_lanes_type(lane_bits), u64::from(lanes));
            let source = self.source(cx, args[0], true);
            let rest = cx.reg(args[1]);
            let row = rows::VPBLENDM[super::by_width(lane_bits)];
            return Form::new(row, bits).def(to).mask(first).vvvv(rest).rm(source).push(cx);
        }
        let source = self.source(cx, args[0], false);
        let rest = cx.reg(args[1]);
        let row = rows::VBLEND[usize::from(lane_bits == 64)];
        Form::new(row, bits).def(to).vvvv(rest).rm(source).imm(Imm::Byte((1 << lanes) - 1)).push(cx);
    }
}
