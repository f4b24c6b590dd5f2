//! Prints kernels.

use std::fmt::{Display, Write};

use mcc_support::{EntityId, EntityMap};

use super::OPERATIONS;
use crate::ir::{Address, Block, Carried, Kernel, Lane, Node, Op, Operand, Type, VReg};

/// The text of a kernel, with a line's end at its end.
pub fn print(kernel: &Kernel) -> String {
    let mut printer = Printer { kernel, text: String::new(), indent: 1 };
    let params: Vec<_> = kernel.params.iter().map(|&param| format!("{param}: {}", kernel.types[param])).collect();
    printer.text = format!("kernel @{}({}) {{\n", kernel.name, params.join(", "));
    for (index, slot) in kernel.slots.iter().enumerate() {
        printer.line(format_args!("slot {index}: {} align {}", slot.size_bytes, slot.align_bytes));
    }
    for reg in undefined(kernel) {
        printer.line(format_args!("unused {reg}: {}", kernel.types[reg]));
    }
    printer.block(&kernel.body);
    if let Some(result) = kernel.result {
        printer.line(format_args!("return {result}"));
    }
    printer.text.push_str("}\n");
    printer.text
}

/// The text of one instruction, without indentation and line end.
pub fn instruction(types: &EntityMap<VReg, Type>, result: Option<VReg>, op: &Op, args: &[VReg]) -> String {
    let mut text = String::new();
    if let Some(result) = result {
        write!(text, "{result} = ").expect("strings take every text");
    }
    let suffix = match (result, op) {
        (Some(result), _) => format!(".{}", types[result]),
        (None, Op::Store { .. } | Op::StoreFirst { .. } | Op::StorePtr(_)) => {
            args.first().map(|&arg| format!(".{}", types[arg])).unwrap_or_default()
        }
        _ => String::new(),
    };
    text + operation_name(op) + &suffix + &operands(types, result, op, args)
}

/// The name of an operation, without a type.
pub fn operation_name(op: &Op) -> &'static str {
    match op {
        Op::Const(_) => "const",
        Op::Extract(_) => "extract",
        Op::Splice(_) => "splice",
        Op::Lea(_) => "lea",
        Op::Load { .. } | Op::LoadPtr(_) => "load",
        Op::Store { .. } | Op::StorePtr(_) => "store",
        Op::LoadFirst { .. } => "load_first",
        Op::StoreFirst { .. } => "store_first",
        Op::Prefetch(_) => "prefetch",
        Op::SlotAddr(_) => "slot_addr",
        Op::SymbolAddr(_) => "symbol_addr",
        Op::Call(_) => "call",
        Op::CallPtr => "call_ptr",
        plain => OPERATIONS.iter().find(|(_, op)| op == plain).expect("every other operation is in the table").0,
    }
}

fn operands(types: &EntityMap<VReg, Type>, result: Option<VReg>, op: &Op, args: &[VReg]) -> String {
    let list = join(args);
    match op {
        Op::Const(bits) => format!(" {}", constant(result.map(|result| types[result]), *bits)),
        Op::Extract(lane) | Op::Splice(lane) => format!(" {list}, {lane}"),
        Op::Lea(address) | Op::LoadPtr(address) | Op::Prefetch(address) => format!(" {}", address_text(address)),
        Op::Load { address, align } => format!(" {} align {align}", address_text(address)),
        Op::Store { address, align } => format!(" {list}, {} align {align}", address_text(address)),
        Op::LoadFirst { lanes, address, align } => format!(" {lanes}, {} align {align}", address_text(address)),
        Op::StoreFirst { lanes, address, align } => format!(" {list}, {lanes}, {} align {align}", address_text(address)),
        Op::StorePtr(address) => format!(" {list}, {}", address_text(address)),
        Op::SlotAddr(slot) => format!(" {slot}"),
        Op::SymbolAddr(symbol) => format!(" @{symbol}"),
        Op::Call(symbol) => format!(" @{symbol}({list})"),
        Op::CallPtr => format!(" {}({})", join(&args[..1.min(args.len())]), join(args.get(1..).unwrap_or_default())),
        _ => format!(" {list}"),
    }
}

/// Floats are printed by their bits, with the value as a comment.
fn constant(ty: Option<Type>, bits: u64) -> String {
    match ty {
        Some(Type::Data { lane: Lane::F32, .. }) => format!("{bits:#x} ; {:?}", f32::from_bits(bits as u32)),
        Some(Type::Data { lane: Lane::F64, .. }) => format!("{bits:#x} ; {:?}", f64::from_bits(bits)),
        _ => (bits as i64).to_string(),
    }
}

fn address_text(address: &Address) -> String {
    let mut text = format!("[{}", address.base);
    for &(reg, scale) in &address.terms {
        text += &if scale == 1 { format!(" + {reg}") } else { format!(" + {reg}*{scale}") };
    }
    if address.displacement != 0 {
        let sign = if address.displacement < 0 { '-' } else { '+' };
        text += &format!(" {sign} {}", address.displacement.unsigned_abs());
    }
    text + "]"
}

fn join<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn operand(operand: Operand) -> String {
    match operand {
        Operand::Const(value) => value.to_string(),
        Operand::Reg(reg) => reg.to_string(),
    }
}

/// Registers that nothing defines.
fn undefined(kernel: &Kernel) -> Vec<VReg> {
    fn visit(block: &Block, defined: &mut dyn FnMut(VReg)) {
        for node in block {
            match node {
                Node::Inst { result, .. } => result.iter().for_each(|&reg| defined(reg)),
                Node::Loop(node) => {
                    defined(node.index);
                    node.carried.iter().flat_map(|carried| [carried.param, carried.result]).for_each(&mut *defined);
                    visit(&node.body, defined);
                }
                Node::While(node) => {
                    node.carried.iter().flat_map(|carried| [carried.param, carried.result]).for_each(&mut *defined);
                    visit(&node.test, defined);
                    visit(&node.body, defined);
                }
                Node::If(node) => {
                    node.results.iter().for_each(|&(result, ..)| defined(result));
                    visit(&node.then, defined);
                    visit(&node.otherwise, defined);
                }
            }
        }
    }
    let mut missing = vec![true; kernel.types.len()];
    kernel.params.iter().for_each(|param| missing[param.index()] = false);
    visit(&kernel.body, &mut |reg| missing[reg.index()] = false);
    kernel.types.keys().filter(|reg| missing[reg.index()]).collect()
}

struct Printer<'a> {
    kernel: &'a Kernel,
    text: String,
    indent: usize,
}

impl Printer<'_> {
    fn line(&mut self, line: impl Display) {
        writeln!(self.text, "{:width$}{line}", "", width = 2 * self.indent).expect("strings take every text");
    }

    fn block(&mut self, block: &Block) {
        for node in block {
            match node {
                Node::Inst { result, op, args } => self.line(instruction(&self.kernel.types, *result, op, args)),
                Node::Loop(node) => {
                    let range = format!("{}..{} step {}", operand(node.begin), operand(node.end), node.step);
                    self.line(format_args!("loop {} in {range}{} {{", node.index, carry(&node.carried)));
                    self.region(&node.body, &nexts(&node.carried));
                    self.line(format_args!("}}{}", results(node.carried.iter().map(|carried| carried.result))));
                }
                Node::While(node) => {
                    self.line(format_args!("while{} {{", carry(&node.carried)));
                    self.region(&node.test, &[]);
                    self.line(format_args!("}} test {} do {{", node.cond));
                    self.region(&node.body, &nexts(&node.carried));
                    self.line(format_args!("}}{}", results(node.carried.iter().map(|carried| carried.result))));
                }
                Node::If(node) => {
                    self.line(format_args!("if {} {{", node.cond));
                    self.region(&node.then, &node.results.iter().map(|&(_, value, _)| value).collect::<Vec<_>>());
                    self.line("} else {");
                    self.region(&node.otherwise, &node.results.iter().map(|&(.., value)| value).collect::<Vec<_>>());
                    self.line(format_args!("}}{}", results(node.results.iter().map(|&(result, ..)| result))));
                }
            }
        }
    }

    fn region(&mut self, block: &Block, yields: &[VReg]) {
        self.indent += 1;
        self.block(block);
        if !yields.is_empty() {
            self.line(format_args!("yield {}", join(yields)));
        }
        self.indent -= 1;
    }
}

fn carry(carried: &[Carried]) -> String {
    if carried.is_empty() {
        return String::new();
    }
    let list: Vec<_> = carried.iter().map(|carried| format!("{} = {}", carried.param, carried.init)).collect();
    format!(" carry ({})", list.join(", "))
}

fn nexts(carried: &[Carried]) -> Vec<VReg> {
    carried.iter().map(|carried| carried.next).collect()
}

fn results(results: impl Iterator<Item = VReg>) -> String {
    let list: Vec<_> = results.collect();
    if list.is_empty() { String::new() } else { format!(" -> ({})", join(&list)) }
}
