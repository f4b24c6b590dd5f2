//! Proves an allocation: that every operand finds in its place the register that it names.
//!
//! The allocated program is run symbolically. A place (a physical register or a piece of the frame) holds a set of virtual
//! registers: those whose values are known to be there. Moves copy sets, definitions replace them, jumps rename arguments to
//! parameters, and where paths meet only what all of them know remains. This is repeated until nothing changes, then every use is
//! looked up. Nothing here is asked of the allocator but its output.

use std::collections::BTreeSet;

use regalloc2::{
    Allocation, Edit, Inst as InstIndex, Operand, OperandConstraint, OperandKind, OperandPos, Output, PReg, ProgPoint,
    VReg as Reg,
};

use super::program::{Inst, Program};

/// The registers whose values each place holds: physical registers by their index, then 8 bytes of the frame each.
type State = Vec<Vec<Reg>>;

/// As many as physical registers have indices.
const REGISTERS: usize = PReg::NUM_INDEX;

/// The error names the instruction and the operand.
pub fn check<I>(program: &Program<I>, output: &Output, spill_units: [usize; 3]) -> Result<(), String> {
    Checker { program, output, spill_units }.run()
}

struct Checker<'a, I> {
    program: &'a Program<I>,
    output: &'a Output,
    spill_units: [usize; 3],
}

impl<I> Checker<'_, I> {
    fn run(&self) -> Result<(), String> {
        let count = self.program.blocks.len();
        let mut entries: Vec<Option<State>> = vec![None; count];
        entries[0] = Some(vec![Vec::new(); REGISTERS + self.output.num_spillslots]);
        let mut work: BTreeSet<usize> = [0].into();
        while let Some(block) = work.pop_first() {
            let mut state = entries[block].clone().expect("a block is visited after a predecessor");
            self.block(block, &mut state, false)?;
            let data = &self.program.blocks[block];
            for succ in data.succs.iter().map(|succ| succ.0 as usize) {
                let passed = self.pass(&state, &data.args, &self.program.blocks[succ].params);
                let changed = match &mut entries[succ] {
                    None => {
                        entries[succ] = Some(passed);
                        true
                    }
                    Some(known) => meet(known, &passed),
                };
                if changed {
                    work.insert(succ);
                }
            }
        }
        for (block, entry) in entries.into_iter().enumerate() {
            let mut state = entry.ok_or_else(|| format!("no path leads to block {block}"))?;
            self.block(block, &mut state, true)?;
        }
        Ok(())
    }

    /// Goes through a block; looks uses up where `verify`.
    fn block(&self, block: usize, state: &mut State, verify: bool) -> Result<(), String> {
        let range = self.program.blocks[block].insts.clone();
        let start = ProgPoint::before(InstIndex::new(range.start as usize));
        let mut edits = self.output.edits[self.output.edits.partition_point(|(point, _)| *point < start)..].iter().peekable();
        for inst in range.start as usize..range.end as usize {
            let here = ProgPoint::before(InstIndex::new(inst));
            while let Some((_, Edit::Move { from, to })) = edits.next_if(|(point, _)| *point <= here) {
                let held = state[position(*from)].clone();
                let class = from.as_reg().or(to.as_reg()).ok_or_else(|| format!("a move from {from} to {to}"))?.class();
                self.write(state, *to, held, self.spill_units[class as usize]);
            }
            self.inst(inst, state, verify).map_err(|error| format!("block {block}, instruction {inst}: {error}"))?;
        }
        Ok(())
    }

    fn inst(&self, index: usize, state: &mut State, verify: bool) -> Result<(), String> {
        let inst: &Inst<I> = &self.program.insts[index];
        let operands = self.program.operands(index);
        let places = self.output.inst_allocs(InstIndex::new(index));
        if verify {
            self.uses(operands, places, state)?;
            conflicts(operands, places, inst)?;
        }
        for reg in inst.clobbers {
            state[position(Allocation::reg(reg))].clear();
        }
        for (operand, place) in operands.iter().zip(places).filter(|(operand, _)| operand.kind() == OperandKind::Def) {
            // What other places hold of it is of an earlier round.
            forget(state, operand.vreg());
            self.write(state, *place, vec![operand.vreg()], self.spill_units[operand.class() as usize]);
        }
        Ok(())
    }

    fn uses(&self, operands: &[Operand], places: &[Allocation], state: &State) -> Result<(), String> {
        if operands.len() != places.len() {
            return Err(format!("{} operands have {} places", operands.len(), places.len()));
        }
        for (position, (operand, place)) in operands.iter().zip(places).enumerate() {
            let fits = match operand.constraint() {
                OperandConstraint::Any => place.is_some(),
                OperandConstraint::Reg | OperandConstraint::Limit(_) => place.as_reg().is_some(),
                OperandConstraint::Stack => place.is_stack(),
                OperandConstraint::FixedReg(reg) => place.as_reg() == Some(reg),
                OperandConstraint::Reuse(other) => *place == places[other],
            };
            let class_fits = place.as_reg().is_none_or(|reg| reg.class() == operand.class());
            if !fits || !class_fits {
                return Err(format!("operand {position} ({operand}) is in {place}"));
            }
            let held = &state[self::position(*place)];
            let holds = held.contains(&operand.vreg());
            if operand.kind() == OperandKind::Use && !holds {
                return Err(format!("operand {position} ({operand}) is not in {place}, which holds {held:?}"));
            }
        }
        Ok(())
    }

    /// The state after arguments were passed to parameters.
    fn pass(&self, state: &State, args: &[Reg], params: &[Reg]) -> State {
        if params.is_empty() {
            return state.clone();
        }
        let renamed = state.iter().map(|held| {
            let kept = held.iter().copied().filter(|reg| !params.contains(reg));
            let given = args.iter().zip(params).filter(|(arg, _)| held.contains(arg)).map(|(_, &param)| param);
            kept.chain(given).collect()
        });
        renamed.collect()
    }

    /// Puts values into a place, and destroys what overlaps its `units` in the frame.
    fn write(&self, state: &mut State, to: Allocation, held: Vec<Reg>, units: usize) {
        if to.is_stack() {
            let first = position(to);
            for (unit, place) in state.iter_mut().enumerate().skip(REGISTERS).take(first + units - REGISTERS) {
                let is_over = |reg: &Reg| unit + self.spill_units[reg.class() as usize] > first;
                place.retain(|reg| !is_over(reg));
            }
        }
        state[position(to)] = held;
    }
}

fn position(place: Allocation) -> usize {
    if place.is_stack() { REGISTERS + place.index() } else { place.index() }
}

fn forget(state: &mut State, reg: Reg) {
    for held in state.iter_mut().filter(|held| !held.is_empty()) {
        held.retain(|&other| other != reg);
    }
}

/// Keeps what both know; whether that is less than was known.
fn meet(known: &mut State, other: &State) -> bool {
    let mut changed = false;
    for (held, others) in known.iter_mut().zip(other).filter(|(held, _)| !held.is_empty()) {
        let before = held.len();
        held.retain(|reg| others.contains(reg));
        changed |= held.len() != before;
    }
    changed
}

/// Refuses two operands of one instruction in one place where both must be there at once.
fn conflicts<I>(operands: &[Operand], places: &[Allocation], inst: &Inst<I>) -> Result<(), String> {
    let is_def = |operand: &Operand| operand.kind() == OperandKind::Def;
    for (first, a) in operands.iter().enumerate() {
        for (second, b) in operands.iter().enumerate().filter(|&(second, _)| second != first && places[second] == places[first]) {
            let is_reuse = b.constraint() == OperandConstraint::Reuse(first);
            // A definition that is written early, or a use that is read late, meets the other.
            let clash = match (is_def(a), is_def(b)) {
                (true, true) => true,
                (false, true) => (a.pos() == OperandPos::Late || b.pos() == OperandPos::Early) && !is_reuse,
                _ => false,
            };
            if clash && a.vreg() != b.vreg() {
                return Err(format!("operands {first} ({a}) and {second} ({b}) are both in {}", places[first]));
            }
        }
        let stays = is_def(a) || a.pos() == OperandPos::Late;
        if stays && places[first].as_reg().is_some_and(|reg| inst.clobbers.contains(reg)) {
            return Err(format!("operand {first} ({a}) is in {}, which is destroyed", places[first]));
        }
    }
    Ok(())
}
