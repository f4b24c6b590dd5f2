//! What this machine can do: the rates that times of kernels are judged by, measured on the spot.
//!
//! The loops that measure are kernels, compiled as those of models are, in vectors of the target's width.

use std::fs;
use std::time::{Duration, Instant};

use mcc_kernel::{Address, Builder, Cpu, Facts, Kernel, Lane, Op, Operand, Type, VReg};
use mcc_support::{Result, ensure};
use serde_json::{Value, json};

use crate::targets;

use super::exec::{Buffer, Functions};

/// How long one of several measurements of a rate takes at least.
const SLICE: Duration = Duration::from_micros(300);
const SLICES: usize = 5;
/// What is gone through to measure a cache: this part of its capacity, at most so often the capacity of the one before it; all are
/// rounded to powers of two.
const PART: usize = 2;
const TIMES_BEFORE: usize = 6;
/// Registers that what is read is combined in.
const COMBINED: usize = 4;
/// How often the largest cache fits at least in what is gone through to measure the memory.
const BEYOND_CACHES: usize = 2;

/// A level of the memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    pub name: String,
    /// `None` for the memory itself.
    pub capacity_bytes: Option<usize>,
    /// What is gone through to measure it.
    measured_bytes: usize,
}

/// Bytes per second of a level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bandwidth {
    pub read: f64,
    pub write: f64,
    /// Of bytes that are read and bytes that are written together, as many of one as of the other.
    pub copy: f64,
}

impl Bandwidth {
    /// Seconds in which so many bytes are read and written.
    pub fn seconds(&self, read_bytes: f64, written_bytes: f64) -> f64 {
        let both = read_bytes.min(written_bytes);
        2.0 * both / self.copy + (read_bytes - both) / self.read + (written_bytes - both) / self.write
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Rates {
    pub lanes: u32,
    pub vector_registers: u32,
    /// f32 multiply-adds per second.
    pub fma: f64,
    /// The levels that were asked for, in order; the first cache always.
    pub levels: Vec<(Level, Bandwidth)>,
}

impl Rates {
    /// The first level that holds so many bytes.
    pub fn level_of(&self, bytes: usize) -> &(Level, Bandwidth) {
        let holds = |level: &Level| level.capacity_bytes.is_none_or(|capacity| bytes <= capacity);
        self.levels.iter().find(|(level, _)| holds(level)).unwrap_or(&self.levels[self.levels.len() - 1])
    }

    /// Of two measurements of the same levels, the greater rates: something else ran beside the other one.
    pub fn best(self, other: &Rates) -> Rates {
        let level = |((level, a), (_, b)): ((Level, Bandwidth), &(Level, Bandwidth))| {
            let best = Bandwidth { read: a.read.max(b.read), write: a.write.max(b.write), copy: a.copy.max(b.copy) };
            (level, best)
        };
        Rates { fma: self.fma.max(other.fma), levels: self.levels.into_iter().zip(&other.levels).map(level).collect(), ..self }
    }

    pub fn to_json(&self) -> Value {
        let level = |(level, bandwidth): &(Level, Bandwidth)| {
            json!({
                "name": level.name,
                "capacity_bytes": level.capacity_bytes,
                "read_bytes_per_s": bandwidth.read,
                "write_bytes_per_s": bandwidth.write,
                "copy_bytes_per_s": bandwidth.copy,
            })
        };
        json!({
            "lanes": self.lanes,
            "vector_registers": self.vector_registers,
            "fma_per_s": self.fma,
            "levels": self.levels.iter().map(level).collect::<Vec<_>>(),
        })
    }
}

/// Measures rates.
#[derive(Debug)]
pub struct Meter {
    facts: Facts,
    levels: Vec<Level>,
    functions: Functions,
    buffers: Vec<Buffer>,
}

impl Meter {
    pub fn new(cpu: &Cpu) -> Self {
        let (target, _) = targets::target_for(cpu);
        let facts = target.facts(cpu);
        let levels = levels();
        let mut kernels = vec![(multiply_adds(&facts), 4 * facts.vector_bytes as usize)];
        for level in &levels {
            let all = [read(&facts, level), write(&facts, level), copy(&facts, level)];
            kernels.extend(all.map(|kernel| (kernel, level.measured_bytes)));
        }
        let compiled = kernels.into_iter().map(|(kernel, size_bytes)| {
            let code = target.compile(&kernel, cpu);
            (kernel.name, code, vec![size_bytes])
        });
        Self { functions: Functions::load(compiled.collect()), facts, levels, buffers: vec![Buffer::filled(1 << 16, 1)] }
    }

    /// Measures what the levels of these names can do, or all where there are none. It takes a few milliseconds for each cache, and
    /// some tens for the memory.
    pub fn measure(&mut self, names: &[&str]) -> Result<Rates> {
        for name in names {
            let known = self.levels.iter().any(|level| level.name == *name);
            ensure!(known, "there is no level '{name}' of this machine's memory");
        }
        let rounds_of_lanes = f64::from(accumulators(&self.facts) * lanes(&self.facts));
        let fma = rounds_of_lanes / self.seconds_per_round(0, 1);
        let mut measured = Vec::new();
        for (index, level) in self.levels.clone().into_iter().enumerate() {
            if index > 0 && !names.is_empty() && !names.contains(&&*level.name) {
                continue;
            }
            if self.buffers[0].bytes().len() < level.measured_bytes {
                // Not zeros: pages of these may all be one page.
                self.buffers = vec![Buffer::filled(level.measured_bytes, 1)];
            }
            let chunk_bytes = vectors(&self.facts) * self.facts.vector_bytes as usize;
            let pass = (level.measured_bytes / chunk_bytes) as i64;
            let mut rate =
                |kernel: usize, round_bytes: usize| round_bytes as f64 / self.seconds_per_round(3 * index + kernel, pass);
            let (read, write, copy) = (rate(1, chunk_bytes), rate(2, chunk_bytes), rate(3, 2 * chunk_bytes));
            measured.push((level, Bandwidth { read, write, copy }));
        }
        let (lanes, vector_registers) = (lanes(&self.facts), self.facts.vector_registers);
        Ok(Rates { lanes, vector_registers, fma, levels: measured })
    }

    /// The least of several measurements, each of at least so many rounds: what else runs only makes it more.
    fn seconds_per_round(&mut self, kernel: usize, least_rounds: i64) -> f64 {
        let mut time = |rounds: i64| {
            let start = Instant::now();
            self.functions.run(kernel, &mut self.buffers, rounds);
            start.elapsed()
        };
        let mut rounds = least_rounds;
        while time(rounds) < SLICE {
            rounds *= 2;
        }
        (0..SLICES).map(|_| time(rounds).as_secs_f64() / rounds as f64).fold(f64::INFINITY, f64::min)
    }
}

fn lanes(facts: &Facts) -> u32 {
    facts.vector_bytes / Lane::F32.bytes()
}

/// Vectors that a round of a loop over memory moves: with what they are combined in, less than there are registers.
fn vectors(facts: &Facts) -> usize {
    facts.vector_registers as usize / 2
}

/// Enough for the latency of several multiply-adds in each cycle, with registers left for their operands.
fn accumulators(facts: &Facts) -> u32 {
    facts.vector_registers * 3 / 4
}

fn kernel(name: &str, body: impl FnOnce(&mut Builder, VReg, Operand, Operand)) -> Kernel {
    let mut builder = Builder::new(name, &[Type::Ptr, Type::I64, Type::I64]);
    let (table, begin, end) = (builder.param(0), builder.param(1), builder.param(2));
    let buffer = builder.load_ptr(Address::new(table, 0));
    body(&mut builder, buffer, Operand::Reg(begin), Operand::Reg(end));
    builder.finish(None)
}

/// Each round multiplies and adds in every accumulator once.
fn multiply_adds(facts: &Facts) -> Kernel {
    let ty = Type::vector(Lane::F32, lanes(facts) as u8);
    let (vector, align) = (i64::from(facts.vector_bytes), Lane::F32.bytes());
    kernel("multiply_adds", |builder, buffer, begin, end| {
        let [a, b, start] = [0, 1, 2].map(|place| builder.load(ty, Address::new(buffer, place * vector), align));
        let init = vec![start; accumulators(facts) as usize];
        let sums = builder.for_loop(begin, end, 1, &init, |builder, _, sums| {
            let step = |&sum| {
                if facts.fma {
                    return builder.fma(a, b, sum);
                }
                let product = builder.binary(Op::Mul, a, b);
                builder.binary(Op::Add, product, sum)
            };
            sums.iter().map(step).collect()
        });
        let total = sums.into_iter().reduce(|a, b| builder.binary(Op::Add, a, b)).expect("there are accumulators");
        builder.store(total, Address::new(buffer, 3 * vector), align);
    })
}

/// Each round moves the next vectors of a buffer, and after the last the first again: `step` is given their address and the values
/// that it carries. Going round by a mask, not by a loop in a loop, costs no branch that is hard to predict.
fn moves(
    builder: &mut Builder,
    (begin, end): (Operand, Operand),
    (buffer, chunk_bytes, size_bytes): (VReg, usize, usize),
    init: &[VReg],
    mut step: impl FnMut(&mut Builder, &Address, &[VReg]) -> Vec<VReg>,
) -> Vec<VReg> {
    assert!(size_bytes.is_power_of_two() && size_bytes.is_multiple_of(chunk_bytes), "chunks go round a buffer");
    let start = builder.int(0);
    let with_offset: Vec<VReg> = [start].iter().chain(init).copied().collect();
    let results = builder.for_loop(begin, end, 1, &with_offset, |builder, _, carried| {
        let address = Address { base: buffer, terms: vec![(carried[0], 1)], displacement: 0 };
        let next = step(builder, &address, &carried[1..]);
        let chunk = builder.int(chunk_bytes as i64);
        let mask = builder.int(size_bytes as i64 - 1);
        let offset = builder.binary(Op::Add, carried[0], chunk);
        let offset = builder.binary(Op::And, offset, mask);
        [offset].into_iter().chain(next).collect()
    });
    results[1..].to_vec()
}

/// The address of a vector of a chunk.
fn at(chunk: &Address, offset_bytes: usize) -> Address {
    Address { displacement: chunk.displacement + offset_bytes as i64, ..chunk.clone() }
}

/// What is read is combined by an operation of no latency to speak of.
fn read(facts: &Facts, level: &Level) -> Kernel {
    let ty = Type::vector(Lane::I32, lanes(facts) as u8);
    let (vector, align) = (facts.vector_bytes as usize, Lane::I32.bytes());
    kernel(&format!("read_{}", level.name), |builder, buffer, begin, end| {
        let start = builder.load(ty, Address::new(buffer, 0), align);
        let chunks = (buffer, vectors(facts) * vector, level.measured_bytes);
        let all = moves(builder, (begin, end), chunks, &[start; COMBINED], |builder, chunk, bits| {
            let mut bits = bits.to_vec();
            for place in 0..vectors(facts) {
                let value = builder.load(ty, at(chunk, place * vector), align);
                let into = &mut bits[place % COMBINED];
                *into = builder.binary(Op::Or, *into, value);
            }
            bits
        });
        let total = all.into_iter().reduce(|a, b| builder.binary(Op::Or, a, b)).expect("something is read");
        builder.store(total, Address::new(buffer, 0), align);
    })
}

fn write(facts: &Facts, level: &Level) -> Kernel {
    let ty = Type::vector(Lane::F32, lanes(facts) as u8);
    let (vector, align) = (facts.vector_bytes as usize, Lane::F32.bytes());
    kernel(&format!("write_{}", level.name), |builder, buffer, begin, end| {
        let value = builder.load(ty, Address::new(buffer, 0), align);
        let chunks = (buffer, vectors(facts) * vector, level.measured_bytes);
        moves(builder, (begin, end), chunks, &[], |builder, chunk, _| {
            for place in 0..vectors(facts) {
                builder.store(value, at(chunk, place * vector), align);
            }
            Vec::new()
        });
    })
}

/// Copies the first half of the buffer to the second.
fn copy(facts: &Facts, level: &Level) -> Kernel {
    let ty = Type::vector(Lane::F32, lanes(facts) as u8);
    let (vector, align) = (facts.vector_bytes as usize, Lane::F32.bytes());
    kernel(&format!("copy_{}", level.name), |builder, buffer, begin, end| {
        let half_bytes = level.measured_bytes / 2;
        moves(builder, (begin, end), (buffer, vectors(facts) * vector, half_bytes), &[], |builder, chunk, _| {
            for place in 0..vectors(facts) {
                let value = builder.load(ty, at(chunk, place * vector), align);
                builder.store(value, at(chunk, half_bytes + place * vector), align);
            }
            Vec::new()
        });
    })
}

/// The caches of this machine, where it tells of them, and its memory.
fn levels() -> Vec<Level> {
    let told = (0..8).filter_map(|index| cache(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}")));
    let mut caches: Vec<(usize, usize)> = told.collect();
    if caches.is_empty() {
        caches = vec![(1, 32 << 10), (2, 1 << 20), (3, 8 << 20)];
    }
    caches.sort_unstable();
    let largest = caches.iter().map(|(_, bytes)| *bytes).max().expect("there are caches");
    let mut levels: Vec<Level> = Vec::new();
    for (number, bytes) in caches {
        // A large cache is not one core's alone.
        let before = levels.last().and_then(|level| level.capacity_bytes).map_or(usize::MAX, |before| TIMES_BEFORE * before);
        let measured_bytes = 1 << (bytes / PART).min(before).ilog2();
        levels.push(Level { name: format!("L{number}"), capacity_bytes: Some(bytes), measured_bytes });
    }
    levels.push(Level {
        name: "memory".to_string(),
        capacity_bytes: None,
        measured_bytes: (BEYOND_CACHES * largest).next_power_of_two(),
    });
    levels
}

/// Number and bytes of a cache for data.
fn cache(folder: &str) -> Option<(usize, usize)> {
    let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
    let is_data = read("type")?.trim() != "Instruction";
    let level = read("level")?.trim().parse().ok()?;
    let size = read("size")?;
    let (digits, unit) = size.trim().split_at(size.trim().find(|c: char| !c.is_ascii_digit())?);
    let bytes = digits.parse::<usize>().ok()? << if unit == "K" { 10 } else { 20 };
    is_data.then_some((level, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::targets::Machine;

    #[test]
    fn rates_are_of_the_levels_asked_for() {
        let cpu = Machine::new("host", None).unwrap().cpu;
        let mut meter = Meter::new(&cpu);
        let rates = meter.measure(&["L2"]).unwrap();
        let names: Vec<&str> = rates.levels.iter().map(|(level, _)| &*level.name).collect();
        assert_eq!(names, ["L1", "L2"]);
        assert!(rates.fma > 0.0 && rates.levels.iter().all(|(_, rate)| rate.read > 0.0 && rate.write > 0.0 && rate.copy > 0.0));
        assert_eq!(rates.level_of(1).0.name, "L1");
        assert_eq!(rates.level_of(usize::MAX).0.name, "L2");
        assert!(meter.measure(&["L9"]).is_err());
    }

    #[test]
    fn kernels_keep_to_the_facts_and_go_through_whole_buffers() {
        let cpu = Machine::new("host", None).unwrap().cpu;
        let facts = targets::target_for(&cpu).0.facts(&cpu);
        for level in levels() {
            assert_eq!(level.measured_bytes % (2 * vectors(&facts) * facts.vector_bytes as usize), 0, "{}", level.name);
            for kernel in [multiply_adds(&facts), read(&facts, &level), write(&facts, &level), copy(&facts, &level)] {
                mcc_kernel::verify::verify(&kernel, Some(&facts)).unwrap();
            }
        }
    }

    #[test]
    fn the_best_of_two_measurements_is_that_of_each_rate() {
        let level = Level { name: "L1".into(), capacity_bytes: Some(8), measured_bytes: 4 };
        let rates = |fma: f64, read: f64, copy: f64| {
            let bandwidth = Bandwidth { read, write: 1.0, copy };
            Rates { lanes: 4, vector_registers: 16, fma, levels: vec![(level.clone(), bandwidth)] }
        };
        assert_eq!(rates(1.0, 5.0, 2.0).best(&rates(3.0, 4.0, 6.0)), rates(3.0, 5.0, 6.0));
    }

    #[test]
    fn bytes_that_are_copied_take_the_rate_of_copies() {
        let bandwidth = Bandwidth { read: 4.0, write: 2.0, copy: 3.0 };
        assert_eq!(bandwidth.seconds(12.0, 0.0), 3.0);
        assert_eq!(bandwidth.seconds(0.0, 12.0), 6.0);
        assert_eq!(bandwidth.seconds(9.0, 3.0), 2.0 + 1.5);
    }
}
