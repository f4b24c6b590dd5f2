//! Addresses, loads and stores.
//!
//! Where the CPU is strict about alignment, an access that is not known to be aligned is made of smaller ones.

use cranelift_codegen::ir::{self, Endianness, InstBuilder, MemFlagsData, Value, types};
use mcc_kernel::{Address, Arch, Type, VReg};

use crate::lower::{Lower, clif_type};

fn flags(is_aligned: bool) -> MemFlagsData {
    let flags = MemFlagsData::new().with_notrap().with_endianness(Endianness::Little);
    if is_aligned { flags.with_aligned() } else { flags }
}

impl Lower<'_, '_> {
    /// The address as a value and a displacement that instructions hold.
    fn place(&mut self, address: &Address) -> (Value, i32) {
        let mut place = self.value(address.base);
        for &(reg, scale) in &address.terms {
            let index = self.value(reg);
            let scaled = match scale {
                1 => index,
                scale if scale > 0 && (scale as u64).is_power_of_two() => {
                    let shift = self.builder.ins().iconst(types::I8, i64::from(scale.trailing_zeros()));
                    self.builder.ins().ishl(index, shift)
                }
                scale => {
                    let scale = self.int(scale);
                    self.builder.ins().imul(index, scale)
                }
            };
            place = self.builder.ins().iadd(place, scaled);
        }
        // A vector's last part lies at most 64 bytes after its first.
        match i32::try_from(address.displacement) {
            Ok(displacement) if displacement < i32::MAX - 64 => (place, displacement),
            _ => {
                let displacement = self.int(address.displacement);
                (self.builder.ins().iadd(place, displacement), 0)
            }
        }
    }

    pub fn address(&mut self, address: &Address) -> Value {
        let (place, displacement) = self.place(address);
        if displacement == 0 {
            return place;
        }
        let displacement = self.int(i64::from(displacement));
        self.builder.ins().iadd(place, displacement)
    }

    pub fn load(&mut self, ty: Type, address: &Address, align: u32) -> Value {
        let (place, displacement) = self.place(address);
        let ty = clif_type(ty);
        if align >= ty.bytes() {
            return self.builder.ins().load(ty, flags(true), place, displacement);
        }
        if !self.cpu.strict_alignment {
            // Cranelift makes some loads an operand of the instruction that uses them, which without AVX must be aligned, and checks
            // that for not all instructions. A bitcast between, which is free, keeps them apart.
            let is_kept_apart = ty.is_vector() && self.cpu.arch == Arch::X86_64 && !self.cpu.features.contains("avx");
            let loaded_type = match ty {
                types::I32X4 if is_kept_apart => types::F32X4,
                _ if is_kept_apart => types::I32X4,
                _ => ty,
            };
            let loaded = self.builder.ins().load(loaded_type, flags(false), place, displacement);
            return self.bits_as(ty, loaded);
        }
        if !ty.is_vector() {
            return self.load_parts(ty, place, displacement, align);
        }
        let lane = ty.lane_type();
        let lanes: Vec<_> = (0..ty.lane_count())
            .map(|index| self.load_parts(lane, place, displacement + (index * lane.bytes()) as i32, align))
            .collect();
        self.pack(ty, &lanes)
    }

    /// A scalar from parts of `align` bytes.
    fn load_parts(&mut self, ty: ir::Type, place: Value, displacement: i32, align: u32) -> Value {
        if align >= ty.bytes() {
            return self.builder.ins().load(ty, flags(true), place, displacement);
        }
        let int = ir::Type::int_with_byte_size(ty.bytes() as u16).expect("lanes have the width of an integer");
        let part = ir::Type::int_with_byte_size(align as u16).expect("parts are smaller than a lane");
        let mut value = None;
        for offset in (0..ty.bytes()).step_by(align as usize) {
            let loaded = self.builder.ins().load(part, flags(true), place, displacement + offset as i32);
            let wide = self.builder.ins().uextend(int, loaded);
            value = Some(match value {
                None => wide,
                Some(low) => {
                    let shift = self.builder.ins().iconst(types::I8, i64::from(8 * offset));
                    let high = self.builder.ins().ishl(wide, shift);
                    self.builder.ins().bor(low, high)
                }
            });
        }
        self.bits_as(ty, value.expect("a lane has parts"))
    }

    pub fn store(&mut self, reg: VReg, address: &Address, align: u32) {
        let (place, displacement) = self.place(address);
        let value = self.value(reg);
        let ty = clif_type(self.ty(reg));
        if align >= ty.bytes() || !self.cpu.strict_alignment {
            self.builder.ins().store(flags(align >= ty.bytes()), value, place, displacement);
            return;
        }
        if !ty.is_vector() {
            return self.store_parts(value, ty, place, displacement, align);
        }
        let lane = ty.lane_type();
        for index in 0..ty.lane_count() {
            let part = self.builder.ins().extractlane(value, index as u8);
            self.store_parts(part, lane, place, displacement + (index * lane.bytes()) as i32, align);
        }
    }

    fn store_parts(&mut self, value: Value, ty: ir::Type, place: Value, displacement: i32, align: u32) {
        if align >= ty.bytes() {
            self.builder.ins().store(flags(true), value, place, displacement);
            return;
        }
        let int = ir::Type::int_with_byte_size(ty.bytes() as u16).expect("lanes have the width of an integer");
        let part = ir::Type::int_with_byte_size(align as u16).expect("parts are smaller than a lane");
        let bits = self.bits_as(int, value);
        for offset in (0..ty.bytes()).step_by(align as usize) {
            let shift = self.builder.ins().iconst(types::I8, i64::from(8 * offset));
            let shifted = self.builder.ins().ushr(bits, shift);
            let low = self.builder.ins().ireduce(part, shifted);
            self.builder.ins().store(flags(true), low, place, displacement + offset as i32);
        }
    }

    /// The same bits as another type of the same size.
    pub fn bits_as(&mut self, ty: ir::Type, value: Value) -> Value {
        if self.builder.func.dfg.value_type(value) == ty {
            return value;
        }
        self.builder.ins().bitcast(ty, MemFlagsData::new().with_endianness(Endianness::Little), value)
    }
}
