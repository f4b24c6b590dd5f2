//! Addresses, loads and stores.
//!
//! Where the CPU is strict about alignment, an access that is not known to be aligned is made of smaller ones: of a vector, one
//! instruction that loads or stores lanes.

use mcc_kernel::mach::{Reg, RegClass};
use mcc_kernel::{Address, Type, VReg};

use super::integer::add_constant;
use super::{Cx, Selector, is_vector, lane_bits};
use crate::encode::vector as v;
use crate::encode::*;
use crate::inst::{Make, Memory, What};

/// Where an access is.
enum Place {
    /// A base and any displacement.
    At(Reg, i64),
    /// A base and an index of 64 bits, scaled by the access's size or not.
    Indexed(Reg, Reg, bool),
}

impl Selector {
    /// `base + Σ terms`, and the displacement with all constants.
    fn sum(&mut self, cx: &mut Cx, address: &Address, leave_one: bool) -> (Reg, Option<(VReg, i64)>, i64) {
        let mut displacement = address.displacement;
        let mut terms = Vec::new();
        for &(reg, scale) in &address.terms {
            match cx.constant(reg) {
                Some(value) => displacement = displacement.wrapping_add((value as i64).wrapping_mul(scale)),
                None => terms.push((reg, scale)),
            }
        }
        let left = if leave_one { terms.pop() } else { None };
        let mut base = cx.reg(address.base);
        for (reg, scale) in terms {
            base = self.add_scaled(cx, base, reg, scale);
        }
        (base, left, displacement)
    }

    fn add_scaled(&mut self, cx: &mut Cx, base: Reg, index: VReg, scale: i64) -> Reg {
        let to = cx.fresh(RegClass::Int);
        let index = cx.reg(index);
        let magnitude = scale.unsigned_abs();
        if magnitude.is_power_of_two() {
            let op = if scale < 0 { SUB } else { ADD };
            let word = shifted(op, Width::X, Shift::Lsl, magnitude.trailing_zeros());
            Make::new(word).def(to).n(base).m(index).push(cx);
        } else {
            let scale = cx.constant_reg(Type::I64, scale as u64);
            Make::new(general(MADD, Width::X)).def(to).n(index).m(scale).a(base).push(cx);
        }
        to
    }

    /// The address in a register.
    pub fn pointer(&mut self, cx: &mut Cx, address: &Address) -> Reg {
        let (base, _, displacement) = self.sum(cx, address, false);
        if displacement == 0 {
            return base;
        }
        let to = cx.fresh(RegClass::Int);
        add_constant(cx, to, base, displacement);
        to
    }

    pub fn lea(&mut self, cx: &mut Cx, to: Reg, address: &Address) {
        let (base, _, displacement) = self.sum(cx, address, false);
        add_constant(cx, to, base, displacement);
    }

    fn place(&mut self, cx: &mut Cx, address: &Address, access: Access) -> Place {
        let is_one = address.terms.iter().filter(|(reg, _)| cx.constant(*reg).is_none()).count() == 1;
        let can_index = is_one
            && address.displacement == 0
            && address.terms.len() == 1
            && (address.terms[0].1 == 1 || address.terms[0].1 == access.bytes());
        let (base, left, displacement) = self.sum(cx, address, can_index);
        if let Some((index, scale)) = left {
            let index = cx.reg(index);
            return Place::Indexed(base, index, scale != 1);
        }
        Place::At(base, displacement)
    }

    fn transfer(&mut self, cx: &mut Cx, data: Reg, address: &Address, access: Access, align: u32) {
        let make = match self.place(cx, address, access) {
            Place::At(base, displacement) => {
                let memory = Memory { access, displacement, align, count: 1, step: 0 };
                // Where no instruction holds the displacement, it is seen to later.
                let word = memory.word().unwrap_or(0);
                with_data(Make::new(word).what(What::Memory(memory)), data, access.is_load).n(base)
            }
            Place::Indexed(base, index, is_scaled) => {
                let what = if access.is_load { What::Loads } else { What::Stores };
                let word = access.indexed(Extend::Lsl, is_scaled && access.log2_bytes > 0);
                with_data(Make::new(word).what(what), data, access.is_load).n(base).m(index)
            }
        };
        make.push(cx);
    }

    pub fn load(&mut self, cx: &mut Cx, to: Reg, ty: Type, address: &Address, align: u32) {
        let access = access(ty, true);
        if !self.strict_alignment || i64::from(align) >= access.bytes() {
            return self.transfer(cx, to, address, access, align);
        }
        if ty.lanes() > 1 {
            let base = self.pointer(cx, address);
            let word = v::ld1(true, lane_by_align(ty, align), access.log2_bytes == 4);
            return Make::new(word).what(What::Loads).def(to).n(base).push(cx);
        }
        let base = self.pointer(cx, address);
        let whole = if is_vector(ty) { cx.fresh(RegClass::Int) } else { to };
        self.load_parts(cx, whole, base, access.bytes(), align);
        if is_vector(ty) {
            let is_wide = access.log2_bytes == 3;
            Make::new(v::convert(v::G_FROM_GENERAL, is_wide, is_wide)).def(to).n(whole).push(cx);
        }
    }

    /// A scalar from parts of `align` bytes.
    fn load_parts(&mut self, cx: &mut Cx, to: Reg, base: Reg, size_bytes: i64, align: u32) {
        let part = Access { log2_bytes: align.trailing_zeros(), is_vector: false, is_load: true };
        let mut low = None;
        for offset in (0..size_bytes).step_by(align as usize) {
            let memory = Memory { access: part, displacement: offset, align, count: 1, step: 0 };
            let loaded = cx.fresh(RegClass::Int);
            let word = part.at(offset).expect("parts are near");
            Make::new(word).what(What::Memory(memory)).def(loaded).n(base).push(cx);
            low = Some(match low {
                None => loaded,
                Some(low) => {
                    let is_last = offset + part.bytes() == size_bytes;
                    let joined = if is_last { to } else { cx.fresh(RegClass::Int) };
                    let word = shifted(ORR, Width::X, Shift::Lsl, 8 * offset as u32);
                    Make::new(word).def(joined).n(low).m(loaded).push(cx);
                    joined
                }
            });
        }
    }

    pub fn store(&mut self, cx: &mut Cx, value: VReg, address: &Address, align: u32) {
        let ty = cx.ty(value);
        let access = access(ty, false);
        if !self.strict_alignment || i64::from(align) >= access.bytes() {
            if is_vector(ty) || cx.constant(value) != Some(0) {
                let data = cx.reg(value);
                return self.transfer(cx, data, address, access, align);
            }
            return self.store_zero(cx, address, access);
        }
        let data = cx.reg(value);
        let base = self.pointer(cx, address);
        if ty.lanes() > 1 {
            let word = v::ld1(false, lane_by_align(ty, align), access.log2_bytes == 4);
            return Make::new(word).what(What::Stores).with(data, RD).n(base).push(cx);
        }
        let mut bits = data;
        if is_vector(ty) {
            bits = cx.fresh(RegClass::Int);
            let is_wide = access.log2_bytes == 3;
            Make::new(v::convert(v::G_TO_GENERAL, is_wide, is_wide)).def(bits).n(data).push(cx);
        }
        let part = Access { log2_bytes: align.trailing_zeros(), is_vector: false, is_load: false };
        for offset in (0..access.bytes()).step_by(align as usize) {
            let mut low = bits;
            if offset > 0 {
                low = cx.fresh(RegClass::Int);
                Make::new(shr_imm(false, Width::X, 8 * offset as u32)).def(low).n(bits).push(cx);
            }
            let memory = Memory { access: part, displacement: offset, align, count: 1, step: 0 };
            let word = part.at(offset).expect("parts are near");
            Make::new(word).what(What::Memory(memory)).with(low, RD).n(base).push(cx);
        }
    }

    /// Zero is a register.
    fn store_zero(&mut self, cx: &mut Cx, address: &Address, access: Access) {
        let make = match self.place(cx, address, access) {
            Place::At(base, displacement) if access.at(displacement).is_some() => {
                Make::new(access.at(displacement).expect("it was looked at") | ZERO_OR_SP).n(base)
            }
            Place::At(base, displacement) => {
                let to = cx.fresh(RegClass::Int);
                add_constant(cx, to, base, displacement);
                Make::new(access.at(0).expect("0 is a displacement") | ZERO_OR_SP).n(to)
            }
            Place::Indexed(base, index, is_scaled) => {
                Make::new(access.indexed(Extend::Lsl, is_scaled && access.log2_bytes > 0) | ZERO_OR_SP).n(base).m(index)
            }
        };
        make.what(What::Stores).push(cx);
    }

    pub fn prefetch(&mut self, cx: &mut Cx, address: &Address) {
        let (base, _, displacement) = self.sum(cx, address, false);
        let (base, displacement) = match prefetch(displacement) {
            Some(_) => (base, displacement),
            None => {
                let near = cx.fresh(RegClass::Int);
                add_constant(cx, near, base, displacement);
                (near, 0)
            }
        };
        let word = prefetch(displacement).expect("the displacement fits");
        Make::new(word).what(What::Prefetch).n(base).push(cx);
    }
}

fn with_data(make: Make, data: Reg, is_load: bool) -> Make {
    if is_load { make.def(data) } else { make.with(data, RD) }
}

fn access(ty: Type, is_load: bool) -> Access {
    let bytes = lane_bits(ty) / 8 * u32::from(ty.lanes());
    Access { log2_bytes: bytes.trailing_zeros(), is_vector: is_vector(ty), is_load }
}

/// log₂ of the bytes of lanes by which a vector may be accessed.
fn lane_by_align(ty: Type, align: u32) -> u32 {
    (lane_bits(ty) / 8).min(align).trailing_zeros()
}
