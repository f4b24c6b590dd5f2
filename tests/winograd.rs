//! Convolutions by Winograd's transforms: random ones, in all tiles and sizes, against sums in f64.

use std::collections::BTreeMap;

use mcc::decide;
use mcc::decisions::Winograd;
use mcc::driver::{Compilation, Options, Silent, Stage, compile_graph};
use mcc::graph::op::Conv;
use mcc::graph::{Builder, Graph, UnaryFn, interp};
use mcc::loops;
use mcc::plan::check::check;
use mcc::realize;
use mcc::realize::winograd::Convolution;
use mcc::tools::exec::Executable;
use mcc_support::random::Random;
use mcc_support::{DType, Tensor, TensorType};
use mcc_tests::harness::{Link, Program};
use mcc_tests::judge::Judge;
use mcc_tests::machine::{Level, Machine};

/// A convolution, what comes after it, and its tiles.
struct Case {
    graph: Graph,
    inputs: Vec<Tensor>,
    want: Vec<Tensor>,
    outputs: usize,
    rows: usize,
    /// For messages.
    text: String,
}

fn normal(random: &mut Random, shape: &[usize]) -> Tensor {
    let uniform = |random: &mut Random| f64::from(random.below(1 << 24) as u32) / f64::from(1 << 24);
    // The sum of twelve is near to one.
    let mut number = || ((0..12).map(|_| uniform(random)).sum::<f64>() - 6.0) as f32;
    let elements: Vec<f32> = (0..shape.iter().product()).map(|_| number()).collect();
    Tensor::from_elements(shape.to_vec(), &elements)
}

/// The first are the least and the largest maps; others are random.
fn case(seed: u64) -> Case {
    let mut random = Random::new(seed);
    let outputs = [2, 4][seed as usize % 2];
    let map = match seed / 2 {
        0 => [outputs, outputs],
        1 => [17, 19],
        2 => [outputs, 19],
        _ => [outputs + random.below(20 - outputs), outputs + random.below(20 - outputs)],
    };
    let (images, channels, filters) = (1 + random.below(3), 2 + random.below(39), 2 + random.below(39));
    let pads = [(random.below(3), random.below(3)), (random.below(2), random.below(2))];
    let extent = |dim: usize| (map[dim] + 2).checked_sub(pads[dim].0 + pads[dim].1).filter(|&extent| extent > 0);
    let (pads, [height, width]) = match [extent(0), extent(1)] {
        [Some(height), Some(width)] => (pads, [height, width]),
        _ => ([(0, 0); 2], map.map(|extent| extent + 2)),
    };
    let builder = Builder::new("tiles");
    let x = builder.input("x", TensorType::new(DType::F32, [images, channels, height, width]));
    let mut inputs = vec![normal(&mut random, &[images, channels, height, width])];
    let weights = normal(&mut random, &[filters, channels, 3, 3]);
    let conv = Conv {
        strides: vec![1; 2],
        dilations: vec![1; 2],
        pads: pads.iter().map(|&(before, after)| (before as i64, after as i64)).collect(),
        input_dilations: vec![1; 2],
        groups: 1,
    };
    let mut y = x.conv(builder.constant(weights), conv);
    let epilogue = random.below(5);
    if epilogue > 0 {
        y = y + builder.constant(normal(&mut random, &[1, filters, 1, 1]));
    }
    if epilogue > 1 {
        let shape = [images, filters, map[0], map[1]];
        y = y + builder.input("residual", TensorType::new(DType::F32, shape));
        inputs.push(normal(&mut random, &shape));
    }
    if epilogue == 3 {
        y = y.max(y.like(0.0));
    }
    if epilogue == 4 {
        // Long: done in loops over the results of a tile.
        y = y * y.unary(UnaryFn::Sigmoid);
    }
    builder.output("y", y);
    let graph = builder.finish();
    let want = interp::run(&graph, &inputs).expect("inputs of the graph");
    let count = images * map[0].div_ceil(outputs);
    let groups: Vec<usize> = (1..=count).filter(|&rows| count.is_multiple_of(rows)).collect();
    let rows = *random.pick(&groups);
    let text = format!("seed {seed}: {outputs} × {outputs} results, {rows} of {count} rows together\n{graph}");
    Case { graph, inputs, want, outputs, rows, text }
}

impl Case {
    /// A build that computes the convolution in these tiles.
    fn compile(&self, level: Level, name: &str) -> Compilation {
        let options = level.options(Options { name: Some(name.into()), ..Options::new("tiles.onnx") });
        let build = |options: &Options| compile_graph(self.graph.clone(), options, &mut Silent).expect("the graph compiles");
        let plain = build(&Options { stop_after: Some(Stage::Decide), ..options.clone() });
        let fusions = plain.decisions().fusions.clone();
        let fused = realize::fuse::fuse(plain.program(), &fusions).expect("fusions that were chosen");
        let kernels = fused.kernels.iter().filter(|kernel| Convolution::of(&fused, kernel).is_ok());
        let winograd = Winograd { outputs: self.outputs, rows: self.rows };
        let winograd: BTreeMap<String, Winograd> = kernels.map(|kernel| (kernel.name.clone(), winograd)).collect();
        assert_eq!(winograd.len(), 1, "{}", self.text);
        let decisions = decide::complete(plain.program(), fusions, winograd, plain.target_name(), &plain.facts());
        let decisions = decisions.unwrap_or_else(|error| panic!("{error}\n{}", self.text));
        let compilation = build(&Options { decisions: vec![decisions], ..options });
        let kernels = compilation.linked().model.kernels();
        assert_eq!(kernels.filter_map(|(_, kernel)| kernel.winograd).collect::<Vec<_>>(), [self.outputs]);
        compilation
    }

    fn check(&self, what: &str, judge: &Judge, got: &Tensor) {
        judge.close(0, got, &self.want[0]).unwrap_or_else(|error| panic!("{what}: {error}\n{}", self.text));
        // What is proved allows for signs that never come together: of data as they are, errors are much smaller.
        let numbers = |tensor: &Tensor| tensor.numbers().map(|number| number.as_f64()).collect::<Vec<f64>>();
        let (got, want) = (numbers(got), numbers(&self.want[0]));
        let largest = want.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
        let error = got.iter().zip(&want).fold(0.0, |error: f64, (got, want)| error.max((got - want).abs()));
        assert!(error <= 4e-6 * largest, "{what} errs by {error:e} where the largest is {largest}\n{}", self.text);
    }

    fn judge(&self) -> Judge {
        Judge::of_tiles(&self.graph, &self.inputs, self.outputs)
    }
}

#[test]
fn transformed_convolutions_err_little() {
    let levels = Level::here();
    for seed in 0..36 {
        let case = case(seed);
        let judge = case.judge();
        let level = levels[seed as usize / 2 % levels.len()];
        let compilation = case.compile(level, "tiles");
        let realized = compilation.realized();
        assert_eq!(check(&realized.program, &realized.plan), Vec::<String>::new(), "{}", case.text);
        let loops = loops::interp::run(&realized.program, &case.inputs).expect("inputs of the graph");
        case.check("the interpreter of loops", &judge, &loops[0]);
        let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
        let mut binding = executable.bind(&case.inputs).expect("inputs of the graph");
        executable.run(&mut binding);
        case.check(&level.to_string(), &judge, &executable.outputs(&binding)[0]);
    }
}

#[test]
fn transformed_convolutions_err_little_on_aarch64() {
    let levels = Machine::Aarch64.levels();
    let (mut program, mut cases) = (Program::new(), Vec::new());
    for seed in 0..24 {
        let case = case(seed);
        let name = format!("tiles{seed}");
        let compilation = case.compile(levels[seed as usize % levels.len()], &name);
        program.add(name, &compilation.linked().object(), case.inputs.clone(), vec![case.want[0].ty().clone()]);
        cases.push(case);
    }
    for (case, outcome) in cases.iter().zip(program.run(Machine::Aarch64, Link::Static)) {
        case.check("aarch64", &case.judge(), &outcome.outputs[0]);
    }
}

/// A value that is no number is a part of all results of its tiles, and of no others.
#[test]
fn what_is_no_number_stays_in_its_tiles() {
    let mut case = case(7);
    let shape: Vec<usize> = case.inputs[0].shape().dims().to_vec();
    let mut elements = case.inputs[0].elements::<f32>();
    elements[0] = f32::NAN;
    case.inputs[0] = Tensor::from_elements(shape, &elements);
    let want = interp::run(&case.graph, &case.inputs).expect("inputs of the graph");
    let compilation = case.compile(Level::here()[0], "tiles");
    let got = loops::interp::run(&compilation.realized().program, &case.inputs).expect("inputs of the graph");
    let [_, filters, height, width] = want[0].shape().dims() else { panic!("a map") };
    let reach = 2 + case.outputs;
    let mut poisoned = 0;
    for (at, (got, want)) in got[0].numbers().zip(want[0].numbers()).enumerate() {
        let (image, y, x) = (at / (filters * height * width), at / width % height, at % width);
        let (got, want) = (got.as_f64().is_nan(), want.as_f64().is_nan());
        let near = image == 0 && y < reach && x < reach;
        assert!(got >= want && (near || !got), "at {image}, {y}, {x}: {got}, {want}\n{}", case.text);
        poisoned += usize::from(got);
    }
    assert!(poisoned > 0);
}
