//! Scalars that lie side by side are loaded at once, each a lane of the vector.
//!
//! Before: four times `ldr s, [x, #4·i]` and `fmla v.4s, v.4s, s.s[0]`. After: `ldr q, [x]` and `fmla v.4s, v.4s, q.s[i]`.

use std::collections::BTreeMap;

use mcc_kernel::mach::{Operand, OperandKind, Reg};

use super::copies::renamed;
use super::memory::{barrier_between, memory_of};
use super::{Body, Item};
use crate::encode::vector as v;
use crate::encode::vector::Shape;
use crate::encode::{Access, RM, RN};
use crate::inst::{Inst, Memory, What};

/// log₂ of the bytes of the scalars.
const SIZE: u32 = 2;

/// Where registers are used: block, item, operand. Arguments of jumps have no item.
type Uses = BTreeMap<Reg, Vec<Option<(usize, usize, usize)>>>;

fn uses(body: &Body) -> Uses {
    let mut uses = Uses::new();
    for (block, items) in body.blocks.iter().enumerate() {
        for (index, item) in items.iter().enumerate() {
            for (position, operand) in item.operands.iter().enumerate().filter(|(_, operand)| operand.kind() == OperandKind::Use)
            {
                uses.entry(operand.vreg()).or_default().push(Some((block, index, position)));
            }
        }
        for &arg in &body.program.blocks[block].args {
            uses.entry(arg).or_default().push(None);
        }
    }
    uses
}

/// The instruction with lane 0 of this operand, a vector of floats of 32 bits, replaced by another.
fn with_lane(inst: &Inst, position: usize, lane: u32) -> Option<Inst> {
    let full = Shape { size: SIZE, is_full: true };
    let field = inst.fields[position];
    let of_lane = |word: u32, lane: u32| v::by_lane(word, full, lane);
    let products = [v::FMLA_LANE, v::FMLS_LANE, v::FMUL_LANE].into_iter().find(|&word| of_lane(word, 0) == inst.word);
    let word = match products {
        Some(word) if field == RM => of_lane(word, lane),
        None if field == RN && inst.word == v::dup(full, 0) => v::dup(full, lane),
        _ => return None,
    };
    Some(Inst { word, ..inst.clone() })
}

/// Scalars of one block that are loaded: displacement to item, by base.
fn loads(items: &[Item]) -> BTreeMap<Reg, BTreeMap<i64, usize>> {
    let mut loads: BTreeMap<Reg, BTreeMap<i64, usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(memory) = memory_of(item)
            && memory.access.is_load
            && memory.access.is_vector
            && (memory.access.log2_bytes, memory.count, memory.step) == (SIZE, 1, 0)
        {
            loads.entry(item.operands[1].vreg()).or_default().entry(memory.displacement).or_insert(index);
        }
    }
    loads
}

pub fn merge_loads(body: &mut Body, strict_alignment: bool) {
    let uses = uses(body);
    for block in 0..body.blocks.len() {
        let mut removed = vec![false; body.blocks[block].len()];
        for (base, places) in loads(&body.blocks[block]) {
            let mut left = places;
            while let Some((&start, _)) = left.first_key_value() {
                let run: Vec<usize> = (0..4).map_while(|lane| left.get(&(start + 4 * lane)).copied()).collect();
                let fits = |run: &[usize]| is_mergeable(body, block, run, &uses, strict_alignment);
                let count = [4, 2].into_iter().find(|&count| run.len() >= count && fits(&run[..count]));
                if let Some(count) = count {
                    merge(body, block, base, start, &run[..count], &uses);
                    let first = *run[..count].iter().min().expect("a run has loads");
                    run[..count].iter().filter(|&&index| index != first).for_each(|&index| removed[index] = true);
                }
                for lane in 0..count.unwrap_or(1) as i64 {
                    left.remove(&(start + 4 * lane));
                }
            }
        }
        let mut index = 0;
        body.blocks[block].retain(|_| {
            index += 1;
            !removed[index - 1]
        });
    }
}

fn is_mergeable(body: &Body, block: usize, run: &[usize], uses: &Uses, strict_alignment: bool) -> bool {
    let items = &body.blocks[block];
    let (first, last) = (*run.iter().min().expect("a run has loads"), *run.iter().max().expect("a run has loads"));
    let Some(memory) = memory_of(&items[run[0]]) else { return false };
    let is_aligned = !strict_alignment || memory.align >= 4 * run.len() as u32;
    if !is_aligned || barrier_between(items, first, last) {
        return false;
    }
    run.iter().all(|&index| {
        let reg = items[index].operands[0].vreg();
        uses.get(&reg).is_some_and(|places| {
            places.iter().all(|place| {
                // In this block only: places in others may have moved.
                let Some((there, item, position)) = *place else { return false };
                let inst = body.blocks[there][item].inst();
                there == block && inst.is_some_and(|inst| with_lane(inst, position, 0).is_some())
            })
        })
    })
}

fn whole_access(memory: Memory, count: usize) -> Access {
    Access { log2_bytes: SIZE + count.trailing_zeros(), ..memory.access }
}

fn merge(body: &mut Body, block: usize, base: Reg, start: i64, run: &[usize], uses: &Uses) {
    let first = *run.iter().min().expect("a run has loads");
    let whole = body.fresh(body.blocks[block][first].operands[0].vreg());
    for (lane, &index) in run.iter().enumerate() {
        let reg = body.blocks[block][index].operands[0].vreg();
        for &(_, item, position) in uses[&reg].iter().flatten() {
            let item = &mut body.blocks[block][item];
            let inst = item.inst().and_then(|inst| with_lane(inst, position, lane as u32)).expect("it was looked at");
            item.set_inst(inst);
            item.operands[position] = renamed(item.operands[position], whole);
        }
    }
    let item = &mut body.blocks[block][first];
    let memory = memory_of(item).expect("it is a load");
    let access = whole_access(memory, run.len());
    let memory = Memory { access, displacement: start, ..memory };
    let word = memory.word().unwrap_or(0);
    item.set_inst(Inst { word, fields: item.inst().expect("it is a load").fields.clone(), what: What::Memory(memory) });
    item.operands = vec![Operand::reg_def(whole), Operand::reg_use(base)];
}
