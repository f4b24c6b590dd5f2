//! Runs a program as it stands: every statement in order, axis modes ignored. What compiled code must give, up to the order of
//! reductions.
//!
//! Memory that nobody wrote is poison, and so is what a load outside of its buffer gives. Poison passes through operations (not
//! through an arm of a select that is not chosen); using it in a store, a variable or a condition is an error, and so is a store
//! outside of its buffer. Local buffers are poisoned anew in each round of the loop around their uses.

mod compile;
#[cfg(test)]
mod tests;

use mcc_support::{EntityMap, Error, Result, Tensor, TensorType, ensure};

use super::regions::Item;
use super::{BufferId, Kernel, Program, RegionKind, Role, primitive, scalar};
use compile::{Block, Code, Inst, Node, Place};

/// The outputs of a program, whose inputs are given in its order.
pub fn run(program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    run_with_status(program, inputs).map(|(outputs, _)| outputs)
}

/// The outputs and the status, 0 where all is well.
pub fn run_with_status(program: &Program, inputs: &[Tensor]) -> Result<(Vec<Tensor>, u32)> {
    ensure!(inputs.len() == program.inputs.len(), "{} inputs where the program has {}", inputs.len(), program.inputs.len());
    let mut memory: EntityMap<BufferId, Memory> = EntityMap::new();
    for buffer in program.buffers.values() {
        let tensor = match &buffer.role {
            Role::Input(place) => Some(&inputs[*place]),
            Role::Constant(tensor) => Some(tensor),
            Role::Output(_) | Role::Temporary | Role::Shared | Role::Local | Role::Status => None,
        };
        if let Some(tensor) = tensor {
            ensure!(*tensor.ty() == buffer.ty, "@{} is a {}, not a {}", buffer.name, buffer.ty, tensor.ty());
        }
        memory.push(Memory::new(&buffer.ty, tensor));
    }
    run_items(program, &program.items(), &mut memory)?;
    let outputs = program.outputs.iter().map(|&(_, buffer)| memory[buffer].tensor(program, buffer));
    // What was not stored is 0.
    let status = program.buffers.iter().find(|(_, buffer)| buffer.role == Role::Status);
    let status = status.map_or(0, |(id, _)| memory[id].values[0] as u32);
    Ok((outputs.collect::<Result<_>>()?, status))
}

fn run_items(program: &Program, items: &[Item], memory: &mut EntityMap<BufferId, Memory>) -> Result<()> {
    for item in items {
        match item {
            Item::Kernel(place) => {
                let kernel = &program.kernels[*place];
                run_kernel(program, kernel, memory).map_err(|error| error.context(format!("in kernel {}", kernel.name)))?;
            }
            Item::Region(region, items) => {
                let kind = program.regions[*region].kind;
                let holds = |memory: &EntityMap<BufferId, Memory>| -> Result<bool> {
                    let condition = kind.condition();
                    let name = &program.buffers[condition].name;
                    ensure!(memory[condition].is_defined(0), "the condition @{name} is tested before it is written");
                    Ok(memory[condition].values[0] != 0)
                };
                match kind {
                    RegionKind::Loop { .. } => {
                        while holds(memory)? {
                            run_items(program, items, memory)?;
                        }
                    }
                    RegionKind::Branch { taken, .. } => {
                        if holds(memory)? == taken {
                            run_items(program, items, memory)?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The elements of a buffer, each as bits in a word.
struct Memory {
    values: Vec<u64>,
    /// In which epoch each element was written; `None` where all are given.
    written: Option<Vec<u32>>,
    epoch: u32,
}

impl Memory {
    fn new(ty: &TensorType, tensor: Option<&Tensor>) -> Self {
        let count = ty.shape.count();
        let mut values = vec![0; count];
        if let Some(tensor) = tensor {
            scalar::read(tensor, 0, &mut values);
        }
        Self { values, written: tensor.is_none().then(|| vec![0; count]), epoch: 1 }
    }

    fn is_defined(&self, at: usize) -> bool {
        self.written.as_ref().is_none_or(|written| written[at] == self.epoch)
    }

    fn tensor(&self, program: &Program, id: BufferId) -> Result<Tensor> {
        let buffer = &program.buffers[id];
        if let Some(at) = (0..self.values.len()).find(|&at| !self.is_defined(at)) {
            return Err(Error::new(format!("element {at} of output @{} is never written", buffer.name)));
        }
        let mut data = Vec::with_capacity(buffer.ty.size_bytes());
        scalar::write(buffer.ty.dtype, &self.values, &mut data);
        Ok(Tensor::new(buffer.ty.clone(), data))
    }
}

/// Why a value is poison, in place of 0: a variable that was not set, or the load with this number less 2.
const UNSET: u32 = 1;

struct State<'a> {
    code: &'a Code,
    program: &'a Program,
    memory: &'a mut EntityMap<BufferId, Memory>,
    registers: Vec<u64>,
    poison: Vec<u32>,
    /// Of each load, the flat element that was not defined, or the index that was outside.
    faults: Vec<Option<String>>,
}

fn run_kernel(program: &Program, kernel: &Kernel, memory: &mut EntityMap<BufferId, Memory>) -> Result<()> {
    let code = compile::compile(program, kernel);
    let mut state = State {
        registers: vec![0; code.registers],
        poison: vec![0; code.registers],
        faults: vec![None; code.loads.len()],
        program,
        memory,
        code: &code,
    };
    code.constants.iter().for_each(|&(register, bits)| state.registers[register] = bits);
    code.vars.iter().for_each(|&register| state.poison[register] = UNSET);
    state.block(&code.body)
}

impl State<'_> {
    fn block(&mut self, block: &Block) -> Result<()> {
        for &buffer in &block.fresh {
            self.memory[buffer].epoch += 1;
        }
        self.instructions(&block.prelude);
        block.nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        match node {
            Node::Loop { register, extent, body } => {
                for round in 0..*extent {
                    self.registers[*register] = round;
                    self.block(body)?;
                }
            }
            Node::Set { code, register, value } => {
                self.instructions(code);
                self.check(*value, "a variable is set")?;
                self.registers[*register] = self.registers[*value];
                self.poison[*register] = 0;
            }
            Node::Store { code, place, value, guard } => {
                self.instructions(code);
                if let Some(guard) = guard {
                    self.check(*guard, "a guard is tested")?;
                    if self.registers[*guard] == 0 {
                        return Ok(());
                    }
                }
                self.store(place, *value)?;
            }
            Node::If { code, cond, then, otherwise } => {
                self.instructions(code);
                self.check(*cond, "a condition is tested")?;
                self.block(if self.registers[*cond] != 0 { then } else { otherwise })?;
            }
            Node::While { code, cond, body } => loop {
                self.instructions(code);
                self.check(*cond, "a condition is tested")?;
                if self.registers[*cond] == 0 {
                    break;
                }
                self.block(body)?;
            },
        }
        Ok(())
    }

    /// An error where a register is poison.
    fn check(&self, register: usize, use_: &str) -> Result<()> {
        match self.poison[register] {
            0 => Ok(()),
            UNSET => Err(Error::new(format!("{use_} from a variable that was not set"))),
            load => {
                let load = load as usize - 2;
                let name = &self.program.buffers[self.code.loads[load].place.buffer].name;
                let fault = self.faults[load].as_deref().expect("a poisoned load has a fault");
                Err(Error::new(format!("{use_} from a load of @{name}, {fault}")))
            }
        }
    }

    /// The flat element at a place: `Err` with the poison of an index, `Ok(None)` outside.
    fn offset(&self, place: &Place) -> Result<Option<usize>, u32> {
        let mut offset = 0;
        for &(register, extent, stride) in &place.index {
            if self.poison[register] != 0 {
                return Err(self.poison[register]);
            }
            let at = self.registers[register];
            if at >= extent {
                return Ok(None);
            }
            offset += at as usize * stride;
        }
        Ok(Some(offset))
    }

    fn index_text(&self, place: &Place) -> String {
        let index: Vec<String> =
            place.index.iter().map(|&(register, ..)| (self.registers[register] as i64).to_string()).collect();
        format!("[{}]", index.join(", "))
    }

    fn store(&mut self, place: &Place, value: usize) -> Result<()> {
        self.check(value, "a value is stored")?;
        for &(register, ..) in &place.index {
            self.check(register, "a store is indexed")?;
        }
        let Ok(Some(offset)) = self.offset(place) else {
            let Place { buffer, .. } = place;
            let name = &self.program.buffers[*buffer].name;
            return Err(Error::new(format!("a store at {} is outside of @{name}", self.index_text(place))));
        };
        let memory = &mut self.memory[place.buffer];
        memory.values[offset] = self.registers[value];
        match &mut memory.written {
            Some(written) => written[offset] = memory.epoch,
            None => return Err(Error::new(format!("a store to @{}, which is given", self.program.buffers[place.buffer].name))),
        }
        Ok(())
    }

    fn instructions(&mut self, code: &[Inst]) {
        for inst in code {
            match *inst {
                Inst::Unary { function, to, a } => {
                    self.registers[to] = function(self.registers[a]);
                    self.poison[to] = self.poison[a];
                }
                Inst::Binary { function, to, a, b } => {
                    self.registers[to] = function(self.registers[a], self.registers[b]);
                    self.poison[to] = self.poison[a].max(self.poison[b]);
                }
                Inst::Fma { to, operands } => {
                    let [a, b, c] = operands.map(|operand| self.registers[operand]);
                    self.registers[to] = primitive::fma(a, b, c);
                    self.poison[to] = operands.iter().fold(0, |poison, &operand| poison.max(self.poison[operand]));
                }
                Inst::Select { to, cond, a, b } => {
                    let chosen = if self.registers[cond] != 0 { a } else { b };
                    self.registers[to] = self.registers[chosen];
                    self.poison[to] = self.poison[cond].max(self.poison[chosen]);
                }
                Inst::Copy { to, a } => {
                    self.registers[to] = self.registers[a];
                    self.poison[to] = self.poison[a];
                }
                Inst::Load { to, load } => self.load(to, load),
            }
        }
    }

    fn load(&mut self, to: usize, load: usize) {
        let site = &self.code.loads[load];
        let poison = load as u32 + 2;
        match self.offset(&site.place) {
            Err(cause) => self.poison[to] = cause,
            Ok(Some(offset)) => {
                let memory = &self.memory[site.place.buffer];
                self.registers[to] = memory.values[offset];
                self.poison[to] = 0;
                if !memory.is_defined(offset) {
                    self.poison[to] = poison;
                    self.faults[load] = Some(format!("whose element {} was not written", self.index_text(&site.place)));
                }
            }
            Ok(None) => match site.otherwise {
                Some(otherwise) => {
                    self.registers[to] = self.registers[otherwise];
                    self.poison[to] = self.poison[otherwise];
                }
                None => {
                    self.poison[to] = poison;
                    self.faults[load] = Some(format!("which has no element {}", self.index_text(&site.place)));
                }
            },
        }
    }
}
