//! Random kernels with constants, loops, branches and slots.

use std::cell::RefCell;

use mcc_kernel::{Address, Builder, Cond, Kernel, Lane, Op, Operand, Type, VReg};
use mcc_support::random::Random;

use crate::case::{Buffer, Case};
use crate::instructions::{Signature, load, size_bytes, storage, store};
use crate::values;

/// Lanes that the input holds of each type.
const INPUT_LANES: usize = 128;
/// Bytes of each output; values are stored at multiples of 64.
const OUTPUT_BYTES: usize = 64 * 64;
/// Regions nest at most this deep.
const MAX_DEPTH: usize = 3;

/// The buffers: one input for each lane type, then one output for each.
fn buffer_of(lane: Lane, is_output: bool) -> usize {
    let index = Lane::ALL.iter().position(|&other| other == lane).expect("every lane is listed");
    if is_output { index + Lane::ALL.len() } else { index }
}

struct Generator<'a> {
    random: Random,
    signatures: &'a [Signature],
    builder: Builder,
    /// The values that are visible.
    pool: Vec<VReg>,
    /// Pointers to the buffers.
    buffers: Vec<VReg>,
    /// Integers from 0 to 7 that are visible: indices of loops.
    indices: Vec<VReg>,
    depth: usize,
}

/// A kernel over the buffers of [`random_case`], made of the operations with these signatures.
pub fn random_kernel(signatures: &[Signature], seed: u64) -> Kernel {
    let mut builder = Builder::new("random", &[Type::Ptr, Type::I64, Type::I64]);
    let table = builder.param(0);
    let buffers = (0..2 * Lane::ALL.len()).map(|index| builder.load_ptr(Address::new(table, 8 * index as i64))).collect();
    let pool = vec![builder.param(1), builder.param(2)];
    let mut generator =
        Generator { random: Random::new(seed), signatures, builder, pool, buffers, indices: Vec::new(), depth: 0 };
    // More than fit the registers of any machine, now and then.
    let size = 4 + generator.random.below(120);
    generator.statements(size);
    generator.finish()
}

/// A random kernel with random inputs.
pub fn random_case(signatures: &[Signature], seed: u64) -> Case {
    let mut random = Random::new(!seed);
    let input = |lane: Lane, random: &mut Random| Buffer {
        bytes: values::lanes(random, lane, INPUT_LANES),
        align_bytes: lane.bytes() as usize,
        lane,
    };
    let mut buffers: Vec<_> = Lane::ALL.iter().map(|&lane| input(lane, &mut random)).collect();
    let output = |lane: Lane| Buffer { bytes: vec![0; OUTPUT_BYTES], align_bytes: lane.bytes() as usize, lane };
    buffers.extend(Lane::ALL.map(output));
    let kernels = vec![random_kernel(signatures, seed)];
    let (begin, end) = (random.below(4) as i64, random.below(9) as i64);
    Case { name: format!("random kernel {seed}"), kernels, data: Vec::new(), buffers, begin, end, expected: None }
}

impl Generator<'_> {
    fn statements(&mut self, count: usize) {
        for _ in 0..count {
            match self.random.below(16) {
                0 if self.depth < MAX_DEPTH => self.counted(),
                1 if self.depth < MAX_DEPTH => self.branch(),
                2 if self.depth < MAX_DEPTH => self.repeated(),
                3 => self.slot(),
                4 | 5 => {
                    let ty = self.some_type();
                    let value = self.load(ty);
                    self.pool.push(value);
                }
                _ => self.operation(),
            }
        }
    }

    fn some_type(&mut self) -> Type {
        self.random.pick(self.signatures).result
    }

    fn operation(&mut self) {
        let signature = loop {
            let signature = self.random.pick(self.signatures).clone();
            // Which NaN it is must not show.
            let shows = signature.op == Op::Bitcast && signature.args[0].lane().is_float();
            if !shows {
                break signature;
            }
        };
        let args: Vec<_> = signature.args.iter().map(|&ty| self.operand(ty)).collect();
        let value = self.builder.inst(signature.result, signature.op, &args);
        self.pool.push(value);
    }

    /// A value of this type: one that there is, a constant, or a loaded one.
    fn operand(&mut self, ty: Type) -> VReg {
        let fitting: Vec<_> = self.pool.iter().copied().filter(|&reg| self.builder.ty(reg) == ty).collect();
        if !fitting.is_empty() && self.random.chance(0.7) {
            // Recent ones more often, so that long chains come about.
            let recent = &fitting[fitting.len().saturating_sub(4)..];
            return *self.random.pick(recent);
        }
        let value = if self.random.chance(0.4) { self.constant(ty) } else { self.load(ty) };
        self.pool.push(value);
        value
    }

    fn constant(&mut self, ty: Type) -> VReg {
        let bits = match ty {
            Type::Data { lane, .. } => values::lane_bits(&mut self.random, lane),
            _ => self.random.below(2) as u64,
        };
        self.builder.constant(ty, bits)
    }

    fn load(&mut self, ty: Type) -> VReg {
        let lane = storage(ty).lane();
        let base = self.buffers[buffer_of(lane, false)];
        let room = INPUT_LANES as i64 * i64::from(lane.bytes()) - size_bytes(ty);
        let mut address = Address::new(base, 0);
        let mut left = room / i64::from(lane.bytes());
        if !self.indices.is_empty() && self.random.chance(0.6) {
            let index = *self.random.pick(&self.indices);
            let scale = self.random.below(3) as i64 + 1;
            address.terms.push((index, scale * i64::from(lane.bytes())));
            left -= 7 * scale;
        }
        address.displacement = self.random.below(left as usize + 1) as i64 * i64::from(lane.bytes());
        load(&mut self.builder, ty, address, lane.bytes())
    }

    /// A value that goes through the frame, part by part or at once.
    fn slot(&mut self) {
        let ty = self.some_type();
        let value = self.operand(ty);
        let slot = self.builder.slot(64, 16);
        let base = self.builder.inst(Type::Ptr, Op::SlotAddr(slot), &[]);
        store(&mut self.builder, value, Address::new(base, 0), 16);
        // Some lanes of it, where the target has that.
        let has_parts = |signature: &&Signature| signature.result == ty && matches!(signature.op, Op::Splice(_));
        if self.signatures.iter().any(|signature| has_parts(&signature)) {
            let [stored, loaded] = [(); 2].map(|()| 1 + self.random.below(usize::from(ty.lanes()) - 1) as u8);
            let other = self.operand(ty);
            self.builder.store_first(other, stored, Address::new(base, 0), 16);
            let some = self.builder.load_first(ty, loaded, Address::new(base, 0), 16);
            self.pool.push(some);
        }
        let back = load(&mut self.builder, ty, Address::new(base, 0), 16);
        self.pool.push(back);
    }

    /// Up to three values that a region is to carry or give.
    fn some_values(&mut self) -> Vec<VReg> {
        (0..self.random.below(4))
            .map(|_| {
                let ty = self.some_type();
                self.operand(ty)
            })
            .collect()
    }

    /// Runs `body` with what is visible now; what it defines is visible in it only.
    fn region<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let (pool, indices) = (self.pool.len(), self.indices.len());
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        self.pool.truncate(pool);
        self.indices.truncate(indices);
        result
    }

    fn counted(&mut self) {
        let init = self.some_values();
        let (from, to) = (self.builder.param(1), self.builder.param(2));
        let begin = if self.random.chance(0.5) { Operand::Const(self.random.below(3) as i64) } else { Operand::Reg(from) };
        let end = if self.random.chance(0.5) { Operand::Const(self.random.below(9) as i64) } else { Operand::Reg(to) };
        let step = 1 + self.random.below(3) as i64;
        let size = 1 + self.random.below(6);
        // The builder is taken out while it calls back.
        let mut builder = std::mem::replace(&mut self.builder, Builder::new("", &[]));
        let results = builder.for_loop(begin, end, step, &init, |builder, index, params| {
            std::mem::swap(&mut self.builder, builder);
            let nexts = self.region(|generator| {
                generator.pool.extend(params);
                generator.pool.push(index);
                generator.indices.push(index);
                generator.statements(size);
                generator.values_like(params)
            });
            std::mem::swap(&mut self.builder, builder);
            nexts
        });
        self.builder = builder;
        self.pool.extend(results);
    }

    /// Values of the same types as these.
    fn values_like(&mut self, regs: &[VReg]) -> Vec<VReg> {
        regs.iter().map(|&reg| self.operand(self.builder.ty(reg))).collect()
    }

    /// Counts down from a small number, so that it ends.
    fn repeated(&mut self) {
        let mut init = vec![self.builder.int(self.random.below(5) as i64)];
        init.extend(self.some_values());
        let size = 1 + self.random.below(4);
        let mut builder = std::mem::replace(&mut self.builder, Builder::new("", &[]));
        let results = builder.while_loop(
            &init,
            |builder, params| {
                let zero = builder.int(0);
                builder.cmp(Cond::Gt, params[0], zero)
            },
            |builder, params| {
                std::mem::swap(&mut self.builder, builder);
                let nexts = self.region(|generator| {
                    generator.pool.extend(params);
                    generator.statements(size);
                    let mut nexts = generator.values_like(params);
                    let one = generator.builder.int(1);
                    nexts[0] = generator.builder.binary(Op::Sub, params[0], one);
                    nexts
                });
                std::mem::swap(&mut self.builder, builder);
                nexts
            },
        );
        self.builder = builder;
        self.pool.extend(results);
    }

    fn branch(&mut self) {
        let cond = self.operand(Type::Mask { bits: 32, lanes: 1 });
        let like = self.some_values();
        let size = 1 + self.random.below(4);
        let mut builder = std::mem::replace(&mut self.builder, Builder::new("", &[]));
        let generator = RefCell::new(&mut *self);
        let side = |builder: &mut Builder| {
            let mut generator = generator.borrow_mut();
            std::mem::swap(&mut generator.builder, builder);
            let values = generator.region(|generator| {
                generator.statements(size);
                generator.values_like(&like)
            });
            std::mem::swap(&mut generator.builder, builder);
            values
        };
        let results = builder.if_else(cond, side, side);
        self.builder = builder;
        self.pool.extend(results);
    }

    /// Stores the last values of the outermost block and returns one of them if there is an `i32`.
    fn finish(mut self) -> Kernel {
        let stored: Vec<_> = self.pool.iter().rev().copied().take(OUTPUT_BYTES / 64).collect();
        for (index, &value) in stored.iter().enumerate() {
            let lane = storage(self.builder.ty(value)).lane();
            let address = Address::new(self.buffers[buffer_of(lane, true)], 64 * index as i64);
            store(&mut self.builder, value, address, lane.bytes());
        }
        let result = stored.into_iter().find(|&reg| self.builder.ty(reg) == Type::I32);
        self.builder.finish(result)
    }
}
