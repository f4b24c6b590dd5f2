//! Reads graphs. What is read is not verified: a type may be wrong, a cycle is possible.

use std::collections::BTreeMap;

use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::text::{Lexer, Token};
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, bail, ensure};

use super::attributes::{self, Attributes};
use crate::graph::build::MAX_VALUE_BYTES;
use crate::graph::lengths::{Length, Lengths, Symbol};
use crate::graph::{Def, Graph, Node, Op, Origin, Value, ValueId, interp};

/// Reads one graph. Values get ids in the order in which the text names them first.
pub fn parse(text: &str) -> Result<Graph> {
    let mut parser = Parser { lexer: Lexer::new(text)?, graph: Graph::default(), names: BTreeMap::new(), depth: 0 };
    let graph = parser.graph()?;
    if parser.lexer.at_end() { Ok(graph) } else { Err(parser.lexer.error("text after the end of the graph")) }
}

/// How deep graphs may be nested.
const MAX_DEPTH: usize = 50;

struct Parser<'a> {
    lexer: Lexer<'a>,
    graph: Graph,
    /// Each name with its value, and whether the definition was read.
    names: BTreeMap<String, (ValueId, bool)>,
    depth: usize,
}

impl Parser<'_> {
    /// Reads a graph, which may stand inside of a node of the one being read.
    fn graph(&mut self) -> Result<Graph> {
        if self.depth == MAX_DEPTH {
            return Err(self.lexer.error("graphs are nested too deep"));
        }
        self.depth += 1;
        let outer = (std::mem::take(&mut self.graph), std::mem::take(&mut self.names));
        self.lexer.expect_word("graph")?;
        self.graph.name = self.lexer.string()?;
        self.lexer.expect("{")?;
        let (mut dims, mut counts, mut checks) = (Vec::new(), Vec::new(), Vec::new());
        while !self.lexer.eat("}")? {
            if self.lexer.eat_word("input")? {
                self.input()?;
            } else if self.lexer.eat_word("constant")? {
                self.constant()?;
            } else if self.lexer.eat_word("dim")? {
                let value = self.define()?;
                let name = self.lexer.string()?;
                self.graph.values[value].ty = self.ty()?;
                let symbol = self.symbol(name.clone())?;
                self.graph.values[value].origin = self.origin()?;
                self.graph.lengths.dims.push(symbol);
                dims.push((name, value));
            } else if self.lexer.eat_word("count")? {
                let value = self.operand()?;
                let name = self.lexer.string()?;
                let symbol = self.symbol(name.clone())?;
                self.graph.lengths.counts.push(symbol);
                counts.push((name, value));
            } else if self.lexer.eat_word("check")? {
                let value = self.operand()?;
                let name = self.lexer.string()?;
                let symbol = self.symbol(name.clone())?;
                self.graph.lengths.checks.push(symbol);
                checks.push((name, value));
            } else if self.lexer.eat_word("output")? {
                let value = self.operand()?;
                let name = self.lexer.string()?;
                let lengths = self.lengths()?;
                self.graph.lengths.outputs.push(lengths);
                self.graph.outputs.push((name, value));
            } else {
                self.node()?;
            }
        }
        self.graph.inputs.extend(dims);
        self.graph.outputs.extend(counts.into_iter().chain(checks));
        if !self.graph.lengths.any() {
            self.graph.lengths = Lengths::default();
        }
        if let Some((name, _)) = self.names.iter().find(|(_, (_, defined))| !defined) {
            bail!("%{name} is used but not defined");
        }
        self.depth -= 1;
        self.names = outer.1;
        Ok(std::mem::replace(&mut self.graph, outer.0))
    }

    /// A value used: it may be defined further down.
    fn operand(&mut self) -> Result<ValueId> {
        let name = self.lexer.value()?;
        let values = &mut self.graph.values;
        let new = || {
            let ty = TensorType::new(DType::Bool, Shape::scalar());
            (values.push(Value { ty, def: Def::Input, origin: Origin::default() }), false)
        };
        Ok(self.names.entry(name).or_insert_with(new).0)
    }

    fn define(&mut self) -> Result<ValueId> {
        let Token::Value(name) = self.lexer.peek().clone() else {
            return Err(self.lexer.error("expected input, constant, output or a %value"));
        };
        let value = self.operand()?;
        let (_, defined) = self.names.get_mut(&name).expect("named just now");
        if std::mem::replace(defined, true) {
            return Err(self.lexer.error(format!("%{name} is defined twice")));
        }
        Ok(value)
    }

    fn input(&mut self) -> Result<()> {
        let value = self.define()?;
        let name = self.lexer.string()?;
        self.graph.values[value].ty = self.ty()?;
        let lengths = self.lengths()?;
        self.graph.lengths.inputs.push(lengths);
        self.graph.values[value].origin = self.origin()?;
        self.graph.inputs.push((name, value));
        Ok(())
    }

    fn constant(&mut self) -> Result<()> {
        let value = self.define()?;
        let ty = self.ty()?;
        self.lexer.expect("=")?;
        let tensor = read_tensor(&mut self.lexer, &ty)?;
        let origin = self.origin()?;
        self.graph.values[value] = Value { ty, def: Def::Constant(tensor), origin };
        Ok(())
    }

    fn node(&mut self) -> Result<()> {
        let line = self.lexer.line();
        let mut results = vec![self.define()?];
        while self.lexer.eat(",")? {
            results.push(self.define()?);
        }
        self.lexer.expect("=")?;
        let name = self.lexer.word()?;
        let mut operands = Vec::new();
        if let Token::Value(_) = self.lexer.peek() {
            operands.push(self.operand()?);
            while self.lexer.eat(",")? {
                operands.push(self.operand()?);
            }
        }
        let attributes = Attributes::parse(&mut self.lexer)?;
        self.lexer.expect(":")?;
        let mut types = vec![self.bare_ty()?];
        while self.lexer.eat(",")? {
            types.push(self.bare_ty()?);
        }
        if types.len() != results.len() {
            return Err(error_at(line, format!("{} results and {} types", results.len(), types.len())));
        }
        let mut op = attributes::op(&name, attributes, &types[0]).map_err(|error| error_at(line, error.message))?;
        let origin = self.origin()?;
        for body in op.bodies_mut() {
            *body = self.graph()?;
        }
        let node = self.graph.nodes.push(Some(Node { op, operands, results: results.clone() }));
        for (index, (result, ty)) in results.into_iter().zip(types).enumerate() {
            self.graph.values[result] = Value { ty, def: Def::Node { node, index }, origin: origin.clone() };
        }
        Ok(())
    }

    /// `: f32[1,64]`.
    fn ty(&mut self) -> Result<TensorType> {
        self.lexer.expect(":")?;
        self.bare_ty()
    }

    /// A type of bounded size.
    fn bare_ty(&mut self) -> Result<TensorType> {
        let line = self.lexer.line();
        let name = self.lexer.word()?;
        let dtype = DType::from_name(&name).ok_or_else(|| self.lexer.error(format!("there is no element type '{name}'")))?;
        self.lexer.expect("[")?;
        let mut dims: Vec<usize> = Vec::new();
        while !self.lexer.eat("]")? {
            dims.push(self.lexer.int()?);
            if !self.lexer.eat(",")? {
                self.lexer.expect("]")?;
                break;
            }
        }
        let ty = TensorType::new(dtype, dims);
        let bounded = ty.checked_size_bytes().is_some_and(|size| size <= MAX_VALUE_BYTES);
        if bounded { Ok(ty) } else { Err(error_at(line, format!("a {ty} is too large"))) }
    }

    /// `at 1 to 128`
    fn symbol(&mut self, name: String) -> Result<Symbol> {
        self.lexer.expect_word("at")?;
        let min = self.lexer.int()?;
        self.lexer.expect_word("to")?;
        Ok(Symbol { name, min, max: self.lexer.int()? })
    }

    /// `lengths [-, dim 0]`, or nothing.
    fn lengths(&mut self) -> Result<Vec<Option<Length>>> {
        let mut lengths = Vec::new();
        if !self.lexer.eat_word("lengths")? {
            return Ok(lengths);
        }
        self.lexer.expect("[")?;
        while !self.lexer.eat("]")? {
            lengths.push(if self.lexer.eat("-")? {
                None
            } else if self.lexer.eat_word("dim")? {
                Some(Length::Dim(self.lexer.int()?))
            } else {
                self.lexer.expect_word("count")?;
                Some(Length::Count(self.lexer.int()?))
            });
            if !self.lexer.eat(",")? {
                self.lexer.expect("]")?;
                break;
            }
        }
        Ok(lengths)
    }

    fn origin(&mut self) -> Result<Origin> {
        if !self.lexer.eat_word("from")? {
            return Ok(Origin::default());
        }
        Ok(Origin { node: self.lexer.string()?, operator: self.lexer.string()?, output: self.lexer.string()? })
    }
}

fn error_at(line: usize, message: String) -> Error {
    Error::new(format!("line {line}: {message}"))
}

/// The tensor of a type that stands behind `=`.
pub fn tensor(ty: &TensorType, text: &str) -> Result<Tensor> {
    read_tensor(&mut Lexer::new(text)?, ty)
}

pub(crate) fn read_tensor(lexer: &mut Lexer<'_>, ty: &TensorType) -> Result<Tensor> {
    let (line, count) = (lexer.line(), ty.shape.count());
    if lexer.is_punct("#") {
        return Err(lexer.error("the values of this constant were left out when the graph was printed"));
    }
    if lexer.eat_word("random")? {
        return Ok(Random::new(lexer.int()?).tensor(ty));
    }
    if lexer.eat_word("hex")? {
        let data = lexer.string()?;
        let bytes = from_hex(&data).map_err(|error| error_at(line, error.message))?;
        if bytes.len() != ty.size_bytes() {
            return Err(error_at(line, format!("{} bytes for a {ty}", bytes.len())));
        }
        return Ok(Tensor::new(ty.clone(), bytes));
    }
    if lexer.eat_word("fill")? {
        let number = number(lexer, ty.dtype)?;
        let element = Tensor::from_numbers(TensorType::new(ty.dtype, Shape::scalar()), [number]);
        return Ok(interp::eval(&Op::Broadcast(ty.shape.clone()), &[&element], ty));
    }
    if !lexer.eat("[")? {
        let number = number(lexer, ty.dtype)?;
        if ty.rank() > 0 {
            return Err(error_at(line, format!("one number for a {ty}")));
        }
        return Ok(Tensor::from_numbers(ty.clone(), [number]));
    }
    let mut numbers = Vec::new();
    while !lexer.eat("]")? {
        numbers.push(number(lexer, ty.dtype)?);
        if !lexer.eat(",")? {
            lexer.expect("]")?;
            break;
        }
    }
    if numbers.len() != count {
        return Err(error_at(line, format!("{} numbers for a {ty}", numbers.len())));
    }
    Ok(Tensor::from_numbers(ty.clone(), numbers))
}

fn number(lexer: &mut Lexer<'_>, dtype: DType) -> Result<Number> {
    let negative = lexer.eat("-")?;
    let float = |value: f64| Number::Float(if negative { -value } else { value });
    Ok(match lexer.next()? {
        Token::Word(word) if word == "true" && dtype == DType::Bool => Number::Int(1),
        Token::Word(word) if word == "false" && dtype == DType::Bool => Number::Int(0),
        Token::Word(word) if word == "nan" && dtype.is_float() => float(f64::NAN),
        Token::Word(word) if word == "inf" && dtype.is_float() => float(f64::INFINITY),
        Token::Float(value) if dtype.is_float() => float(value),
        Token::Int(value) if dtype.is_float() => float(value as f64),
        Token::Int(value) if dtype.is_integer() => {
            let value = if negative { -value } else { value };
            let (low, high) = dtype.integer_range();
            if !(low..=high).contains(&value) {
                return Err(lexer.error(format!("{value} is not a {dtype}")));
            }
            if dtype == DType::U64 { Number::UInt(value as u64) } else { Number::Int(value as i64) }
        }
        other => return Err(lexer.error(format!("expected a {dtype}, found {other:?}"))),
    })
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    ensure!(text.len().is_multiple_of(2) && text.is_ascii(), "an odd number of hexadecimal digits");
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| Error::new("not hexadecimal digits")))
        .collect()
}
