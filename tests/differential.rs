//! Random graphs under random decisions: the interpreters of graphs, loops and kernels and the machine code of every target agree.
//!
//! What sums no float gives the same bits everywhere; sums differ by rounding. Kernels and machine code of one build give the same
//! bits always, whatever they compute.

use std::collections::BTreeMap;

use mcc::codegen::lane_of_bits;
use mcc::decide;
use mcc::decisions::{Decisions, Fusion, Step, Winograd};
use mcc::driver::{Compilation, Options, Silent, Stage, compile_graph};
use mcc::graph::{BinaryFn, Builder, Conv, Graph, Op, ReduceFn, Window, interp};
use mcc::loops::{self, Kernel, Stmt};
use mcc::realize;
use mcc::realize::winograd::Convolution;
use mcc::tools::exec::Executable;
use mcc::tools::interpret;
use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::{DType, Tensor, TensorType};
use mcc_tests::compare::same_bits;
use mcc_tests::harness::{Link, Program};
use mcc_tests::judge::Judge;
use mcc_tests::machine::{Level, Machine};
use mcc_tests::random_graph::{Config, RandomGraph, random_graph, random_inputs};

/// Seeds of the graphs that one run of the tests takes: 500, or those of `MCC_SEEDS=FIRST..END`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("MCC_SEEDS") else { return 0..500 };
    let (first, end) = text.split_once("..").expect("MCC_SEEDS is FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

fn options(level: Level, name: &str) -> Options {
    level.options(Options { name: Some(name.into()), ..Options::new("random.onnx") })
}

/// One of the levels for each seed; a third of those of each level take the decisions that are made.
fn level_of(seed: u64, levels: &[Level]) -> Level {
    levels[(seed / 3) as usize % levels.len()]
}

/// Fusions up to a random one, some convolutions in tiles, and on some kernels a random schedule in place of the one that would be chosen.
fn random_decisions(compilation: &Compilation, random: &mut Random) -> Decisions {
    let mut fusions = compilation.decisions().fusions.clone();
    fusions.truncate(random.below(fusions.len() + 1));
    let fused = realize::fuse::fuse(compilation.program(), &fusions).expect("fusions were chosen for this program");
    let winograd = random_tiles(&fused, random);
    completed(compilation, fusions, winograd, 0.5, random)
}

/// These decisions with all others, and with random schedules in place of some that would be chosen.
fn completed(
    compilation: &Compilation,
    fusions: Vec<Fusion>,
    winograd: BTreeMap<String, Winograd>,
    part: f64,
    random: &mut Random,
) -> Decisions {
    let facts = compilation.facts();
    let fused = realize::fuse::fuse(compilation.program(), &fusions).expect("fusions that fit");
    let fused = realize::winograd::apply(fused, &winograd).expect("convolutions in tiles that fit");
    let chosen = decide::complete(compilation.program(), fusions, winograd, compilation.target_name(), &facts);
    let mut decisions = chosen.expect("decisions that fit");
    for kernel in &fused.kernels {
        if random.chance(part) {
            let has = |bits, count: &usize| facts.lanes_for(lane_of_bits(bits), *count).is_some();
            let lane_counts = [32, 64].map(|bits| (1..=64).filter(|count| has(bits, count)).collect());
            let lane_counts = lanes(&fused, kernel, lane_counts);
            let schedule = random_schedule(kernel, &lane_counts, &fused, random);
            decisions.kernels.get_mut(&kernel.name).expect("each has a decision").schedule = schedule;
        }
    }
    decisions
}

/// Tiles for some of the convolutions that may be computed so.
fn random_tiles(fused: &loops::Program, random: &mut Random) -> BTreeMap<String, Winograd> {
    let mut tiles = BTreeMap::new();
    for kernel in &fused.kernels {
        let Ok(convolution) = Convolution::of(fused, kernel) else { continue };
        let outputs = *random.pick(&[2, 4]);
        if random.chance(0.8) && convolution.map.iter().all(|&extent| extent >= outputs) {
            let [count, _] = convolution.tiles(outputs);
            let groups: Vec<usize> = (1..=count).filter(|&rows| count.is_multiple_of(rows)).collect();
            tiles.insert(kernel.name.clone(), Winograd { outputs, rows: *random.pick(&groups) });
        }
    }
    tiles
}

/// Results of the largest tile along each dimension that a build takes.
fn tile(compilation: &Compilation) -> usize {
    compilation.decisions().winograd.values().map(|winograd| winograd.outputs).max().unwrap_or(1)
}

/// Splits, moves and marks that keep the meaning: each is tried, and kept unless it is refused.
fn random_schedule(kernel: &Kernel, lane_counts: &[usize], program: &loops::Program, random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut scheduled, mut buffers) = (kernel.clone(), program.buffers.clone());
    for _ in 0..random.below(6) {
        let names: Vec<String> = scheduled.axes.values().map(|axis| axis.name.clone()).collect();
        if names.is_empty() {
            break;
        }
        let axis = random.pick(&names).clone();
        let found = scheduled.axes.values().find(|found| found.name == axis).expect("picked").clone();
        let step = match random.below(7) {
            0 => Step::Split { axis, factor: 1 + random.below(found.extent.clamp(1, 9)) },
            5 => Step::Peel { axis, first: random.below(3), last: random.below(3) },
            4 => Step::Merge { outer: axis, inner: random.pick(&names).clone() },
            1 => Step::Move { axis, inside: random.chance(0.8).then(|| random.pick(&names).clone()) },
            2 if found.extent <= 4 => Step::Unroll { axis },
            6 if found.extent <= 4 => Step::Apart { axis },
            3 if lane_counts.contains(&found.extent) => Step::Vectorize { axis },
            _ => continue,
        };
        let (mut tried, mut grown) = (scheduled.clone(), buffers.clone());
        if realize::schedule::apply(&mut tried, &mut grown, std::slice::from_ref(&step)).is_ok() {
            (scheduled, buffers) = (tried, grown);
            steps.push(step);
        }
    }
    steps
}

/// Lanes that all variables and stores of a kernel fill, in all vectors that there are.
fn lanes(program: &loops::Program, kernel: &Kernel, [of_32_bits, of_64_bits]: [Vec<usize>; 2]) -> Vec<usize> {
    let mut widths = Vec::new();
    let mut add = |dtype: DType| widths.push(dtype.size_bits());
    kernel.vars.values().for_each(|&dtype| add(dtype));
    for stmt in &kernel.body {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } = stmt {
                add(program.buffers[*buffer].ty.dtype);
            }
        });
    }
    match widths.first() {
        Some(32) if widths.iter().all(|&bits| bits == 32) => of_32_bits,
        Some(64) if widths.iter().all(|&bits| bits == 64) => of_64_bits,
        _ => Vec::new(),
    }
}

fn check(what: &str, seed: u64, random: &RandomGraph, judge: &Judge, got: &[Tensor], want: &[Tensor]) {
    assert_eq!(got.len(), want.len(), "seed {seed}: {what} gives another number of outputs");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let checked = if random.exact[at] { judge.same(at, got, want) } else { judge.close(at, got, want) };
        if let Err(error) = checked {
            panic!("seed {seed}: {what} differs in output '{}': {error}\n{}", random.graph.outputs[at].0, random.graph);
        }
    }
}

struct Built {
    random: RandomGraph,
    inputs: Vec<Tensor>,
    want: Vec<Tensor>,
}

fn built(seed: u64) -> Built {
    let config = Config { max_count: 600, dtypes: DType::ALL.to_vec(), ..Config::default() };
    let random = random_graph(&mut Random::new(seed), &config);
    let inputs = random_inputs(&random.graph, seed);
    let want = interp::run(&random.graph, &inputs).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    Built { random, inputs, want }
}

/// A build of a graph under random decisions.
fn compile(graph: &Graph, options: &Options, seed: u64) -> Compilation {
    let decided = Options { stop_after: Some(Stage::Decide), ..options.clone() };
    let compilation = compile_graph(graph.clone(), &decided, &mut Silent).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let decisions = if seed.is_multiple_of(3) {
        compilation.decisions().clone()
    } else {
        random_decisions(&compilation, &mut Random::new(seed))
    };
    let options = Options { decisions: vec![decisions], ..options.clone() };
    compile_graph(graph.clone(), &options, &mut Silent).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

/// Runs a check on every seed, then fails with all those that failed.
fn for_each_seed(check: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let failed: Vec<u64> = seeds().filter(|&seed| std::panic::catch_unwind(|| check(seed)).is_err()).collect();
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn every_level_computes_the_same() {
    let levels = Level::here();
    for_each_seed(|seed| every_level_agrees(&built(seed), seed, level_of(seed, &levels)));
}

/// Windows over elements of 2 and 4 bits that reach beyond the edge: loads that share a byte, of which some are outside.
#[test]
fn packed_elements_outside_stand_for_another_value() {
    for (seed, dtype) in [DType::I4, DType::U4, DType::F4E2M1, DType::I2, DType::U2].into_iter().enumerate() {
        let builder = Builder::new("packed");
        let x = builder.input("x", TensorType::new(dtype, [1, 2, 8, 7]));
        let window = Window { kernel: vec![2, 2], strides: vec![3, 3], dilations: vec![1, 1], pads: vec![(1, 0), (1, 0)] };
        builder.output("y", x.cast(DType::F32).window(ReduceFn::MaxNumber, window));
        let random = RandomGraph { graph: builder.finish(), exact: vec![true] };
        let inputs = random_inputs(&random.graph, 7);
        let want = interp::run(&random.graph, &inputs).expect("inputs of the graph");
        // A multiple of 3 takes the decisions that are made.
        let built = Built { random, inputs, want };
        Level::here().into_iter().for_each(|level| every_level_agrees(&built, 3 * seed as u64, level));
    }
}

/// Rows that are reduced twice, in one kernel: in the lanes of f32 and in those of f64.
#[test]
fn reductions_of_different_widths_in_one_kernel() {
    let builder = Builder::new("widths");
    let x = builder.input("x", TensorType::new(DType::F32, [6, 37]));
    // One condition for a row: a mask of as many lanes as either has.
    let row = builder.input("row", TensorType::new(DType::Bool, [6, 1]));
    let chosen = row.select(x, x.like(1.0));
    let wide = (x - chosen.reduce_keep(ReduceFn::Max, &[1])).cast(DType::F64);
    builder.output("y", row.select(wide, wide.like(2.0)).reduce(ReduceFn::Sum, &[1]));
    let random = RandomGraph { graph: builder.finish(), exact: vec![false] };
    let inputs = random_inputs(&random.graph, 7);
    let want = interp::run(&random.graph, &inputs).expect("inputs of the graph");
    let built = Built { random, inputs, want };
    Level::here().into_iter().for_each(|level| every_level_agrees(&built, 0, level));
}

/// As the softmax and a normalization have them, of every length up to some vectors and a rest, more and fewer of them than run together.
#[test]
fn rows_of_every_length_that_are_summed_and_scaled() {
    for length in 1..=40 {
        let builder = Builder::new("rows");
        let x = builder.input("x", TensorType::new(DType::F32, [2, length % 6 + 1, length]));
        let exp = (x - x.reduce_keep(ReduceFn::MaxNumber, &[2])).exp();
        builder.output("softmax", exp * (1.0 / exp.reduce_keep(ReduceFn::Sum, &[2])));
        let part = 1.0 / length as f64;
        let centred = x - x.reduce_keep(ReduceFn::Sum, &[2]) * part;
        let variance = (centred * centred).reduce_keep(ReduceFn::Sum, &[2]) * part;
        builder.output("normalized", centred * (1.0 / (variance + 1.0).sqrt()));
        builder.check().expect("a graph");
        let random = RandomGraph { graph: builder.finish(), exact: vec![false, false] };
        let inputs = random_inputs(&random.graph, length as u64);
        let want = interp::run(&random.graph, &inputs).expect("inputs of the graph");
        let built = Built { random, inputs, want };
        Level::here().into_iter().for_each(|level| every_level_agrees(&built, 0, level));
    }
}

/// The greatest number of a window, whatever NaN is in it, and its place; of a window without a number, -∞ and the first place.
#[test]
fn windows_leave_out_what_is_not_a_number() {
    let small = [(2, 1, 1, 0), (3, 2, 1, 1), (5, 1, 1, 2), (3, 1, 2, 2)].map(|window| ((9, 11), window));
    // Long enough for the lanes to run along rows, and for tiles at the border.
    let large = [(3, 1, 1, 1), (5, 1, 1, 2), (3, 2, 1, 1)].map(|window| ((40, 80), window));
    for ((height, width), (kernel, stride, dilation, pad)) in small.into_iter().chain(large) {
        let builder = Builder::new("windows");
        let x = builder.input("x", TensorType::new(DType::F32, [1, 2, height, width]));
        let window =
            Window { kernel: vec![kernel; 2], strides: vec![stride; 2], dilations: vec![dilation; 2], pads: vec![(pad, pad); 2] };
        builder.output("y", x.window(ReduceFn::MaxNumber, window.clone()));
        builder.output("places", builder.add(Op::WindowArgMax(window), &[x]));
        builder.check().expect("a graph");
        let random = RandomGraph { graph: builder.finish(), exact: vec![true, true] };
        let mut numbers = Random::new(kernel as u64);
        let infinite = f64::NEG_INFINITY;
        let draw = |at: usize, numbers: &mut Random| match numbers.below(10) {
            0..4 => f64::NAN,
            4 => infinite,
            // One image begins with windows of NaN alone.
            _ if at < 5 * width => f64::NAN,
            _ => numbers.below(9) as f64 - 4.0,
        };
        let x: Vec<f64> = (0..2 * height * width).map(|at| draw(at, &mut numbers)).collect();
        let along = |extent: usize| (extent + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
        let (mut values, mut places) = (Vec::new(), Vec::new());
        for (image, row, column) in
            (0..2).flat_map(|i| (0..along(height)).flat_map(move |r| (0..along(width)).map(move |c| (i, r, c))))
        {
            let cells =
                (0..kernel).flat_map(|r| (0..kernel).map(move |c| (row * stride + r * dilation, column * stride + c * dilation)));
            let inside = cells.filter(|&(r, c)| (pad..pad + height).contains(&r) && (pad..pad + width).contains(&c));
            let mut best = (infinite, None);
            for place in inside.map(|(r, c)| (r - pad) * width + c - pad) {
                let number = x[image * height * width + place];
                let nothing_before = best.1.is_none_or(|place: usize| x[image * height * width + place].is_nan());
                if number > best.0 || best.1.is_none() || nothing_before && !number.is_nan() {
                    best = (number.max(infinite), Some(place));
                }
            }
            values.push(best.0 as f32);
            places.push(best.1.expect("a window has a cell") as i64);
        }
        let shape = [1, 2, along(height), along(width)];
        let inputs = vec![Tensor::from_elements([1, 2, height, width], &x.iter().map(|&x| x as f32).collect::<Vec<_>>())];
        let want = interp::run(&random.graph, &inputs).expect("inputs of the graph");
        assert_eq!(
            want,
            [Tensor::from_elements(shape, &values), Tensor::from_elements(shape, &places)],
            "{kernel} {stride} {dilation}"
        );
        let built = Built { random, inputs, want };
        Level::here().into_iter().for_each(|level| every_level_agrees(&built, 0, level));
    }
}

/// A convolution with padding of all kinds: uneven, wider than the kernel, of maps one element wide, strided, dilated, grouped, of weights
/// of which some are infinite.
fn padded_convolution(random: &mut Random) -> RandomGraph {
    let builder = Builder::new("padded");
    let per_group = *random.pick(&[1, 1, 2, 3]);
    let groups = if per_group == 1 { *random.pick(&[1, 5, 8, 17, 32]) } else { 1 + random.below(2) };
    let filters = if per_group == 1 && groups > 1 { groups } else { groups * *random.pick(&[1, 9, 16]) };
    let axis = |random: &mut Random| (1 + random.below(5), 1 + random.below(3), 1 + random.below(2));
    let (axes, mut shape, mut pads) = ([axis(random), axis(random)], vec![1, groups * per_group], Vec::new());
    for (taps, _, dilation) in axes {
        let span = (taps - 1) * dilation + 1;
        let mut pad = || if random.chance(0.1) { span + random.below(3) } else { random.below(span) };
        let (before, after) = (pad(), pad());
        let least = span.saturating_sub(before + after).max(1);
        shape.push(if random.chance(0.1) { least } else { least + random.below(14) });
        pads.push((before as i64, after as i64));
    }
    let mut weights = Tensor::from_numbers(
        TensorType::new(DType::F32, [filters, per_group, axes[0].0, axes[1].0]),
        (0..filters * per_group * axes[0].0 * axes[1].0).map(|_| Number::Float(random.below(17) as f64 / 8.0 - 1.0)),
    );
    if random.chance(0.1) {
        let numbers: Vec<Number> =
            weights.numbers().enumerate().map(|(at, n)| if at == 0 { Number::Float(f64::INFINITY) } else { n }).collect();
        weights = Tensor::from_numbers(weights.ty().clone(), numbers);
    }
    let x = builder.input("x", TensorType::new(DType::F32, shape));
    let conv = Conv {
        strides: axes.iter().map(|axis| axis.1).collect(),
        dilations: axes.iter().map(|axis| axis.2).collect(),
        pads,
        input_dilations: vec![1, 1],
        groups,
    };
    let y = x.conv(builder.constant(weights), conv);
    builder.output("y", y.binary(BinaryFn::Max, y.like(0.0)));
    RandomGraph { graph: builder.finish(), exact: vec![false] }
}

/// Decisions in which windows read a map across its borders, whatever that costs, as chosen and at random.
fn decisions_across_borders(compilation: &Compilation, random: &mut Random) -> Option<Decisions> {
    let mut fusions = compilation.decisions().fusions.clone();
    let name =
        |word: &str| compilation.program().kernels.iter().map(|kernel| &kernel.name).find(|name| name.ends_with(word)).cloned();
    let read = fusions.iter().any(|fusion| matches!(fusion, Fusion::Inline { producer, .. } if producer.ends_with("_pad")));
    if !read {
        let last = fusions.iter().rev().find_map(|fusion| match fusion {
            Fusion::Epilogue { producer, consumer } if producer.ends_with("_conv") => Some(consumer.clone()),
            _ => None,
        });
        fusions.push(Fusion::Inline { producer: name("_pad")?, consumer: last.or_else(|| name("_conv"))? });
    }
    Some(completed(compilation, fusions, BTreeMap::new(), 0.3, random))
}

#[test]
fn windows_that_read_across_borders_compute_the_same() {
    let levels = Level::here();
    for_each_seed(|seed| {
        let mut generator = Random::new(seed);
        let random = padded_convolution(&mut generator);
        let inputs = random_inputs(&random.graph, seed);
        let options = options(levels[seed as usize % levels.len()], "padded");
        let decided = Options { stop_after: Some(Stage::Decide), ..options.clone() };
        let compilation = compile_graph(random.graph.clone(), &decided, &mut Silent).expect("it compiles");
        // Padding written out: an infinite weight gives NaN with it.
        let (want, _) = loops::interp::run_with_status(compilation.program(), &inputs).expect("the lowered program runs");
        let Some(decisions) = decisions_across_borders(&compilation, &mut generator) else { return };
        let options = Options { decisions: vec![decisions], ..options };
        let compilation = compile_graph(random.graph.clone(), &options, &mut Silent).expect("the decisions fit");
        every_level_of(&compilation, &Built { random, inputs, want }, seed);
    });
}

/// In the interpreters and in machine code of this CPU.
fn every_level_agrees(built: &Built, seed: u64, level: Level) {
    every_level_of(&compile(&built.random.graph, &options(level, "random"), seed), built, seed);
}

fn every_level_of(compilation: &Compilation, built: &Built, seed: u64) {
    let Built { random, inputs, want } = built;
    let judge = Judge::of_tiles(&random.graph, inputs, tile(compilation));
    let (loops, status) = loops::interp::run_with_status(&compilation.realized().program, inputs)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", random.graph));
    check("the interpreter of loops", seed, random, &judge, &loops, want);
    let kernels = interpret::run(compilation, inputs).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    check("the interpreter of kernels", seed, random, &judge, &kernels, want);
    let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
    let mut binding = executable.bind(inputs).expect("inputs of the graph");
    assert_eq!(executable.run(&mut binding) as u32, status, "seed {seed}: the status");
    for (machine, kernel) in executable.outputs(&binding).iter().zip(&kernels) {
        same_bits(machine, kernel).unwrap_or_else(|error| panic!("seed {seed}: machine code: {error}\n{}", random.graph));
    }
}

/// Linked into one program with guarded buffers, which also checks what a call may touch.
fn linked_programs_compute_the_same(levels: &[Level]) {
    let (mut program, mut cases) = (Program::new(), Vec::new());
    for seed in seeds() {
        let Built { random, inputs, want } = built(seed);
        let name = format!("random{seed}");
        let level = level_of(seed, levels);
        let compilation = compile(&random.graph, &options(level, &name), seed);
        let judge = Judge::of_tiles(&random.graph, &inputs, tile(&compilation));
        let (_, status) =
            loops::interp::run_with_status(compilation.program(), &inputs).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        program.add(name, &compilation.linked().object(), inputs, want.iter().map(|tensor| tensor.ty().clone()).collect());
        cases.push((seed, level, random, judge, want, status));
    }
    let outcomes = program.run(levels[0].machine, if levels[0].bare { Link::Board } else { Link::Static });
    for ((seed, level, random, judge, want, status), outcome) in cases.iter().zip(outcomes) {
        assert_eq!(outcome.status as u32, *status, "seed {seed} for {level}: the status");
        check(&level.to_string(), *seed, random, judge, &outcome.outputs, want);
    }
}

#[test]
fn linked_programs_compute_the_same_on_x86_64() {
    let mut levels = Machine::X86_64.levels();
    // Other ones than in this process.
    levels.rotate_left(1);
    linked_programs_compute_the_same(&levels);
}

#[test]
fn linked_programs_compute_the_same_on_aarch64() {
    let levels = Machine::Aarch64.levels();
    linked_programs_compute_the_same(&levels.into_iter().filter(|level| !level.bare).collect::<Vec<_>>());
}

#[test]
fn linked_programs_compute_the_same_with_aligned_accesses_only() {
    let levels = Machine::Aarch64.levels();
    linked_programs_compute_the_same(&levels.into_iter().filter(|level| level.bare).collect::<Vec<_>>());
}

/// A value too large to be folded, all of whose elements are the same, is reduced without a load.
#[test]
fn reductions_of_one_repeated_value_compute_the_same() {
    let levels = Level::here();
    for (at, kind) in [ReduceFn::Sum, ReduceFn::Prod, ReduceFn::Max, ReduceFn::Min, ReduceFn::MaxNumber].into_iter().enumerate() {
        let builder = Builder::new("repeated");
        let wire = builder.scalar(DType::F32, -1.0).broadcast([(1 << 20) + 1]).reduce(kind, &[0]);
        builder.output("y", wire);
        builder.check().expect("a reduction");
        let graph = builder.finish();
        let want = interp::run(&graph, &[]).expect("a graph without inputs");
        let compilation =
            compile_graph(graph, &options(levels[at % levels.len()], "repeated"), &mut Silent).expect("it compiles");
        let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
        let mut binding = executable.bind(&[]).expect("no inputs");
        assert_eq!(executable.run(&mut binding), 0);
        same_bits(&executable.outputs(&binding)[0], &want[0]).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}
