//! Allocated instructions to the bytes of a function: frame, jumps, constants.

use mcc_kernel::mach::{Allocated, Allocation, Block, Emit, Kind, Program, RegClass};
use mcc_kernel::{Code, Kernel, Reloc, RelocKind};
use mcc_support::bug;

use crate::abi::{self, Abi};
use crate::encode::{self, Fields, Imm, Memory, Place};
use crate::inst::{Base, Flags, Inst, Mem, Op, Rm, Slot};
use crate::pool::Pool;
use crate::rows::{self, Form, Row};

const RSP: u8 = abi::RSP as u8;
/// What values on their way through memory take.
pub const SCRATCH_BYTES: u32 = 64;
/// Inner loops begin at multiples of this.
const LOOP_ALIGN: usize = 32;

/// What a function's selection left for its frame and its constants.
#[derive(Debug)]
pub struct Parts<'a> {
    pub abi: &'static Abi,
    pub pool: &'a Pool,
    pub symbols: &'a [String],
    pub has_calls: bool,
    pub uses_scratch: bool,
}

/// Offsets from the stack pointer while the function runs.
#[derive(Debug)]
struct Frame {
    spills: u32,
    slots: Vec<u32>,
    scratch: u32,
    /// Of vector registers that the caller wants back.
    vectors: Vec<(u8, u32)>,
    size: u32,
    pushed: Vec<u8>,
}

impl Frame {
    fn new(kernel: &Kernel, allocated: &Allocated, parts: &Parts) -> Frame {
        let is_written = |class| move |number: &usize| allocated.written.contains(mcc_kernel::mach::PReg::new(*number, class));
        let pushed: Vec<u8> =
            parts.abi.saved.iter().copied().filter(is_written(RegClass::Int)).map(|number| number as u8).collect();
        let saved = parts.abi.saved_vectors.clone().filter(is_written(RegClass::Float));
        let mut end = if parts.has_calls { parts.abi.home_bytes } else { 0 };
        let mut take = |bytes: u32, align: u32| {
            end = end.next_multiple_of(align);
            end += bytes;
            end - bytes
        };
        let spills = take(allocated.output.num_spillslots as u32 * 8, 8);
        let slots = kernel.slots.iter().map(|slot| take(slot.size_bytes, slot.align_bytes)).collect();
        let scratch = take(if parts.uses_scratch { SCRATCH_BYTES } else { 0 }, 16);
        let vectors = saved.map(|number| (number as u8, take(16, 16))).collect();
        // At the entry the return address has been pushed onto a multiple of 16.
        let above = 8 + 8 * pushed.len() as u32;
        let needs_alignment = end > 0 || parts.has_calls;
        let size = if needs_alignment { (end + above).next_multiple_of(16) - above } else { 0 };
        Frame { spills, slots, scratch, vectors, size, pushed }
    }
}

/// A jump whose distance is not known yet: where it is written, and to which block.
struct Fixup {
    place: usize,
    to: Block,
}

struct Emitter<'a> {
    parts: &'a Parts<'a>,
    frame: Frame,
    /// Of the widest vector in the function.
    vector_bits: u32,
    bytes: Vec<u8>,
    labels: Vec<Option<usize>>,
    fixups: Vec<Fixup>,
    /// Displacements to constants: where they are, where their instructions end, which entry.
    constants: Vec<(usize, usize, u32)>,
    relocs: Vec<Reloc>,
    #[cfg(test)]
    log: Vec<(usize, Fields)>,
}

/// The widest vector that a program holds; scalars take 128 bits.
pub fn vector_bits(program: &Program<Inst>) -> u32 {
    let bits = program.insts.iter().map(|inst| match &inst.kind {
        Kind::Plain(Inst::Op(Op { row: Row { form: Form::Vector { .. }, .. }, bits, .. })) => *bits,
        _ => 128,
    });
    bits.max().unwrap_or(128)
}

pub fn emit(kernel: &Kernel, program: &Program<Inst>, allocated: &Allocated, parts: &Parts) -> Code {
    let emitter = run(kernel, program, allocated, parts);
    emitter.finish()
}

/// What was encoded, and where, for tests that decode it.
#[cfg(test)]
pub fn emit_logged(
    kernel: &Kernel,
    program: &Program<Inst>,
    allocated: &Allocated,
    parts: &Parts,
) -> (Code, Vec<(usize, Fields)>) {
    let mut emitter = run(kernel, program, allocated, parts);
    let log = std::mem::take(&mut emitter.log);
    (emitter.finish(), log)
}

fn run<'a>(kernel: &Kernel, program: &Program<Inst>, allocated: &Allocated, parts: &'a Parts) -> Emitter<'a> {
    let mut emitter = Emitter {
        parts,
        frame: Frame::new(kernel, allocated, parts),
        vector_bits: vector_bits(program),
        bytes: Vec::new(),
        labels: vec![None; program.blocks.len()],
        fixups: Vec::new(),
        constants: Vec::new(),
        relocs: Vec::new(),
        #[cfg(test)]
        log: Vec::new(),
    };
    emitter.prologue();
    mcc_kernel::mach::emit(program, allocated, &mut emitter);
    emitter
}

impl Emitter<'_> {
    fn encode(&mut self, fields: &Fields) -> Option<usize> {
        #[cfg(test)]
        self.log.push((self.bytes.len(), *fields));
        encode::encode(&mut self.bytes, fields)
    }

    /// An instruction between two registers.
    fn simple(&mut self, row: Row, bits: u32, reg: u8, rm: Place) {
        self.encode(&Fields { row, bits, reg, vvvv: None, rm, mask: 0, zeroes: false, fourth: None, imm: Imm::None });
    }

    fn frame_place(&self, offset: u32) -> Place {
        let base = encode::Base::Reg(RSP);
        Place::Memory(Memory { base, index: None, scale: 1, displacement: offset as i32, is_broadcast: false })
    }

    fn prologue(&mut self) {
        for &reg in &self.frame.pushed.clone() {
            self.push_or_pop(0x50, reg);
        }
        self.move_stack(rows::SUB);
        for (reg, offset) in self.frame.vectors.clone() {
            let place = self.frame_place(offset);
            self.simple(rows::VMOVUPS_STORE, 128, reg, place);
        }
    }

    fn push_or_pop(&mut self, opcode: u8, reg: u8) {
        if reg >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(opcode + (reg & 7));
    }

    fn move_stack(&mut self, row: Row) {
        if self.frame.size > 0 {
            let imm = Imm::Word(self.frame.size as i32);
            self.encode(&Fields {
                row,
                bits: 64,
                reg: 0,
                vvvv: None,
                rm: Place::Reg(RSP),
                mask: 0,
                zeroes: false,
                fourth: None,
                imm,
            });
        }
    }

    fn jump_to(&mut self, opcodes: (u8, &[u8]), to: Block) {
        let (short, long) = opcodes;
        if let Some(target) = self.labels[to.0 as usize] {
            let distance = target as i64 - (self.bytes.len() as i64 + 2);
            if let Ok(distance) = i8::try_from(distance) {
                self.bytes.extend([short, distance as u8]);
                return;
            }
        }
        self.bytes.extend(long);
        self.fixups.push(Fixup { place: self.bytes.len(), to });
        self.bytes.extend([0; 4]);
    }

    fn op(&mut self, op: &Op, places: &[Allocation]) {
        let number = |operand: u8| {
            let place = places[usize::from(operand)];
            place.as_reg().unwrap_or_else(|| bug!("operand {operand} of {} is in {place}", op.row.name)).hw_enc() as u8
        };
        let slot = |slot: Slot| match slot {
            Slot::None => 0,
            Slot::Operand(operand) => number(operand),
            Slot::Fixed(value) => value,
        };
        let (rm, relative) = match op.rm {
            Rm::Slot(place) => (Place::Reg(slot(place)), None),
            Rm::Mem(memory) => self.memory(&memory, number),
        };
        let fourth = if let Slot::Operand(operand) = op.fourth { Some(number(operand)) } else { None };
        let fields = Fields {
            row: op.row,
            bits: op.bits,
            reg: slot(op.reg),
            vvvv: (op.vvvv != Slot::None).then(|| slot(op.vvvv)),
            rm,
            mask: slot(op.mask),
            zeroes: op.zeroes,
            fourth,
            imm: op.imm,
        };
        let place = self.encode(&fields);
        match (place, relative) {
            (Some(place), Some(Base::Pool(entry))) => self.constants.push((place, self.bytes.len(), entry)),
            (Some(place), Some(Base::Symbol(symbol))) => self.reloc(place, RelocKind::X86PcRel4, symbol),
            (None, None) => {}
            other => bug!("{} has the address {other:?}", op.row.name),
        }
    }

    fn memory(&self, memory: &Mem, number: impl Fn(u8) -> u8) -> (Place, Option<Base>) {
        let in_frame = |offset: u32| (encode::Base::Reg(RSP), offset as i32);
        let (base, offset) = match memory.base {
            Base::Operand(operand) => (encode::Base::Reg(number(operand)), 0),
            Base::Slot(slot) => in_frame(self.frame.slots[slot as usize]),
            Base::Scratch => in_frame(self.frame.scratch),
            Base::Pool(_) | Base::Symbol(_) => (encode::Base::Rip, 0),
        };
        let place = Place::Memory(Memory {
            base,
            index: memory.index.map(number),
            scale: memory.scale,
            displacement: memory.displacement + offset,
            is_broadcast: memory.is_broadcast,
        });
        (place, (base == encode::Base::Rip).then_some(memory.base))
    }

    fn reloc(&mut self, place: usize, kind: RelocKind, symbol: u32) {
        let symbol = self.parts.symbols[symbol as usize].clone();
        self.relocs.push(Reloc { offset: place as u32, kind, symbol, addend: -4 });
    }

    fn place(&self, allocation: Allocation) -> Place {
        match (allocation.as_reg(), allocation.as_stack()) {
            (Some(reg), _) => Place::Reg(reg.hw_enc() as u8),
            (_, Some(slot)) => self.frame_place(self.frame.spills + 8 * slot.index() as u32),
            _ => bug!("a value is nowhere"),
        }
    }

    fn finish(mut self) -> Code {
        for Fixup { place, to } in &self.fixups {
            let target = self.labels[to.0 as usize].unwrap_or_else(|| bug!("a jump leads to {to}, which has no code"));
            let distance = target as i64 - (*place as i64 + 4);
            self.bytes[*place..place + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        let code_bytes = self.bytes.len();
        if !self.parts.pool.entries.is_empty() {
            // What is never run.
            self.bytes.resize(code_bytes.next_multiple_of(self.parts.pool.align_bytes()), 0xcc);
            let start = self.bytes.len();
            let (offsets, constants) = self.parts.pool.layout();
            self.bytes.extend(constants);
            for &(place, end, entry) in &self.constants {
                let distance = (start + offsets[entry as usize]) as i64 - end as i64;
                self.bytes[place..place + 4].copy_from_slice(&(distance as i32).to_le_bytes());
            }
        }
        let stack_bytes = 8 + 8 * self.frame.pushed.len() as u32 + self.frame.size;
        Code { bytes: self.bytes, code_bytes: code_bytes as u32, align_bytes: 64, relocs: self.relocs, stack_bytes }
    }
}

/// No-operations of one to nine bytes.
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

impl Emit for Emitter<'_> {
    type Inst = Inst;

    fn label(&mut self, block: Block, is_inner_loop: bool) {
        if is_inner_loop {
            while !self.bytes.len().is_multiple_of(LOOP_ALIGN) {
                let missing = LOOP_ALIGN - self.bytes.len() % LOOP_ALIGN;
                self.bytes.extend(NOPS[missing.min(NOPS.len()) - 1]);
            }
        }
        self.labels[block.0 as usize] = Some(self.bytes.len());
    }

    fn inst(&mut self, inst: &Inst, places: &[Allocation]) {
        match inst {
            Inst::Op(op) => self.op(op, places),
            Inst::Wide(value) => {
                let reg = places[0].as_reg().unwrap_or_else(|| bug!("a constant is in no register")).hw_enc() as u8;
                self.bytes.extend([0x48 | reg >> 3, 0xb8 | reg & 7]);
                self.bytes.extend(value.to_le_bytes());
            }
            Inst::Nothing => {}
            Inst::Call(symbol) => {
                self.bytes.extend([0xe8, 0, 0, 0, 0]);
                self.reloc(self.bytes.len() - 4, RelocKind::X86Call4, *symbol);
            }
            Inst::CallRax => self.bytes.extend([0xff, 0xd0]),
            Inst::Jump(_) => bug!("a jump inside a block"),
        }
    }

    fn copy(&mut self, from: Allocation, to: Allocation) {
        let (from_place, to_place) = (self.place(from), self.place(to));
        let class = from.as_reg().or(to.as_reg()).unwrap_or_else(|| bug!("a move from {from} to {to}")).class();
        let (between, load, store, bits) = match class {
            RegClass::Int => (rows::MOV, rows::MOV, rows::MOV_STORE, 64),
            RegClass::Float => (rows::VMOVAPS, rows::VMOVUPS, rows::VMOVUPS_STORE, self.vector_bits),
            RegClass::Vector => (rows::KMOV, rows::KMOV, rows::KMOV_STORE, 128),
        };
        match (from_place, to_place) {
            (from, Place::Reg(to)) => {
                let row = if matches!(from, Place::Reg(_)) { between } else { load };
                self.simple(row, bits, to, from);
            }
            (Place::Reg(from), to) => self.simple(store, bits, from, to),
            _ => bug!("a move from {from} to {to}"),
        }
    }

    fn branch(&mut self, inst: &Inst, _: &[Allocation], to: Block, inverted: bool) {
        let Inst::Jump(flags) = inst else { bug!("{inst:?} does not jump") };
        let Flags(number) = if inverted { flags.inverted() } else { *flags };
        self.jump_to((0x70 + number, &[0x0f, 0x80 + number]), to);
    }

    fn jump(&mut self, to: Block) {
        self.jump_to((0xeb, &[0xe9]), to);
    }

    fn ret(&mut self) {
        for (reg, offset) in self.frame.vectors.clone() {
            let place = self.frame_place(offset);
            self.simple(rows::VMOVUPS, 128, reg, place);
        }
        if self.vector_bits > 128 {
            self.simple(rows::VZEROUPPER, 128, 0, Place::Reg(0));
        }
        self.move_stack(rows::ADD);
        for reg in self.frame.pushed.clone().into_iter().rev() {
            self.push_or_pop(0x58, reg);
        }
        self.bytes.push(0xc3);
    }
}
