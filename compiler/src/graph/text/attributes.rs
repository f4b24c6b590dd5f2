//! The names and attributes of ops in text.

use std::collections::BTreeMap;
use std::fmt::Display;

use mcc_support::text::{Lexer, Token};
use mcc_support::{Error, Result, TensorType, bail, ensure};

use crate::graph::Graph;
use crate::graph::op::{BinaryFn, Contraction, Conv, If, Loop, Op, PadMode, ReduceFn, SliceAxis, UnaryFn, Window};

const UNARY: [(&str, UnaryFn); 28] = [
    ("neg", UnaryFn::Neg),
    ("abs", UnaryFn::Abs),
    ("sign", UnaryFn::Sign),
    ("not", UnaryFn::Not),
    ("sqrt", UnaryFn::Sqrt),
    ("exp", UnaryFn::Exp),
    ("exp_of_negative", UnaryFn::ExpOfNegative),
    ("log", UnaryFn::Log),
    ("sin", UnaryFn::Sin),
    ("cos", UnaryFn::Cos),
    ("tan", UnaryFn::Tan),
    ("asin", UnaryFn::Asin),
    ("acos", UnaryFn::Acos),
    ("atan", UnaryFn::Atan),
    ("sinh", UnaryFn::Sinh),
    ("cosh", UnaryFn::Cosh),
    ("tanh", UnaryFn::Tanh),
    ("sigmoid", UnaryFn::Sigmoid),
    ("asinh", UnaryFn::Asinh),
    ("acosh", UnaryFn::Acosh),
    ("atanh", UnaryFn::Atanh),
    ("erf", UnaryFn::Erf),
    ("floor", UnaryFn::Floor),
    ("ceil", UnaryFn::Ceil),
    ("trunc", UnaryFn::Trunc),
    ("round", UnaryFn::Round),
    ("is_nan", UnaryFn::IsNan),
    ("is_inf", UnaryFn::IsInf),
];

const BINARY: [(&str, BinaryFn); 17] = [
    ("add", BinaryFn::Add),
    ("sub", BinaryFn::Sub),
    ("mul", BinaryFn::Mul),
    ("div", BinaryFn::Div),
    ("rem", BinaryFn::Rem),
    ("mod", BinaryFn::Mod),
    ("pow", BinaryFn::Pow),
    ("min", BinaryFn::Min),
    ("max", BinaryFn::Max),
    ("and", BinaryFn::And),
    ("or", BinaryFn::Or),
    ("xor", BinaryFn::Xor),
    ("shl", BinaryFn::Shl),
    ("shr", BinaryFn::Shr),
    ("eq", BinaryFn::Eq),
    ("lt", BinaryFn::Lt),
    ("le", BinaryFn::Le),
];

const REDUCE: [(&str, ReduceFn); 5] = [
    ("sum", ReduceFn::Sum),
    ("prod", ReduceFn::Prod),
    ("max", ReduceFn::Max),
    ("min", ReduceFn::Min),
    ("max_number", ReduceFn::MaxNumber),
];

const PAD: [(&str, PadMode); 4] =
    [("constant", PadMode::Constant), ("reflect", PadMode::Reflect), ("edge", PadMode::Edge), ("wrap", PadMode::Wrap)];

fn name_of<T: Copy + PartialEq>(table: &[(&'static str, T)], item: T) -> &'static str {
    table.iter().find(|(_, other)| *other == item).expect("the table names every item").0
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(other, _)| *other == name).map(|&(_, item)| item)
}

/// The name of an op: what stands after `=`.
pub fn name(op: &Op) -> String {
    match op {
        Op::Unary(function) => name_of(&UNARY, *function).into(),
        Op::Binary(function) => name_of(&BINARY, *function).into(),
        Op::Select => "select".into(),
        Op::Cast(_) => "cast".into(),
        Op::Bitcast(_) => "bitcast".into(),
        Op::Contract(_) => "contract".into(),
        Op::Conv(_) => "conv".into(),
        Op::Reduce { kind, .. } => format!("reduce_{}", name_of(&REDUCE, *kind)),
        Op::ArgReduce { max, .. } => {
            if *max {
                "arg_max".into()
            } else {
                "arg_min".into()
            }
        }
        Op::Window { kind, .. } => format!("window_{}", name_of(&REDUCE, *kind)),
        Op::WindowArgMax(_) => "window_arg_max".into(),
        Op::Scan { kind, .. } => format!("scan_{}", name_of(&REDUCE, *kind)),
        Op::Reshape(_) => "reshape".into(),
        Op::Transpose(_) => "transpose".into(),
        Op::Slice(_) => "slice".into(),
        Op::Pad { mode, .. } => format!("pad_{}", name_of(&PAD, *mode)),
        Op::Concat { .. } => "concat".into(),
        Op::Broadcast(_) => "broadcast".into(),
        Op::Gather { .. } => "gather".into(),
        Op::GatherElements { .. } => "gather_elements".into(),
        Op::Iota { .. } => "iota".into(),
        Op::BatchNorm { .. } => "batch_norm".into(),
        Op::Loop(_) => "loop".into(),
        Op::If(_) => "if".into(),
    }
}

/// The attributes of an op, with a space before them: ` {axis 1}`, or nothing.
pub fn print(op: &Op) -> String {
    let attributes = match op {
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) | Op::Bitcast(_) => return String::new(),
        Op::Reshape(_) | Op::Broadcast(_) | Op::If(_) => return String::new(),
        Op::Loop(inner) => format!("carried {}, limit {}", inner.carried, inner.limit),
        Op::Contract(Contraction { lhs, rhs, out }) => {
            let text = |labels: &[u8]| String::from_utf8_lossy(labels).into_owned();
            format!("labels \"{},{}->{}\"", text(lhs), text(rhs), text(out))
        }
        Op::Conv(conv) => format!(
            "strides {}, dilations {}, pads {}, input_dilations {}, groups {}",
            list(&conv.strides),
            list(&conv.dilations),
            pairs(&conv.pads),
            list(&conv.input_dilations),
            conv.groups
        ),
        Op::Reduce { axes, .. } => format!("axes {}", list(axes)),
        Op::ArgReduce { axis, last, .. } => format!("axis {axis}{}", flag("last", *last)),
        Op::Window { window, .. } | Op::WindowArgMax(window) => format!(
            "kernel {}, strides {}, dilations {}, pads {}",
            list(&window.kernel),
            list(&window.strides),
            list(&window.dilations),
            pairs(&window.pads)
        ),
        Op::Scan { axis, exclusive, reverse, .. } => {
            format!("axis {axis}{}{}", flag("exclusive", *exclusive), flag("reverse", *reverse))
        }
        Op::Transpose(permutation) => format!("permutation {}", list(permutation)),
        Op::Slice(axes) => {
            let entry = |slice: &SliceAxis| format!("{}:{}:{}", slice.start, slice.step, slice.count);
            format!("axes {}", list(&axes.iter().map(entry).collect::<Vec<_>>()))
        }
        Op::Pad { amounts, .. } => format!("amounts {}", pairs(amounts)),
        Op::Concat { axis } | Op::Gather { axis } | Op::GatherElements { axis } | Op::Iota { axis, .. } => format!("axis {axis}"),
        Op::BatchNorm { epsilon } => format!("epsilon {epsilon:?}"),
    };
    format!(" {{{attributes}}}")
}

fn list(items: &[impl Display]) -> String {
    format!("[{}]", items.iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", "))
}

fn pairs(items: &[(impl Display, impl Display)]) -> String {
    list(&items.iter().map(|(a, b)| format!("{a}:{b}")).collect::<Vec<_>>())
}

fn flag(name: &str, set: bool) -> String {
    if set { format!(", {name}") } else { String::new() }
}

/// An attribute as it was read.
enum Attribute {
    Flag,
    Number(f64),
    Text(String),
    /// Entries of integers joined by colons.
    List(Vec<Vec<i128>>),
}

/// The attributes of one op; each is taken once, and none may be left.
pub struct Attributes(BTreeMap<String, Attribute>);

impl Attributes {
    pub fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        let mut attributes = BTreeMap::new();
        if lexer.eat("{")? {
            loop {
                let name = lexer.word()?;
                let attribute = parse_attribute(lexer)?;
                if attributes.insert(name.clone(), attribute).is_some() {
                    return Err(lexer.error(format!("attribute '{name}' is given twice")));
                }
                if !lexer.eat(",")? {
                    break;
                }
            }
            lexer.expect("}")?;
        }
        Ok(Self(attributes))
    }

    fn take(&mut self, name: &str) -> Result<Attribute> {
        self.0.remove(name).ok_or_else(|| Error::new(format!("attribute '{name}' is missing")))
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Attribute::Flag) => Ok(true),
            Some(_) => bail!("attribute '{name}' has no value"),
        }
    }

    fn number(&mut self, name: &str) -> Result<f64> {
        match self.take(name)? {
            Attribute::Number(number) => Ok(number),
            _ => bail!("attribute '{name}' is a number"),
        }
    }

    fn size(&mut self, name: &str) -> Result<usize> {
        let number = self.number(name)?;
        let size = number as usize;
        ensure!(size as f64 == number, "attribute '{name}' is not a size");
        Ok(size)
    }

    fn text(&mut self, name: &str) -> Result<String> {
        match self.take(name)? {
            Attribute::Text(text) => Ok(text),
            _ => bail!("attribute '{name}' is a string"),
        }
    }

    fn entries<const N: usize>(&mut self, name: &str) -> Result<Vec<[i128; N]>> {
        let Attribute::List(entries) = self.take(name)? else { bail!("attribute '{name}' is a list") };
        let entry = |entry: Vec<i128>| {
            entry.try_into().map_err(|_| Error::new(format!("an entry of '{name}' has {N} numbers, joined by colons")))
        };
        entries.into_iter().map(entry).collect()
    }

    fn sizes(&mut self, name: &str) -> Result<Vec<usize>> {
        self.entries::<1>(name)?.into_iter().map(|[size]| fit(size)).collect()
    }

    fn pairs<T: TryFrom<i128>>(&mut self, name: &str) -> Result<Vec<(T, T)>> {
        self.entries::<2>(name)?.into_iter().map(|[a, b]| Ok((fit(a)?, fit(b)?))).collect()
    }

    fn window(&mut self) -> Result<Window> {
        Ok(Window {
            kernel: self.sizes("kernel")?,
            strides: self.sizes("strides")?,
            dilations: self.sizes("dilations")?,
            pads: self.pairs("pads")?,
        })
    }
}

fn fit<T: TryFrom<i128>>(number: i128) -> Result<T> {
    T::try_from(number).map_err(|_| Error::new(format!("{number} does not fit here")))
}

fn parse_attribute(lexer: &mut Lexer<'_>) -> Result<Attribute> {
    if lexer.is_punct(",") || lexer.is_punct("}") {
        return Ok(Attribute::Flag);
    }
    if lexer.eat("[")? {
        let mut entries = Vec::new();
        while !lexer.eat("]")? {
            let mut entry = vec![lexer.int()?];
            while lexer.eat(":")? {
                entry.push(lexer.int()?);
            }
            entries.push(entry);
            if !lexer.eat(",")? {
                lexer.expect("]")?;
                break;
            }
        }
        return Ok(Attribute::List(entries));
    }
    if let Token::Str(_) = lexer.peek() {
        return Ok(Attribute::Text(lexer.string()?));
    }
    let sign = if lexer.eat("-")? { -1.0 } else { 1.0 };
    match lexer.next()? {
        Token::Int(value) => Ok(Attribute::Number(sign * value as f64)),
        Token::Float(value) => Ok(Attribute::Number(sign * value)),
        other => Err(lexer.error(format!("expected the value of an attribute, found {other:?}"))),
    }
}

/// The op of a name, with the attributes and the type of the result that were read.
pub fn op(name: &str, mut attributes: Attributes, ty: &TensorType) -> Result<Op> {
    let op = op_of(name, &mut attributes, ty)?;
    if let Some(left) = attributes.0.keys().next() {
        bail!("'{name}' has no attribute '{left}'");
    }
    Ok(op)
}

fn op_of(name: &str, from: &mut Attributes, ty: &TensorType) -> Result<Op> {
    if let Some(function) = named(&UNARY, name) {
        return Ok(Op::Unary(function));
    }
    if let Some(function) = named(&BINARY, name) {
        return Ok(Op::Binary(function));
    }
    if let Some((family, kind)) = name.split_once('_').and_then(|(family, kind)| Some((family, named(&REDUCE, kind)?))) {
        match family {
            "reduce" => return Ok(Op::Reduce { kind, axes: from.sizes("axes")? }),
            "window" => return Ok(Op::Window { kind, window: from.window()? }),
            "scan" => {
                let (exclusive, reverse) = (from.flag("exclusive")?, from.flag("reverse")?);
                return Ok(Op::Scan { kind, axis: from.size("axis")?, exclusive, reverse });
            }
            _ => {}
        }
    }
    if let Some(mode) = name.strip_prefix("pad_").and_then(|mode| named(&PAD, mode)) {
        return Ok(Op::Pad { mode, amounts: from.pairs("amounts")? });
    }
    Ok(match name {
        "select" => Op::Select,
        "cast" => Op::Cast(ty.dtype),
        "bitcast" => Op::Bitcast(ty.dtype),
        "contract" => Op::Contract(contraction(&from.text("labels")?)?),
        "conv" => Op::Conv(Conv {
            strides: from.sizes("strides")?,
            dilations: from.sizes("dilations")?,
            pads: from.pairs("pads")?,
            input_dilations: from.sizes("input_dilations")?,
            groups: from.size("groups")?,
        }),
        "arg_max" | "arg_min" => Op::ArgReduce { max: name == "arg_max", axis: from.size("axis")?, last: from.flag("last")? },
        "window_arg_max" => Op::WindowArgMax(from.window()?),
        "reshape" => Op::Reshape(ty.shape.clone()),
        "transpose" => Op::Transpose(from.sizes("permutation")?),
        "slice" => {
            let axis =
                |[start, step, count]: [i128; 3]| Ok(SliceAxis { start: fit(start)?, step: fit(step)?, count: fit(count)? });
            Op::Slice(from.entries("axes")?.into_iter().map(axis).collect::<Result<_>>()?)
        }
        "concat" => Op::Concat { axis: from.size("axis")? },
        "broadcast" => Op::Broadcast(ty.shape.clone()),
        "gather" => Op::Gather { axis: from.size("axis")? },
        "gather_elements" => Op::GatherElements { axis: from.size("axis")? },
        "iota" => Op::Iota { dtype: ty.dtype, shape: ty.shape.clone(), axis: from.size("axis")? },
        // Their bodies are read behind the types.
        "loop" => Op::Loop(Box::new(Loop { body: Graph::default(), carried: from.size("carried")?, limit: from.size("limit")? })),
        "if" => Op::If(Box::new(If { then: Graph::default(), otherwise: Graph::default() })),
        "batch_norm" => Op::BatchNorm { epsilon: from.number("epsilon")? as f32 },
        _ => bail!("there is no op '{name}'"),
    })
}

fn contraction(labels: &str) -> Result<Contraction> {
    let parts = labels.split_once("->").and_then(|(operands, out)| Some((operands.split_once(',')?, out)));
    let Some(((lhs, rhs), out)) = parts else { bail!("labels are written \"mk,kn->mn\"") };
    Ok(Contraction { lhs: lhs.into(), rhs: rhs.into(), out: out.into() })
}
