//! What is computed from equal numbers is equal to the last bit, wherever it lies in a tile or in what is left over: channels with equal
//! filters, columns with equal weights, equal rows. Else a Softmax of equal numbers that are large is not even.

use std::collections::BTreeMap;

use mcc::driver::{Compilation, Options, Silent, compile_graph};
use mcc::graph::op::{Conv, ReduceFn};
use mcc::graph::{Builder, Graph};
use mcc::tools::exec::Executable;
use mcc_support::random::Random;
use mcc_support::{Shape, Tensor};
use mcc_tests::harness::{Link, Program};
use mcc_tests::machine::{Level, Machine};

/// A graph with one output, in which all elements along `axes` are to be equal.
struct Case {
    graph: Graph,
    inputs: Vec<Tensor>,
    axes: Vec<usize>,
    text: String,
}

/// Random elements that are the same all along some axes.
fn alike(random: &mut Random, shape: &[usize], axes: &[usize]) -> Tensor {
    let single: Vec<usize> = (0..shape.len()).map(|axis| if axes.contains(&axis) { 1 } else { shape[axis] }).collect();
    let elements: Vec<f32> = (0..single.iter().product()).map(|_| random.between(-1.0, 3.0) as f32).collect();
    let mut all = Vec::new();
    Shape::from(shape.to_vec()).for_each_index(|index| {
        let at = (0..shape.len()).fold(0, |at, axis| at * single[axis] + index[axis] % single[axis]);
        all.push(elements[at]);
    });
    Tensor::from_elements(shape.to_vec(), &all)
}

/// Of rows and columns; both factors are inputs, or one is a constant, as it lies or transposed.
fn product(random: &mut Random, builder: &Builder) -> (Vec<Tensor>, Vec<usize>) {
    let [images, rows, depth, columns] =
        [1 + random.below(2), 1 + random.below(40), 1 + random.below(300), 1 + random.below(150)];
    let x = alike(random, &[images, rows, depth], &[0, 1]);
    let wire = builder.input("x", x.ty().clone());
    let (y, second) = match random.below(3) {
        0 => (wire.contract(builder.constant(alike(random, &[depth, columns], &[1])), "bmk", "kn", "bmn"), None),
        1 => {
            let w = alike(random, &[images, depth, columns], &[0, 2]);
            (wire.contract(builder.input("w", w.ty().clone()), "bmk", "bkn", "bmn"), Some(w))
        }
        _ => {
            let w = alike(random, &[images, columns, depth], &[0, 1]);
            (wire.contract(builder.input("w", w.ty().clone()), "bmk", "bnk", "bmn"), Some(w))
        }
    };
    builder.output("y", y.max(y.like(0.0)));
    (std::iter::once(x).chain(second).collect(), vec![0, 1, 2])
}

/// With equal filters, of all channels or of one each.
fn convolution(random: &mut Random, builder: &Builder) -> (Vec<Tensor>, Vec<usize>) {
    let filters = 1 + random.below(120);
    let is_depthwise = random.chance(0.4);
    let channels = if is_depthwise { filters } else { 1 + random.below(50) };
    let [taps, stride] = [*random.pick(&[1, 3, 5]), 1 + random.below(2)];
    let map = [taps + random.below(20), taps + random.below(20)];
    let pad = random.below(taps.min(3)) as i64;
    let x = alike(random, &[1, channels, map[0], map[1]], if is_depthwise { &[1] } else { &[] });
    let depth = if is_depthwise { 1 } else { channels };
    let weights = alike(random, &[filters, depth, taps, taps], &[0]);
    let conv = Conv {
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        pads: vec![(pad, pad); 2],
        input_dilations: vec![1; 2],
        groups: if is_depthwise { filters } else { 1 },
    };
    builder.output("y", builder.input("x", x.ty().clone()).conv(builder.constant(weights), conv));
    (vec![x], vec![1])
}

/// Along rows, or along columns.
fn sums(random: &mut Random, builder: &Builder) -> (Vec<Tensor>, Vec<usize>) {
    let [rows, columns] = [1 + random.below(90), 1 + random.below(200)];
    let axis = random.below(2);
    let x = alike(random, &[rows, columns], &[1 - axis]);
    let sum = builder.input("x", x.ty().clone()).reduce(ReduceFn::Sum, &[axis]);
    builder.output("y", sum * sum.like(0.1));
    (vec![x], vec![0])
}

fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let builder = Builder::new("alike");
    let make = [product, convolution, sums][seed as usize % 3];
    let (inputs, axes) = make(&mut random, &builder);
    let graph = builder.finish();
    let text = format!("seed {seed}\n{graph}");
    Case { graph, inputs, axes, text }
}

impl Case {
    fn compile(&self, level: Level, name: &str) -> Compilation {
        let options = level.options(Options { name: Some(name.into()), ..Options::new("alike.onnx") });
        compile_graph(self.graph.clone(), &options, &mut Silent).expect("the graph compiles")
    }

    fn check(&self, level: &str, got: &Tensor) {
        let mut elements = got.elements::<f32>().into_iter();
        // By the place along the other axes.
        let mut firsts = BTreeMap::new();
        got.shape().for_each_index(|index| {
            let place: Vec<usize> = (0..index.len()).filter(|axis| !self.axes.contains(axis)).map(|axis| index[axis]).collect();
            let found = elements.next().expect("an element at each index");
            let first = *firsts.entry(place).or_insert(found);
            assert!(found.to_bits() == first.to_bits(), "{level}: {found} at {index:?}, not {first}: {}", self.text);
        });
    }
}

#[test]
fn equal_numbers_give_equal_bits() {
    let levels = Level::here();
    for seed in 0..150 {
        let case = case(seed);
        for &level in &levels {
            let compilation = case.compile(level, "alike");
            let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
            let mut binding = executable.bind(&case.inputs).expect("inputs of the graph");
            assert_eq!(executable.run(&mut binding), 0, "{}", case.text);
            case.check(&level.to_string(), &executable.outputs(&binding)[0]);
        }
    }
}

#[test]
fn equal_numbers_give_equal_bits_on_aarch64() {
    let levels = Machine::Aarch64.levels();
    let (mut program, mut cases) = (Program::new(), Vec::new());
    for seed in 0..60 {
        let case = case(seed);
        let name = format!("alike{seed}");
        let compilation = case.compile(levels[seed as usize % levels.len()], &name);
        let outputs = case.graph.outputs.iter().map(|(_, value)| case.graph.values[*value].ty.clone()).collect();
        program.add(name, &compilation.linked().object(), case.inputs.clone(), outputs);
        cases.push(case);
    }
    for (case, outcome) in cases.iter().zip(program.run(Machine::Aarch64, Link::Static)) {
        case.check("aarch64", &outcome.outputs[0]);
    }
}
