//! Random graphs whose extents a run is told, against the same graphs of fixed extents; what does not exist holds NaN and -1.

use std::iter;

use mcc::driver::{Options, Silent, compile_graph};
use mcc::graph::{Builder, Extent, Graph, Op, ReduceFn, UnaryFn, Window, Wire, interp};
use mcc::tools::exec::Executable;
use mcc_support::random::Random;
use mcc_support::{DType, Tensor};
use mcc_tests::compare::{Tolerance, compare};
use mcc_tests::machine::Level;

const TOLERANCE: Tolerance = Tolerance { relative: 1e-4, absolute: 1e-4 };
/// Graphs in the interpreter, and of those in machine code.
const GRAPHS: u64 = 400;
const COMPILED_EACH: u64 = 8;
const STEPS: usize = 6;

/// What the random choices of both graphs have in common.
struct Choices {
    seed: u64,
    /// Of the two dimensions.
    most: [usize; 2],
}

/// The graph with these extents. The same choices are made whatever they are; `None` where one is not possible with run-time extents.
fn graph(choices: &Choices, fixed: Option<[usize; 2]>) -> Option<Graph> {
    let mut random = Random::new(choices.seed);
    let builder = Builder::new("random");
    let dims = ["a", "b"].iter().zip(choices.most).enumerate().map(|(at, (name, most))| match fixed {
        Some(extents) => Extent::from(extents[at]),
        None => builder.dimension(name, 1, most),
    });
    let dims: Vec<Extent> = dims.collect();
    let shapes = [
        vec![dims[0].clone(), Extent::from(4usize), dims[1].clone()],
        vec![Extent::from(2usize), dims[0].clone(), dims[1].clone()],
    ];
    let inputs: Vec<Wire<'_>> =
        shapes.iter().enumerate().map(|(at, shape)| builder.bounded_input(&format!("x{at}"), DType::F32, shape)).collect();
    let mut wires = inputs;
    for _ in 0..STEPS {
        let x = wires[random.below(wires.len())];
        wires.push(step(&builder, &mut random, x));
        builder.check().ok()?;
    }
    let last = wires.len() - 1;
    for (at, wire) in wires[last - 1..].iter().enumerate() {
        builder.output(format!("y{at}"), *wire);
    }
    builder.check().ok()?;
    Some(builder.finish())
}

fn step<'b>(builder: &'b Builder, random: &mut Random, x: Wire<'b>) -> Wire<'b> {
    let rank = x.rank().max(1);
    let (kind, axis, other) = (random.below(14), random.below(rank), random.below(rank));
    if x.rank() == 0 {
        return x.unary(UnaryFn::Tanh);
    }
    let extents = x.extents();
    match kind {
        0 => x.unary(UnaryFn::Tanh),
        1 => x * x.reduce_keep(ReduceFn::Max, &[axis]),
        2 => {
            let exp = (x - x.reduce_keep(ReduceFn::Max, &[axis])).exp();
            exp / exp.reduce_keep(ReduceFn::Sum, &[axis])
        }
        3 if x.rank() > 1 => x.reduce([ReduceFn::Sum, ReduceFn::Min][other % 2], &[axis]),
        4 => {
            let mut permutation: Vec<usize> = (0..rank).collect();
            permutation.swap(axis, other);
            x.transpose(&permutation)
        }
        5 => x.reshape_to(&[extents.iter().fold(Extent::from(1usize), |product, extent| &product * extent)]),
        // The same elements in rows of another length.
        6 if rank > 1 => x.reshape_to(&extents.iter().rev().cloned().collect::<Vec<_>>()),
        7 => builder.concat(&[x, x.unary(UnaryFn::Neg)], axis),
        8 => {
            let mut amounts = vec![(0, 0); rank];
            amounts[axis] = (1, 2);
            x.pad(&amounts, x.like(0.5))
        }
        9 => builder.add(Op::Scan { kind: ReduceFn::Sum, axis, exclusive: other == 0, reverse: other == 1 }, &[x]) * 0.1,
        10 => {
            // A matrix product with itself.
            let labels: String = (b'a'..).take(rank).map(char::from).collect();
            let mut own = labels.clone().into_bytes();
            own[other] = b'z';
            let own = String::from_utf8(own).expect("letters");
            let out = labels.replace(char::from(b'a' + axis as u8), "");
            if axis == other { x } else { x.contract(x.unary(UnaryFn::Tanh), &labels, &own, &(out + "z")) * 0.1 }
        }
        11 => {
            let mut wide: Vec<Extent> = vec![Extent::from(3usize)];
            wide.extend(extents);
            x.broadcast_to(&wide)
        }
        12 => {
            let index = builder.add(Op::ArgReduce { max: other == 0, axis, last: other == 1 }, &[x]);
            index.cast(DType::F32)
        }
        _ => {
            let window = Window { kernel: vec![2], strides: vec![1 + other % 2], dilations: vec![1], pads: vec![(1, 1)] };
            x.window(ReduceFn::Sum, window)
        }
    }
}

/// In the interpreter of graphs, or in machine code of a level.
fn runs(graph: &Graph, inputs: &[Tensor], level: Option<Level>) -> Vec<Tensor> {
    let Some(level) = level else {
        let outputs = interp::run(graph, &graph.expand(inputs).expect("inputs of the graph")).expect("inputs of the graph");
        return graph.contract(inputs, outputs).expect("extents in their bounds");
    };
    let options = level.options(Options { name: Some("random".into()), ..Options::new("random.onnx") });
    let compilation = compile_graph(graph.clone(), &options, &mut Silent).expect("a graph");
    let mut executable = Executable::load(compilation.linked()).expect("it was made for this machine");
    let mut binding = executable.bind(inputs).expect("inputs of the graph");
    assert_eq!(executable.run(&mut binding), 0);
    executable.outputs(&binding)
}

#[test]
fn extents_of_a_run_mean_the_same_as_fixed_ones() {
    let (mut compared, mut sizes) = (0, Random::new(1));
    let levels = Level::here();
    for seed in 0..GRAPHS {
        let choices = Choices { seed, most: [1 + sizes.below(7), 1 + sizes.below(9)] };
        let extents = choices.most.map(|most| 1 + sizes.below(most));
        let (Some(bounded), Some(fixed)) = (graph(&choices, None), graph(&choices, Some(extents))) else { continue };
        let inputs: Vec<Tensor> = fixed.inputs.iter().map(|&(_, value)| sizes.tensor(fixed.ty(value))).collect();
        let want = interp::run(&fixed, &inputs).expect("inputs of the graph");
        let compiled_for: &[Level] = if seed % COMPILED_EACH == 0 { &levels } else { &[] };
        for level in iter::once(None).chain(compiled_for.iter().copied().map(Some)) {
            for (got, want) in runs(&bounded, &inputs, level).iter().zip(&want) {
                let told = || format!("seed {seed}, extents {extents:?} of {:?}, {level:?}", choices.most);
                compare(got, want, TOLERANCE).unwrap_or_else(|error| panic!("{}: {error}\n{bounded}", told()));
            }
        }
        compared += 1;
    }
    println!("{compared} compared");
    assert!(compared > GRAPHS / 2, "only {compared} graphs could be compared");
}
