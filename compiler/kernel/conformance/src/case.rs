//! A function with its inputs, and what it makes of them.

use mcc_kernel::interp::{Memory, Program, Value};
use mcc_kernel::{Facts, Kernel, Lane, text, verify};

/// Memory that a case's kernel is given.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub bytes: Vec<u8>,
    /// Its address is a multiple of this and of no greater power of two.
    pub align_bytes: usize,
    /// What it holds afterwards: for floats, every NaN is as good as another.
    pub lane: Lane,
}

/// A run of a kernel `(args: ptr, begin: i64, end: i64)`.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// The first is run; it may call the others.
    pub kernels: Vec<Kernel>,
    /// Symbols of constant data.
    pub data: Vec<(String, Vec<u8>)>,
    pub buffers: Vec<Buffer>,
    pub begin: i64,
    pub end: i64,
    /// What is known of the outcome beforehand.
    pub expected: Option<Outcome>,
}

/// What a run returned, 0 for a kernel without a result, and what its buffers hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub status: i32,
    pub buffers: Vec<Vec<u8>>,
}

impl Case {
    /// What the interpreter says; panics where a kernel does not verify or a run fails, or where another outcome was expected.
    pub(crate) fn interpret(&self, facts: &Facts) -> Outcome {
        for kernel in &self.kernels {
            verify::verify(kernel, Some(facts)).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.name, text::print(kernel)));
        }
        let outcome = self.run_interpreter().unwrap_or_else(|error| panic!("{}: {error}\n{}", self.name, self.text()));
        if let Some(fault) = self.expected.as_ref().and_then(|expected| self.compare(expected, &outcome)) {
            panic!("the interpreter: {fault}");
        }
        outcome
    }

    fn run_interpreter(&self) -> Result<Outcome, String> {
        let mut memory = Memory::new();
        let mut program = Program::new(&self.kernels);
        for (symbol, bytes) in &self.data {
            let pointer = memory.alloc_from(bytes, 64);
            memory.protect(pointer);
            program.define(symbol.clone(), pointer);
        }
        let buffers: Vec<_> = self.buffers.iter().map(|buffer| memory.alloc_from(&buffer.bytes, buffer.align_bytes)).collect();
        let table = memory.alloc(8 * buffers.len().max(1), 8);
        for (index, &buffer) in buffers.iter().enumerate() {
            memory.write_pointer(table.offset(8 * index as i64), buffer)?;
        }
        let args = [Value::Ptr(table), Value::I64(self.begin), Value::I64(self.end)];
        let status = program.run(&self.kernels[0].name, &mut memory, &args)?.unwrap_or(0);
        let read = |(&pointer, buffer): (_, &Buffer)| memory.read(pointer, buffer.bytes.len()).map(<[u8]>::to_vec);
        Ok(Outcome { status, buffers: buffers.iter().zip(&self.buffers).map(read).collect::<Result<_, _>>()? })
    }

    fn text(&self) -> String {
        self.kernels.iter().map(text::print).collect()
    }

    /// How two outcomes differ.
    pub(crate) fn compare(&self, expected: &Outcome, found: &Outcome) -> Option<String> {
        if expected.status != found.status {
            return Some(format!("{}: returned {}, not {}\n{}", self.name, found.status, expected.status, self.text()));
        }
        self.buffers.iter().enumerate().find_map(|(index, buffer)| {
            let size = buffer.lane.bytes() as usize;
            let pairs = expected.buffers[index].chunks(size).zip(found.buffers[index].chunks(size));
            let differs = |(a, b): (&[u8], &[u8])| a != b && !(is_nan(buffer.lane, a) && is_nan(buffer.lane, b));
            let at = pairs.clone().position(differs)?;
            let [a, b] = [&expected.buffers[index], &found.buffers[index]].map(|bytes| hex(&bytes[at * size..(at + 1) * size]));
            let place = format!("lane {at} ({}) of buffer {index}", buffer.lane.name());
            let inputs: Vec<_> = self
                .buffers
                .iter()
                .map(|buffer| {
                    let size = buffer.lane.bytes() as usize;
                    buffer.bytes.get(at * size..(at + 1) * size).map_or_else(|| "-".to_string(), hex)
                })
                .collect();
            let inputs = inputs.join(" ");
            Some(format!("{}: {place} is {b}, not {a}; the buffers held {inputs} there\n{}", self.name, self.text()))
        })
    }
}

fn is_nan(lane: Lane, bytes: &[u8]) -> bool {
    match lane {
        Lane::F32 => bytes.try_into().is_ok_and(|bytes| f32::from_le_bytes(bytes).is_nan()),
        Lane::F64 => bytes.try_into().is_ok_and(|bytes| f64::from_le_bytes(bytes).is_nan()),
        _ => false,
    }
}

/// A little-endian number in the order in which numbers are written.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect()
}
