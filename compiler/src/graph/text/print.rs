//! Prints graphs.

use std::fmt::{self, Write};

use mcc_support::tensor::Number;
use mcc_support::text::quote;
use mcc_support::{DType, Tensor};
use sha2::{Digest, Sha256};

use super::attributes;
use crate::graph::lengths::{Length, Symbol};
use crate::graph::{Def, Graph, Origin, ValueId};

/// Constants of more elements are not listed.
const MAX_LISTED: usize = 32;

/// The text with every constant in full.
pub fn to_text(graph: &Graph) -> String {
    let mut text = String::new();
    print(graph, true, 0, &mut text).expect("writing to a string does not fail");
    text.push('\n');
    text
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self, false, 0, f)?;
        f.write_char('\n')
    }
}

/// Prints a graph; its lines after the first are indented by `depth`, and nothing follows its last brace.
fn print(graph: &Graph, full: bool, depth: usize, out: &mut dyn Write) -> fmt::Result {
    let indent = " ".repeat(2 * depth + 2);
    writeln!(out, "graph {} {{", quote(&graph.name))?;
    let lengths = &graph.lengths;
    for (place, (name, value)) in graph.tensor_inputs().iter().enumerate() {
        let (lengths, origin) = (lengths_text(&lengths.inputs, place), origin(&graph.values[*value].origin));
        writeln!(out, "{indent}input {value} {} : {}{lengths}{origin}", quote(name), graph.ty(*value))?;
    }
    for (symbol, (_, value)) in lengths.dims.iter().zip(&graph.inputs[graph.tensor_inputs().len()..]) {
        let origin = origin(&graph.values[*value].origin);
        let Symbol { name, min, max } = symbol;
        writeln!(out, "{indent}dim {value} {} : {} at {min} to {max}{origin}", quote(name), graph.ty(*value))?;
    }
    let mut printed = vec![false; graph.values.len()];
    let mut constant = |value: ValueId, out: &mut dyn Write| match &graph.values[value].def {
        Def::Constant(tensor) if !std::mem::replace(&mut printed[value.0 as usize], true) => {
            let origin = origin(&graph.values[value].origin);
            writeln!(out, "{indent}constant {value} : {} = {}{origin}", tensor.ty(), tensor_text(tensor, full))
        }
        _ => Ok(()),
    };
    for id in graph.order() {
        let node = graph.node(id);
        node.operands.iter().try_for_each(|&operand| constant(operand, out))?;
        let list = |values: &[ValueId]| values.iter().map(ValueId::to_string).collect::<Vec<_>>().join(", ");
        let operands = if node.operands.is_empty() { String::new() } else { format!(" {}", list(&node.operands)) };
        let types: Vec<String> = node.results.iter().map(|&result| graph.ty(result).to_string()).collect();
        let (name, attributes) = (attributes::name(&node.op), attributes::print(&node.op));
        let origin = origin(&graph.values[node.results[0]].origin);
        write!(out, "{indent}{} = {name}{operands}{attributes} : {}{origin}", list(&node.results), types.join(", "))?;
        for body in node.op.bodies() {
            out.write_char(' ')?;
            print(body, full, depth + 1, out)?;
        }
        out.write_char('\n')?;
    }
    for (place, (name, value)) in graph.tensor_outputs().iter().enumerate() {
        constant(*value, out)?;
        writeln!(out, "{indent}output {value} {}{}", quote(name), lengths_text(&lengths.outputs, place))?;
    }
    let kinds = lengths.counts.iter().map(|count| ("count", count)).chain(lengths.checks.iter().map(|check| ("check", check)));
    for ((kind, symbol), (_, value)) in kinds.zip(&graph.outputs[graph.tensor_outputs().len()..]) {
        constant(*value, out)?;
        writeln!(out, "{indent}{kind} {value} {} at {} to {}", quote(&symbol.name), symbol.min, symbol.max)?;
    }
    write!(out, "{}}}", &indent[2..])
}

/// ` lengths [-, dim 0]`, where an extent is known only at run time.
fn lengths_text(list: &[Vec<Option<Length>>], place: usize) -> String {
    let Some(lengths) = list.get(place).filter(|lengths| !lengths.is_empty()) else { return String::new() };
    let text = |length: &Option<Length>| match length {
        None => "-".to_string(),
        Some(Length::Dim(dim)) => format!("dim {dim}"),
        Some(Length::Count(count)) => format!("count {count}"),
    };
    format!(" lengths [{}]", lengths.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn origin(origin: &Origin) -> String {
    if *origin == Origin::default() {
        return String::new();
    }
    format!(" from {} {} {}", quote(&origin.node), quote(&origin.operator), quote(&origin.output))
}

pub(crate) fn tensor_text(tensor: &Tensor, full: bool) -> String {
    let (count, dtype) = (tensor.count(), tensor.dtype());
    let text = |index: usize| number_text(dtype, tensor.number(index));
    let is_fill = count > 1 && (1..count).all(|index| same_bits(tensor.number(index), tensor.number(0)));
    let candidate = if tensor.shape().rank() == 0 {
        text(0)
    } else if is_fill {
        format!("fill {}", text(0))
    } else if count <= MAX_LISTED {
        format!("[{}]", (0..count).map(text).collect::<Vec<_>>().join(", "))
    } else {
        String::new()
    };
    // A NaN with a payload has no text as a number.
    let reads_back = |text: &str| super::parse::tensor(tensor.ty(), text).is_ok_and(|read| read == *tensor);
    if reads_back(&candidate) {
        candidate
    } else if full {
        format!("hex \"{}\"", hex(tensor.data()))
    } else {
        format!("#{}", hex(&Sha256::digest(tensor.data())[..4]))
    }
}

fn same_bits(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The shortest decimal that reads back as the same element.
fn number_text(dtype: DType, number: Number) -> String {
    match number {
        Number::Float(value) if value.is_nan() => "nan".into(),
        Number::Float(value) if value.is_infinite() => {
            if value > 0.0 {
                "inf".into()
            } else {
                "-inf".into()
            }
        }
        Number::Float(value) if dtype == DType::F64 => format!("{value:?}"),
        Number::Float(value) => format!("{:?}", value as f32),
        Number::Int(value) if dtype == DType::Bool => (value != 0).to_string(),
        Number::Int(value) => value.to_string(),
        Number::UInt(value) => value.to_string(),
    }
}
