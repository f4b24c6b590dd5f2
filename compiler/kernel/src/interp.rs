//! Runs kernels by interpretation: what machine code must equal, bit for bit.
//!
//! Memory is a set of regions, each with its own range of addresses, so that an access outside of every region, of bytes that
//! were never written, of a constant, or with less alignment than the kernel claims is an error that names the instruction.

mod lanes;
mod memory;
mod prepare;
mod run;

use std::collections::BTreeMap;

pub use memory::{Memory, Pointer};

use crate::ir::{Kernel, Type};
use prepare::Prepared;

/// An argument of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    Ptr(Pointer),
    I32(i32),
    I64(i64),
}

impl Value {
    fn ty(self) -> Type {
        match self {
            Value::Ptr(_) => Type::Ptr,
            Value::I32(_) => Type::I32,
            Value::I64(_) => Type::I64,
        }
    }

    fn bits(self) -> u64 {
        match self {
            Value::Ptr(pointer) => pointer.address(),
            Value::I32(value) => u64::from(value as u32),
            Value::I64(value) => value as u64,
        }
    }
}

/// Functions that may call each other, and the data that they name.
#[derive(Debug)]
pub struct Program<'a> {
    kernels: Vec<Prepared<'a>>,
    by_name: BTreeMap<&'a str, usize>,
    data: BTreeMap<String, Pointer>,
}

impl<'a> Program<'a> {
    /// The kernels must verify.
    pub fn new(kernels: impl IntoIterator<Item = &'a Kernel>) -> Self {
        let kernels: Vec<_> = kernels.into_iter().map(prepare::prepare).collect();
        let by_name = kernels.iter().enumerate().map(|(index, kernel)| (kernel.kernel.name.as_str(), index)).collect();
        Self { kernels, by_name, data: BTreeMap::new() }
    }

    /// Gives the symbol of data its address.
    pub fn define(&mut self, symbol: impl Into<String>, address: Pointer) {
        self.data.insert(symbol.into(), address);
    }

    /// Runs the function with this name; its result, if it has one. The error names the function, the instruction and the fault.
    pub fn run(&self, name: &str, memory: &mut Memory, args: &[Value]) -> Result<Option<i32>, String> {
        let &index = self.by_name.get(name).ok_or_else(|| format!("there is no function @{name}"))?;
        let kernel = self.kernels[index].kernel;
        let expected: Vec<_> = kernel.params.iter().map(|&param| kernel.types[param]).collect();
        let found: Vec<_> = args.iter().map(|arg| arg.ty()).collect();
        if expected != found {
            return Err(format!("kernel @{name} takes {expected:?}, not {found:?}"));
        }
        let args: Vec<_> = args.iter().map(|arg| arg.bits()).collect();
        Ok(run::call(self, index, memory, &args)?.map(|bits| bits as u32 as i32))
    }
}

/// Runs one kernel that calls no other and names no data.
pub fn run(kernel: &Kernel, memory: &mut Memory, args: &[Value]) -> Result<Option<i32>, String> {
    Program::new([kernel]).run(&kernel.name, memory, args)
}
