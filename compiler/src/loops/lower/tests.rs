//! Each op lowered and run, against the interpreter of graphs.

use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::{DType, Shape, Tensor, TensorType};

use super::lower;
use crate::graph::{BinaryFn, Builder, Contraction, Conv, Graph, Op, PadMode, ReduceFn, SliceAxis, UnaryFn, Window, interp};
use crate::loops;

/// With a few NaN, where wanted.
fn random_tensor(ty: &TensorType, random: &mut Random, nan: bool) -> Tensor {
    let number = |random: &mut Random| match ty.dtype {
        DType::Bool => Number::Int(random.below(2) as i64),
        dtype if dtype.is_float() && nan && random.chance(0.02) => Number::Float(f64::NAN),
        dtype if dtype.is_float() => Number::Float((random.between(-4.0, 4.0) * 8.0).round() / 8.0),
        dtype => {
            let (low, high) = dtype.integer_range();
            Number::Int(random.between(low.max(-9) as f64, high.min(9) as f64).round() as i64)
        }
    };
    Tensor::from_numbers(ty.clone(), (0..ty.shape.count()).map(|_| number(random)).collect::<Vec<_>>())
}

/// Both interpreters on random inputs: elements equal (or both NaN), float reductions to within rounding.
fn check(graph: &Graph) {
    let program = lower(graph);
    loops::verify::verify(&program).unwrap_or_else(|error| panic!("{error}\n{program}"));
    let text = loops::text::to_text(&program);
    assert_eq!(loops::text::to_text(&loops::text::parse(&text).unwrap()), text);
    let mut random = Random::new(3);
    // Not in the weights of a convolution: whether they meet the zeros of the padding is not defined.
    let inputs = graph.inputs.iter().enumerate().map(|(at, (_, value))| random_tensor(graph.ty(*value), &mut random, at == 0));
    let inputs: Vec<Tensor> = inputs.collect();
    let want = interp::run(graph, &inputs).unwrap();
    let got = loops::interp::run(&program, &inputs).unwrap_or_else(|error| panic!("{error}\n{program}"));
    for (place, (want, got)) in want.iter().zip(&got).enumerate() {
        assert_eq!(want.ty(), got.ty());
        for (at, (want, got)) in want.numbers().zip(got.numbers()).enumerate() {
            let epsilon = if matches!(graph.ty(graph.outputs[place].1).dtype, DType::F16 | DType::BF16) { 1e-2 } else { 1e-5 };
            let (w, g) = (want.as_f64(), got.as_f64());
            let near = w.is_nan() && g.is_nan() || w == g || (w - g).abs() <= epsilon * w.abs().max(1.0);
            let exact = matches!(want, Number::Float(_)) || want == got;
            assert!(near && exact, "output {place} element {at}: {got:?}, want {want:?}\n{:?}", graph.nodes);
        }
    }
}

/// A graph of one op over inputs of these types.
fn one(op: Op, types: &[(DType, &[usize])]) {
    let builder = Builder::new("g");
    let inputs: Vec<_> = types
        .iter()
        .enumerate()
        .map(|(at, &(dtype, shape))| builder.input(format!("x{at}"), TensorType::new(dtype, Shape::new(shape))))
        .collect();
    let result = builder.add(op.clone(), &inputs);
    builder.check().unwrap_or_else(|error| panic!("{op:?}: {error}"));
    builder.output("y", result);
    check(&builder.finish());
}

const F: DType = DType::F32;

#[test]
fn elementwise_ops() {
    for dtype in DType::ALL {
        if dtype.is_computed_with() {
            one(Op::Binary(BinaryFn::Add), &[(dtype, &[2, 3]), (dtype, &[3])]);
            one(Op::Binary(BinaryFn::Max), &[(dtype, &[2, 1, 3]), (dtype, &[4, 1])]);
            one(Op::Binary(BinaryFn::Le), &[(dtype, &[]), (dtype, &[0, 2])]);
        }
        if dtype.is_float() && dtype.is_computed_with() {
            one(Op::Unary(UnaryFn::Tanh), &[(dtype, &[7])]);
            one(
                Op::BatchNorm { epsilon: 30.0 },
                &[(dtype, &[2, 3, 2]), (dtype, &[3]), (dtype, &[3]), (dtype, &[3]), (dtype, &[3])],
            );
        }
        if !dtype.is_packed() {
            one(Op::Select, &[(DType::Bool, &[2, 3]), (dtype, &[3]), (dtype, &[2, 1])]);
        }
        for to in DType::ALL {
            one(Op::Cast(to), &[(dtype, &[3, 3])]);
        }
    }
    one(Op::Bitcast(DType::F32), &[(DType::I32, &[3])]);
    for (from, to) in [(DType::I4, DType::U4), (DType::F4E2M1, DType::I4), (DType::U4, DType::F4E2M1), (DType::U2, DType::I2)] {
        one(Op::Bitcast(to), &[(from, &[9])]);
    }
    one(Op::Bitcast(DType::F8E5M2), &[(DType::U8, &[5])]);
}

#[test]
fn movement_ops() {
    for dtype in [F, DType::Bool, DType::I4, DType::U2, DType::F8E4M3FN, DType::BF16] {
        one(Op::Transpose(vec![2, 0, 1]), &[(dtype, &[2, 3, 4])]);
        for (from, to) in [
            (vec![2, 12, 5], vec![2, 3, 4, 5]),
            (vec![6, 4], vec![4, 6]),
            (vec![4, 6], vec![3, 8]),
            (vec![1], vec![]),
            (vec![0, 3], vec![3, 0, 2]),
            (vec![2, 3, 4], vec![24]),
            (vec![5, 6], vec![1, 10, 1, 3]),
        ] {
            one(Op::Reshape(to.into()), &[(dtype, &from)]);
        }
        let axis = |start, step, count| SliceAxis { start, step, count };
        one(Op::Slice(vec![axis(5, -2, 3), axis(1, 1, 2)]), &[(dtype, &[6, 4])]);
        one(Op::Concat { axis: 1 }, &[(dtype, &[2, 3]), (dtype, &[2, 0]), (dtype, &[2, 1])]);
        one(Op::Broadcast(Shape::new([2, 3, 4])), &[(dtype, &[3, 1])]);
        one(Op::Pad { mode: PadMode::Constant, amounts: vec![(1, 2), (0, 3)] }, &[(dtype, &[2, 3]), (dtype, &[])]);
        for mode in [PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
            one(Op::Pad { mode, amounts: vec![(1, 7), (0, 3)] }, &[(dtype, &[3, 1])]);
        }
        for index in [DType::I64, DType::U8, DType::I32, DType::U64] {
            one(Op::Gather { axis: 1 }, &[(dtype, &[2, 5, 3]), (index, &[2, 2])]);
            one(Op::GatherElements { axis: 0 }, &[(dtype, &[4, 3]), (index, &[7, 2])]);
        }
    }
    for dtype in [F, DType::F16, DType::I64, DType::U8] {
        one(Op::Iota { dtype, shape: Shape::new([2, 3]), axis: 1 }, &[]);
    }
}

#[test]
fn products() {
    for dtype in [F, DType::F16, DType::F64, DType::I32, DType::I64] {
        for (lhs, rhs, out, a, b) in [
            ("mk", "kn", "mn", vec![3, 4], vec![4, 5]),
            ("bmk", "bkn", "bmn", vec![2, 3, 1], vec![2, 1, 5]),
            ("k", "k", "", vec![6], vec![6]),
            ("mk", "n", "nm", vec![2, 3], vec![4]),
            ("mk", "kn", "mn", vec![3, 0], vec![0, 5]),
        ] {
            let contraction = Contraction { lhs: lhs.into(), rhs: rhs.into(), out: out.into() };
            one(Op::Contract(contraction), &[(dtype, &a), (dtype, &b)]);
        }
    }
    let conv = |strides: &[usize], dilations: &[usize], pads: &[(i64, i64)], input: &[usize], groups| {
        Op::Conv(Conv {
            strides: strides.into(),
            dilations: dilations.into(),
            pads: pads.into(),
            input_dilations: input.into(),
            groups,
        })
    };
    for dtype in [F, DType::BF16, DType::F64] {
        one(conv(&[1, 1], &[1, 1], &[(1, 1), (1, 1)], &[1, 1], 1), &[(dtype, &[2, 3, 5, 4]), (dtype, &[4, 3, 3, 3])]);
        one(conv(&[2, 1], &[1, 2], &[(0, 1), (2, 0)], &[1, 1], 2), &[(dtype, &[1, 4, 6, 7]), (dtype, &[6, 2, 3, 2])]);
        one(conv(&[1, 2], &[1, 1], &[(1, 1), (1, 1)], &[1, 1], 3), &[(dtype, &[1, 3, 4, 5]), (dtype, &[3, 1, 3, 3])]);
        one(conv(&[1], &[1], &[(2, 2)], &[3], 1), &[(dtype, &[1, 2, 4]), (dtype, &[3, 2, 3])]);
        one(conv(&[1, 1], &[1, 1], &[(1, 1), (0, 2)], &[2, 3], 1), &[(dtype, &[1, 3, 4, 5]), (dtype, &[2, 3, 2, 4])]);
        one(conv(&[1, 1], &[2, 1], &[(-1, 2), (3, -2)], &[2, 3], 2), &[(dtype, &[1, 4, 3, 4]), (dtype, &[4, 2, 3, 1])]);
        one(conv(&[2], &[1], &[(-1, 0)], &[2], 2), &[(dtype, &[2, 2, 5]), (dtype, &[4, 1, 2])]);
        one(conv(&[1, 1], &[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1), &[(dtype, &[1, 3, 2, 2]), (dtype, &[5, 3, 1, 1])]);
        one(
            conv(&[1, 1, 1], &[1, 1, 1], &[(1, 0), (0, 1), (1, 1)], &[1, 1, 1], 1),
            &[(dtype, &[1, 2, 3, 3, 3]), (dtype, &[2, 2, 2, 2, 2])],
        );
    }
}

#[test]
fn reductions() {
    let window = |kernel: &[usize], strides: &[usize], dilations: &[usize], pads: &[(usize, usize)]| Window {
        kernel: kernel.into(),
        strides: strides.into(),
        dilations: dilations.into(),
        pads: pads.into(),
    };
    let numbers = DType::ALL.into_iter().filter(|dtype| dtype.is_computed_with());
    for dtype in numbers {
        for kind in [ReduceFn::Sum, ReduceFn::Prod, ReduceFn::Max, ReduceFn::Min, ReduceFn::MaxNumber] {
            one(Op::Reduce { kind, axes: vec![0, 2] }, &[(dtype, &[2, 3, 4])]);
            one(Op::Reduce { kind, axes: vec![1] }, &[(dtype, &[3, 1])]);
            one(Op::Reduce { kind, axes: vec![1] }, &[(dtype, &[3, 0])]);
            one(Op::Window { kind, window: window(&[2, 3], &[1, 2], &[2, 1], &[(1, 1), (0, 2)]) }, &[(dtype, &[2, 4, 5])]);
            for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                one(Op::Scan { kind, axis: 1, exclusive, reverse }, &[(dtype, &[2, 4, 2])]);
            }
        }
        for (max, last) in [(false, false), (true, false), (false, true), (true, true)] {
            one(Op::ArgReduce { max, axis: 1, last }, &[(dtype, &[2, 40, 3])]);
        }
        one(Op::WindowArgMax(window(&[2, 2], &[2, 2], &[1, 1], &[(0, 0), (0, 0)])), &[(dtype, &[1, 2, 4, 6])]);
        one(Op::WindowArgMax(window(&[3, 3], &[1, 2], &[1, 1], &[(1, 1), (1, 1)])), &[(dtype, &[2, 5, 6])]);
    }
}

/// Outputs that are inputs, constants, other outputs or read by other nodes; packed ones.
#[test]
fn outputs_of_every_kind() {
    let builder = Builder::new("g");
    let x = builder.input("x", TensorType::new(F, [2, 2]));
    let packed = builder.input("p", TensorType::new(DType::I4, [3]));
    let constant = builder.constant(Tensor::from_elements([2], &[1.5f32, 2.5]));
    let packed_constant = builder.constant(Tensor::from_numbers(TensorType::new(DType::U4, [3]), [1, 15, 8].map(Number::Int)));
    let sum = x + constant;
    let twice = sum + sum;
    let moved = packed.slice(vec![SliceAxis { start: 2, step: -1, count: 3 }]);
    for (name, wire) in [
        ("a", x),
        ("b", constant),
        ("c", sum),
        ("d", sum),
        ("e", twice),
        ("f", packed),
        ("g", moved),
        ("h", moved),
        ("i", packed_constant),
    ] {
        builder.output(name, wire);
    }
    builder.check().unwrap();
    check(&builder.finish());
}

/// Whether an index was out of range, told by the status.
#[test]
fn indices_out_of_range_set_the_status() {
    let cases: [(&[i32], u32); 4] = [(&[0, 4, -5], 0), (&[0, 5, 1], 1), (&[-6, 0, 0], 1), (&[i32::MIN, 0, i32::MAX], 1)];
    let builder = Builder::new("g");
    let x = builder.input("x", TensorType::new(F, [5]));
    let indices = builder.input("i", TensorType::new(DType::I32, [3]));
    let narrow = builder.input("n", TensorType::new(DType::I8, [5]));
    let large = builder.constant(Tensor::zeros(TensorType::new(F, [200])));
    builder.output("y", x.gather(indices, 0));
    builder.output("z", large.gather(narrow, 0));
    let program = lower(&builder.finish());
    let checks = program.kernels.iter().filter(|kernel| kernel.name.ends_with("_check_indices"));
    assert_eq!(checks.count(), 1, "an i8 is always inside of 200 elements\n{program}");
    for (indices, status) in cases {
        let x = Tensor::from_elements([5], &[0.0f32, 1.0, 2.0, 3.0, 4.0]);
        let inputs = [x, Tensor::from_elements([3], indices), Tensor::from_elements([5], &[0i8; 5])];
        let (outputs, found) = loops::interp::run_with_status(&program, &inputs).unwrap();
        assert_eq!(found, status, "{indices:?}");
        let clamped = |&at: &i32| if at < 0 { (i64::from(at) + 5).max(0) } else { i64::from(at).min(4) } as f32;
        assert_eq!(outputs[0].elements::<f32>(), indices.iter().map(clamped).collect::<Vec<f32>>());
    }
}
