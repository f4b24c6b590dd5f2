//! Allocated instructions to bytes: the frame, displacements of branches, constants after the code.
//!
//! The frame, from the stack pointer up: arguments of calls, slots, spilled registers, saved registers.

use mcc_kernel::mach::{Allocated, Allocation, Block, Emit, PReg, RegClass};
use mcc_kernel::{BranchProtection, Code, Kernel, Reloc, RelocKind};

use crate::encode::vector as v;
use crate::encode::*;
use crate::inst::{IMPLIED, Inst, What};
use crate::registers;
use crate::select::Selector;

/// Where the parts of the frame begin, in bytes from the stack pointer.
struct Frame {
    slots: Vec<u32>,
    spills: u32,
    /// Where the saved registers are: the stack pointer is moved by so many bytes after they are stored.
    saved: u32,
    total: u32,
    general: Vec<u32>,
    vectors: Vec<u32>,
}

impl Frame {
    fn new(kernel: &Kernel, selector: &Selector, allocated: &Allocated) -> Self {
        let mut at = selector.outgoing_bytes;
        let slots = kernel.slots.iter().map(|slot| {
            let start = at.next_multiple_of(slot.align_bytes);
            at = start + slot.size_bytes;
            start
        });
        let slots = slots.collect();
        let spills = at.next_multiple_of(16);
        let saved = (spills + 8 * allocated.output.num_spillslots as u32).next_multiple_of(16);
        let mut general = registers::to_save(allocated.written, RegClass::Int);
        if selector.has_calls && !general.contains(&(registers::LINK as u32)) {
            general.push(registers::LINK as u32);
        }
        let vectors = registers::to_save(allocated.written, RegClass::Float);
        let total = saved + (8 * (general.len() + vectors.len()) as u32).next_multiple_of(16);
        Self { slots, spills, saved, total, general, vectors }
    }
}

/// What a branch or load is yet to be told.
#[derive(Clone, Copy)]
enum Target {
    Block(Block),
    Literal(usize),
}

pub struct Emitter<'a> {
    selector: &'a Selector,
    frame: Frame,
    words: Vec<u32>,
    labels: Vec<Option<usize>>,
    /// Words whose displacement is to be put in.
    fixups: Vec<(usize, Target)>,
    relocs: Vec<Reloc>,
    has_begun: bool,
    protection: BranchProtection,
}

impl<'a> Emitter<'a> {
    pub fn new(
        kernel: &Kernel,
        selector: &'a Selector,
        allocated: &Allocated,
        blocks: usize,
        protection: BranchProtection,
    ) -> Self {
        Self {
            selector,
            frame: Frame::new(kernel, selector, allocated),
            words: Vec::new(),
            labels: vec![None; blocks],
            fixups: Vec::new(),
            relocs: Vec::new(),
            has_begun: false,
            protection,
        }
    }

    /// Moves the stack pointer; of any distance that a frame has.
    fn move_stack(&mut self, op: u32, bytes: u32) {
        self.add_to(op, ZERO_OR_SP, ZERO_OR_SP, bytes);
    }

    /// `to = from ± bytes`.
    fn add_to(&mut self, op: u32, to: u32, from: u32, bytes: u32) {
        let parts = [bytes & !0xFFF, bytes & 0xFFF];
        let mut from = from;
        for part in parts.into_iter().filter(|&part| part > 0 || bytes == 0).take(if bytes == 0 { 1 } else { 2 }) {
            let word = add_imm(op, Width::X, u64::from(part)).expect("frames are smaller than 16 MiB");
            self.words.push(word | to << RD | from << RN);
            from = to;
        }
    }

    fn saved_pairs(&mut self, is_load: bool) {
        let lists = [(self.frame.general.clone(), false), (self.frame.vectors.clone(), true)];
        let mut at = 0;
        for (list, is_vector) in lists {
            let access = Access { log2_bytes: 3, is_vector, is_load };
            for pair in list.chunks(2) {
                let word = match pair {
                    &[first, second] => {
                        access.pair(at, PairMode::Offset).expect("few registers are saved") | first << RD | second << RA
                    }
                    _ => access.at(at).expect("few registers are saved") | pair[0] << RD,
                };
                self.words.push(word | ZERO_OR_SP << RN);
                at += 8 * pair.len() as i64;
            }
        }
    }

    /// Whether the return address is signed: where it is in memory while the function runs.
    fn signs(&self) -> bool {
        self.protection.returns && self.selector.has_calls
    }

    fn prologue(&mut self) {
        if self.signs() {
            // Indirect branches may lead here as well.
            self.words.push(PACIASP);
        } else if self.protection.targets {
            self.words.push(BTI_C);
        }
        let saved_bytes = self.frame.total - self.frame.saved;
        if saved_bytes > 0 {
            self.move_stack(SUB, saved_bytes);
            self.saved_pairs(false);
        }
        if self.frame.saved > 0 {
            self.move_stack(SUB, self.frame.saved);
        }
    }

    /// A spilled register to or from its place.
    fn spill(&mut self, reg: PReg, slot: usize, is_load: bool) {
        let is_vector = reg.class() == RegClass::Float;
        let access = Access { log2_bytes: if is_vector { 4 } else { 3 }, is_vector, is_load };
        let offset = self.frame.spills + 8 * slot as u32;
        let number = reg.hw_enc() as u32;
        match access.at(i64::from(offset)) {
            Some(word) => self.words.push(word | number << RD | ZERO_OR_SP << RN),
            None => {
                self.add_to(ADD, registers::SCRATCH, ZERO_OR_SP, offset);
                let word = access.at(0).expect("0 is a displacement");
                self.words.push(word | number << RD | registers::SCRATCH << RN);
            }
        }
    }

    fn with_registers(inst: &Inst, places: &[Allocation]) -> u32 {
        inst.fields.iter().zip(places).filter(|(field, _)| **field != IMPLIED).fold(inst.word, |word, (field, place)| {
            let reg = place.as_reg().expect("operands are in registers");
            word | (reg.hw_enc() as u32) << field
        })
    }

    fn reloc(&mut self, kind: RelocKind, symbol: &str) {
        let offset = 4 * self.words.len() as u32;
        self.relocs.push(Reloc { offset, kind, symbol: symbol.to_string(), addend: 0 });
    }

    /// The code, with the constants after it and every displacement in place.
    pub fn finish(mut self) -> Code {
        let mut literals: Vec<usize> = (0..self.selector.literals.len()).collect();
        // Wide ones first: all are aligned.
        literals.sort_by_key(|&index| std::cmp::Reverse(self.selector.literals[index].0));
        let used =
            |index: &usize| self.fixups.iter().any(|(_, target)| matches!(target, Target::Literal(found) if found == index));
        literals.retain(used);
        let mut bytes_at = vec![0; self.selector.literals.len()];
        let mut pool: Vec<u8> = Vec::new();
        let code_bytes = 4 * self.words.len();
        let start = if literals.is_empty() { code_bytes } else { code_bytes.next_multiple_of(16) };
        for index in literals {
            let (log2_bytes, value) = self.selector.literals[index];
            bytes_at[index] = start + pool.len();
            pool.extend(&value.to_le_bytes()[..1 << log2_bytes]);
        }
        for (at, target) in std::mem::take(&mut self.fixups) {
            let to = match target {
                Target::Block(block) => 4 * self.labels[block.0 as usize].expect("jumps lead to blocks that are emitted"),
                Target::Literal(index) => bytes_at[index],
            };
            self.words[at] = with_displacement(self.words[at], to as i64 - 4 * at as i64);
        }
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(start, 0);
        bytes.extend(pool);
        Code { bytes, code_bytes: code_bytes as u32, align_bytes: 16, relocs: self.relocs, stack_bytes: self.frame.total }
    }
}

impl Emit for Emitter<'_> {
    type Inst = Inst;

    fn label(&mut self, block: Block, _is_inner_loop: bool) {
        if !self.has_begun {
            self.has_begun = true;
            self.prologue();
        }
        self.labels[block.0 as usize] = Some(self.words.len());
    }

    fn inst(&mut self, inst: &Inst, places: &[Allocation]) {
        let word = Self::with_registers(inst, places);
        match &inst.what {
            What::Nothing => return,
            What::Literal(index) => self.fixups.push((self.words.len(), Target::Literal(*index))),
            What::Slot(slot) => {
                let to = places[0].as_reg().expect("operands are in registers").hw_enc() as u32;
                return self.add_to(ADD, to, ZERO_OR_SP, self.frame.slots[*slot as usize]);
            }
            What::Incoming(index) => {
                let offset = self.frame.total + 8 * index;
                let log2_bytes = word >> 30;
                let access = Access { log2_bytes, is_vector: false, is_load: true };
                let to = places[0].as_reg().expect("operands are in registers").hw_enc() as u32;
                let word = access.at(i64::from(offset)).map(|word| word | ZERO_OR_SP << RN).unwrap_or_else(|| {
                    self.add_to(ADD, registers::SCRATCH, ZERO_OR_SP, offset);
                    access.at(0).expect("0 is a displacement") | registers::SCRATCH << RN
                });
                self.words.push(word | to << RD);
                return;
            }
            What::Page(symbol) => self.reloc(RelocKind::Aarch64AdrPage21, symbol),
            What::PageOffset(symbol) => self.reloc(RelocKind::Aarch64AddLo12, symbol),
            What::Call(symbol) => self.reloc(RelocKind::Aarch64Call26, symbol),
            _ => {}
        }
        self.words.push(word);
    }

    fn copy(&mut self, from: Allocation, to: Allocation) {
        match (from.as_reg(), to.as_reg(), from.as_stack(), to.as_stack()) {
            (Some(from), Some(to), ..) if from.class() == RegClass::Int => {
                let word = general(ORR, Width::X) | ZERO_OR_SP << RN;
                self.words.push(word | (to.hw_enc() as u32) << RD | (from.hw_enc() as u32) << RM);
            }
            (Some(from), Some(to), ..) => {
                let from = from.hw_enc() as u32;
                self.words.push(v::bits_vector(v::ORR, true) | (to.hw_enc() as u32) << RD | from << RN | from << RM);
            }
            (Some(from), _, _, Some(slot)) => self.spill(from, slot.index(), false),
            (_, Some(to), Some(slot), _) => self.spill(to, slot.index(), true),
            _ => mcc_support::bug!("a copy from {from} to {to}"),
        }
    }

    fn branch(&mut self, inst: &Inst, places: &[Allocation], to: Block, inverted: bool) {
        let word = Self::with_registers(inst, places);
        // Of `b.cond`, the lowest bit inverts the condition, of `cbz`, bit 24.
        let bit = if inst.what == What::ReadsFlags { 1 } else { 1 << 24 };
        self.fixups.push((self.words.len(), Target::Block(to)));
        self.words.push(if inverted { word ^ bit } else { word });
    }

    fn jump(&mut self, to: Block) {
        self.fixups.push((self.words.len(), Target::Block(to)));
        self.words.push(B);
    }

    fn ret(&mut self) {
        if self.frame.saved > 0 {
            self.move_stack(ADD, self.frame.saved);
        }
        let saved_bytes = self.frame.total - self.frame.saved;
        if saved_bytes > 0 {
            self.saved_pairs(true);
            self.move_stack(ADD, saved_bytes);
        }
        if self.signs() {
            self.words.push(AUTIASP);
        }
        self.words.push(RET);
    }
}
