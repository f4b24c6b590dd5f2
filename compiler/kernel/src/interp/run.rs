//! Runs prepared kernels.

use super::Program;
use super::memory::{Memory, Pointer};
use super::prepare::{Access, Bound, Place, Prepared, Step};
use crate::ir::{Block, Node, Op, VReg};
use crate::text;

/// Calls nest at most this deep.
const MAX_DEPTH: usize = 64;

/// Runs the function with this index in the program.
pub(super) fn call(program: &Program, index: usize, memory: &mut Memory, args: &[u64]) -> Result<Option<u64>, String> {
    call_nested(program, index, memory, args, 0)
}

fn call_nested(program: &Program, index: usize, memory: &mut Memory, args: &[u64], depth: usize) -> Result<Option<u64>, String> {
    let prepared = &program.kernels[index];
    let name = &prepared.kernel.name;
    if depth == MAX_DEPTH {
        return Err(format!("kernel @{name}: calls nest too deeply"));
    }
    if args.len() != prepared.params.len() {
        return Err(format!("kernel @{name} takes {} arguments, not {}", prepared.params.len(), args.len()));
    }
    let mut frame = vec![0; prepared.frame_lanes];
    for (&place, &arg) in prepared.params.iter().zip(args) {
        frame[place] = arg;
    }
    let outer = memory.count();
    let slots =
        prepared.kernel.slots.iter().map(|slot| memory.alloc(slot.size_bytes as usize, slot.align_bytes as usize)).collect();
    let mut machine = Machine { program, prepared, frame, slots, depth, scratch: Vec::new() };
    let mut position = 0;
    while let Some(step) = prepared.steps.get(position) {
        position = machine.step(step, position, memory).map_err(|error| {
            let instruction = prepared.instructions[position];
            format!("kernel @{name}: {}: {error}", describe(prepared, step, instruction))
        })?;
    }
    memory.truncate(outer);
    Ok(prepared.result.map(|place| machine.frame[place]))
}

/// The text of the instruction that a step is of.
fn describe(prepared: &Prepared, step: &Step, instruction: usize) -> String {
    if matches!(step, Step::Advance { .. }) {
        return "a loop's index".to_string();
    }
    let mut count = 0;
    match find(&prepared.kernel.body, instruction, &mut count) {
        Some((result, op, args)) => text::instruction(&prepared.kernel.types, result, op, args),
        None => "the end".to_string(),
    }
}

fn find<'a>(block: &'a Block, wanted: usize, count: &mut usize) -> Option<(Option<VReg>, &'a Op, &'a [VReg])> {
    block.iter().find_map(|node| match node {
        Node::Inst { result, op, args } => {
            *count += 1;
            (*count == wanted + 1).then_some((*result, op, args.as_slice()))
        }
        Node::Loop(node) => find(&node.body, wanted, count),
        Node::While(node) => find(&node.test, wanted, count).or_else(|| find(&node.body, wanted, count)),
        Node::If(node) => find(&node.then, wanted, count).or_else(|| find(&node.otherwise, wanted, count)),
    })
}

struct Machine<'a, 'k> {
    program: &'a Program<'k>,
    prepared: &'a Prepared<'k>,
    frame: Vec<u64>,
    slots: Vec<Pointer>,
    depth: usize,
    /// Lanes on their way, for moves that happen at once.
    scratch: Vec<u64>,
}

impl Machine<'_, '_> {
    /// Takes a step; returns the position of the next.
    fn step(&mut self, step: &Step, position: usize, memory: &mut Memory) -> Result<usize, String> {
        let frame = &mut self.frame;
        match step {
            Step::Const { to, lanes, bits } => frame[*to..to + lanes].fill(*bits),
            Step::Unary { function, to, lanes, bits, a } => {
                for lane in 0..*lanes {
                    frame[to + lane] = super::lanes::low_bits(function(frame[a.first + lane * a.step]), *bits);
                }
            }
            Step::Binary { function, to, lanes, a, b } => {
                for lane in 0..*lanes {
                    frame[to + lane] = function(frame[a.first + lane * a.step], frame[b.first + lane * b.step]);
                }
            }
            Step::Ternary { function, to, lanes, a, b, c } => {
                for lane in 0..*lanes {
                    let [a, b, c] = [a, b, c].map(|operand| frame[operand.first + lane * operand.step]);
                    frame[to + lane] = function(a, b, c);
                }
            }
            Step::Move(moves) => self.move_all(moves),
            Step::Lea { to, access } => self.frame[*to] = self.address(access),
            Step::Load { to, lanes, lane_bytes, access } => self.load(*to, *lanes, *lane_bytes, access, memory)?,
            Step::Store { from, lanes, lane_bytes, access } => self.store(*from, *lanes, *lane_bytes, access, memory)?,
            Step::SlotAddr { to, slot } => self.frame[*to] = self.slots[*slot].address(),
            Step::SymbolAddr { to, symbol } => self.frame[*to] = self.symbol(*symbol)?.address(),
            Step::Call { symbol, args, to } => {
                let callee = self.symbol(*symbol)?;
                self.call(callee, args, *to, memory)?;
            }
            Step::CallPtr { function, args, to } => {
                let callee = Pointer::NULL.offset(frame[*function] as i64);
                self.call(callee, args, *to, memory)?;
            }
            Step::Jump(target) => return Ok(*target),
            Step::JumpUnless { cond, target } => {
                if frame[*cond] == 0 {
                    return Ok(*target);
                }
            }
            Step::JumpFrom { index, end, target } => {
                let end = match *end {
                    Bound::Const(end) => end,
                    Bound::Place(place) => frame[place] as i64,
                };
                if frame[*index] as i64 >= end {
                    return Ok(*target);
                }
            }
            Step::Advance { index, step } => {
                let next = (frame[*index] as i64).checked_add(*step);
                frame[*index] = next.ok_or("the index overflows")? as u64;
            }
        }
        Ok(position + 1)
    }

    fn move_all(&mut self, moves: &[(Place, Place, usize)]) {
        if let [(to, from, lanes)] = *moves {
            self.frame.copy_within(from..from + lanes, to);
            return;
        }
        self.scratch.clear();
        for &(_, from, lanes) in moves {
            self.scratch.extend_from_slice(&self.frame[from..from + lanes]);
        }
        let mut taken = 0;
        for &(to, _, lanes) in moves {
            self.frame[to..to + lanes].copy_from_slice(&self.scratch[taken..taken + lanes]);
            taken += lanes;
        }
    }

    fn address(&self, access: &Access) -> u64 {
        let start = self.frame[access.base].wrapping_add_signed(access.displacement);
        let terms = access.terms.iter();
        terms.fold(start, |sum, &(place, scale)| sum.wrapping_add(self.frame[place].wrapping_mul(scale as u64)))
    }

    fn aligned(&self, access: &Access) -> Result<u64, String> {
        let address = self.address(access);
        match address.is_multiple_of(u64::from(access.align)) {
            true => Ok(address),
            false => Err(format!("the address {address:#x} is not a multiple of {}", access.align)),
        }
    }

    fn load(&mut self, to: Place, lanes: usize, lane_bytes: usize, access: &Access, memory: &Memory) -> Result<(), String> {
        let address = self.aligned(access)?;
        let bytes = memory.read(Pointer::NULL.offset(address as i64), lanes * lane_bytes)?;
        for (place, lane) in self.frame[to..to + lanes].iter_mut().zip(bytes.chunks_exact(lane_bytes)) {
            let mut bits = [0; 8];
            bits[..lane_bytes].copy_from_slice(lane);
            *place = u64::from_le_bytes(bits);
        }
        Ok(())
    }

    fn store(&self, from: Place, lanes: usize, lane_bytes: usize, access: &Access, memory: &mut Memory) -> Result<(), String> {
        let address = self.aligned(access)?;
        let bytes = memory.write_place(address, lanes * lane_bytes)?;
        for (lane, bits) in bytes.chunks_exact_mut(lane_bytes).zip(&self.frame[from..from + lanes]) {
            lane.copy_from_slice(&bits.to_le_bytes()[..lane_bytes]);
        }
        Ok(())
    }

    fn symbol(&self, symbol: usize) -> Result<Pointer, String> {
        let name = self.prepared.symbols[symbol].as_str();
        let function = self.program.by_name.get(name).map(|&index| Pointer::function(index));
        let data = || self.program.data.get(name).copied();
        function.or_else(data).ok_or_else(|| format!("the symbol @{name} is not defined"))
    }

    fn call(&mut self, callee: Pointer, args: &[Place], to: Option<Place>, memory: &mut Memory) -> Result<(), String> {
        let index = callee.as_function().filter(|&index| index < self.program.kernels.len());
        let index = index.ok_or_else(|| format!("{:#x} is not the address of a function", callee.address()))?;
        let args: Vec<_> = args.iter().map(|&place| self.frame[place]).collect();
        let result = call_nested(self.program, index, memory, &args, self.depth + 1)?;
        if let Some(to) = to {
            self.frame[to] = result.ok_or("the function that is called gives nothing")?;
        }
        Ok(())
    }
}
