//! How many registers the values of a loop take.

use std::collections::BTreeSet;

use regalloc2::RegClass;

use super::analysis::{has_effect, reads};
use super::context::Context;
use crate::ir::{Block, Carried, Node, Op, VReg};

impl<I> Context<'_, I> {
    /// Values of a class that are in registers at once in a loop without loops in it, at most: what comes from around it all the
    /// time, and no constants, which may come from elsewhere, nor what is loaded for one use.
    pub(super) fn most_live(&self, body: &[&Block], carried: &[&Carried], class: RegClass) -> usize {
        let mut defined: BTreeSet<VReg> = carried.iter().map(|one| one.param).collect();
        let mut read: BTreeSet<VReg> = BTreeSet::new();
        for node in insts(body) {
            defined.extend(node.result);
            read.extend(reads(node.op, node.args));
        }
        let holds = |value: &VReg| self.class_of(self.ty(*value)) == class && self.constant(*value).is_none();
        let around = read.difference(&defined).filter(|value| holds(value)).count();
        let mut live: BTreeSet<VReg> =
            carried.iter().map(|one| one.next).filter(|next| defined.contains(next)).filter(holds).collect();
        let mut most = live.len();
        for node in insts(body).rev() {
            let needed = has_effect(node.op) || node.result.is_some_and(|result| self.uses(result) > 0);
            if !needed {
                continue;
            }
            if let Some(result) = node.result {
                live.remove(&result);
            }
            let once = |value: &VReg| self.uses(*value) == 1 && matches!(self.def(*value), Some((Op::Load { .. }, _)));
            live.extend(reads(node.op, node.args).filter(|value| defined.contains(value) && holds(value) && !once(value)));
            most = most.max(live.len());
        }
        around + most
    }
}

struct Inst<'k> {
    result: Option<VReg>,
    op: &'k Op,
    args: &'k [VReg],
}

/// The instructions of blocks, of branches one after the other.
fn insts<'k>(blocks: &[&'k Block]) -> std::vec::IntoIter<Inst<'k>> {
    fn add<'k>(block: &'k Block, all: &mut Vec<Inst<'k>>) {
        for node in block {
            match node {
                Node::Inst { result, op, args } => all.push(Inst { result: *result, op, args }),
                Node::Loop(node) => add(&node.body, all),
                Node::While(node) => [&node.test, &node.body].into_iter().for_each(|block| add(block, all)),
                Node::If(node) => [&node.then, &node.otherwise].into_iter().for_each(|block| add(block, all)),
            }
        }
    }
    let mut all = Vec::new();
    blocks.iter().for_each(|block| add(block, &mut all));
    all.into_iter()
}
