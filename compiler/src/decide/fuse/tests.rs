//! Which kernels are left of small models, that they compute the same, and that their memory can be planned.

use mcc_support::random::Random;
use mcc_support::tensor::Number;
use mcc_support::{DType, Tensor, TensorType};

use super::choose;
use crate::decisions::Layout;
use crate::graph::build::{Builder, Wire};
use crate::graph::{Conv, ReduceFn, UnaryFn};
use crate::loops::lower::lower;
use crate::loops::{Program, interp};
use crate::plan;
use crate::realize::fuse::fuse;

type Build = fn(&Builder);

fn input<'b>(b: &'b Builder, name: &str, shape: &[usize]) -> Wire<'b> {
    b.input(name, TensorType::new(DType::F32, shape.to_vec()))
}

fn softmax(x: Wire<'_>, axis: usize) -> Wire<'_> {
    let e = (x - x.reduce_keep(ReduceFn::Max, &[axis])).exp();
    e / e.reduce_keep(ReduceFn::Sum, &[axis])
}

fn layer_norm<'b>(x: Wire<'b>, scale: Wire<'b>, bias: Wire<'b>) -> Wire<'b> {
    let last = x.rank() - 1;
    let count = x.shape()[last] as f64;
    let centered = x - x.reduce_keep(ReduceFn::Sum, &[last]) / count;
    let variance = (centered * centered).reduce_keep(ReduceFn::Sum, &[last]) / count;
    centered / (variance + 1e-5).sqrt() * scale + bias
}

fn gelu(x: Wire<'_>) -> Wire<'_> {
    x * ((x / std::f64::consts::SQRT_2).unary(UnaryFn::Erf) + 1.0) * 0.5
}

fn conv_3x3<'b>(x: Wire<'b>, w: Wire<'b>) -> Wire<'b> {
    x.conv(
        w,
        Conv { strides: vec![1, 1], dilations: vec![1, 1], pads: vec![(1, 1), (1, 1)], input_dilations: vec![1, 1], groups: 1 },
    )
}

/// A convolution of an input that is padded by a node of its own.
fn padded_conv(b: &Builder, extent: usize, kernel: usize) {
    let pad = (kernel / 2, kernel / 2);
    let zero = b.scalar(DType::F32, 0.0);
    let x = input(b, "x", &[1, 4, extent, extent]).pad(&[(0, 0), (0, 0), pad, pad], zero);
    let conv = Conv { strides: vec![2, 1], dilations: vec![1, 1], pads: vec![(0, 0); 2], input_dilations: vec![1, 1], groups: 1 };
    b.output("y", x.conv(input(b, "w", &[8, 4, kernel, kernel]), conv));
}

/// Each model with the kernels that are left of it.
const MODELS: &[(&str, Build, &[&str])] = &[
    (
        "a convolution with bias, residual and activation is one kernel",
        |b| {
            let (x, w) = (input(b, "x", &[1, 4, 6, 6]), input(b, "w", &[4, 4, 3, 3]));
            let (bias, residual) = (input(b, "bias", &[1, 4, 1, 1]), input(b, "residual", &[1, 4, 6, 6]));
            b.output("y", (conv_3x3(x, w) + bias + residual).max(x.like(0.0)));
        },
        &["k003_conv_add_max"],
    ),
    (
        "an activation that reads its operand twice joins the convolution",
        |b| {
            let y = conv_3x3(input(b, "x", &[1, 4, 6, 6]), input(b, "w", &[4, 4, 3, 3]));
            b.output("y", y * (y * 0.2 + 0.5).clamp(0.0, 1.0));
        },
        &["k005_conv_mul_add_max_min_mul"],
    ),
    ("a logistic function too, where a multiply-add is one instruction", logistic, &["k003_conv_add_sigmoid_mul"]),
    (
        "and gelu after a product with bias",
        |b| {
            let y = input(b, "x", &[2, 5, 8]).contract(input(b, "w", &[8, 12]), "bsk", "kn", "bsn") + input(b, "bias", &[12]);
            b.output("y", gelu(y));
        },
        &["k006_contract_add_div_erf_add_mul"],
    ),
    (
        "softmax along rows is one tree",
        |b| b.output("y", softmax(input(b, "x", &[2, 3, 5, 7]), 3)),
        &["k006_reduce_max_sub_exp_reduce_sum_div"],
    ),
    (
        "so is a layer norm",
        |b| {
            let x = input(b, "x", &[2, 5, 8]);
            b.output("y", layer_norm(x, input(b, "scale", &[8]), input(b, "bias", &[8])));
        },
        &["k012_reduce_sum_div_sub_mul_reduce_sum"],
    ),
    (
        "heads are addresses, not copies",
        |b| {
            let x = input(b, "x", &[2, 5, 8]);
            let project = |name: &str| {
                x.contract(input(b, name, &[8, 8]), "bsk", "kn", "bsn").reshape([2, 5, 2, 4].to_vec()).transpose(&[0, 2, 1, 3])
            };
            let (q, k, v) = (project("wq"), project("wk"), project("wv"));
            let scores = softmax(q.contract(k.transpose(&[0, 1, 3, 2]), "bhsd", "bhdt", "bhst") * 0.5, 3);
            let mixed = scores.contract(v, "bhst", "bhtd", "bhsd").transpose(&[0, 2, 1, 3]).reshape([2, 5, 8].to_vec());
            b.output("y", mixed.contract(input(b, "wo", &[8, 8]), "bsk", "kn", "bsn"));
        },
        &[
            "k000_contract",
            "k003_contract",
            "k006_contract",
            "k011_contract_mul",
            "k018_reduce_max_sub_exp_reduce_sum_div",
            "k021_contract",
            "k022_contract",
        ],
    ),
    (
        "a concatenation is written by its operands",
        |b| {
            let x = input(b, "x", &[1, 4, 6, 6]);
            let w = input(b, "w", &[4, 4, 3, 3]);
            let first = conv_3x3(x, w).max(x.like(0.0));
            let (low, high) = (first.slice_axis(1, 0, 2), first.slice_axis(1, 2, 2));
            let second = conv_3x3(b.concat(&[high, low], 1), w);
            b.output("y", conv_3x3(b.concat(&[first, second, low], 1), input(b, "w2", &[4, 10, 3, 3])));
        },
        &["k007_conv_max_concat", "k004_concat", "k005_concat", "k008_conv_concat", "k009_concat", "k010_conv"],
    ),
    ("an input is read across its borders", |b| padded_conv(b, 40, 3), &["k001_pad_conv"]),
    ("a small one is copied into them", |b| padded_conv(b, 12, 3), &["k000_pad", "k001_conv"]),
    ("and where the borders are wide", |b| padded_conv(b, 40, 5), &["k000_pad", "k001_conv"]),
    (
        "channels that become the last dimension are stored there",
        |b| {
            let weights: Vec<f32> = (0..96).map(|value| value as f32 / 96.0).collect();
            let w = b.constant(Tensor::from_elements([6, 4, 2, 2].to_vec(), &weights));
            let conv = Conv {
                strides: vec![2, 2],
                dilations: vec![1, 1],
                pads: vec![(0, 0); 2],
                input_dilations: vec![1, 1],
                groups: 1,
            };
            let tokens = input(b, "x", &[1, 4, 6, 6]).conv(w, conv).reshape([1, 6, 9].to_vec()).transpose(&[0, 2, 1]);
            b.output("y", layer_norm(tokens + input(b, "position", &[9, 6]), input(b, "scale", &[6]), input(b, "bias", &[6])));
        },
        &["k003_conv_add", "k016_reduce_sum_div_sub_mul_reduce_sum"],
    ),
    (
        "x - (x + 1), both of them outputs",
        |b| {
            let x = input(b, "x", &[3, 4]) * 2.0;
            let next = x + 1.0;
            b.output("next", next);
            b.output("y", x - next);
        },
        &["k002_mul_add_mul_sub"],
    ),
];

fn random_tensor(random: &mut Random, ty: &TensorType) -> Tensor {
    Tensor::from_numbers(ty.clone(), (0..ty.shape.count()).map(|_| Number::Float(random.between(-2.0, 2.0))).collect::<Vec<_>>())
}

fn names(program: &Program) -> Vec<&str> {
    program.kernels.iter().map(|kernel| kernel.name.as_str()).collect()
}

fn logistic(b: &Builder) {
    let y = conv_3x3(input(b, "x", &[1, 4, 6, 6]), input(b, "w", &[4, 4, 3, 3])) + input(b, "bias", &[4, 1, 1]);
    b.output("y", y * y.unary(UnaryFn::Sigmoid));
}

/// It would push the accumulators out of registers.
#[test]
fn a_logistic_function_of_many_instructions_stays_apart() {
    let b = Builder::new("model");
    logistic(&b);
    let (_, fused) = choose(&lower(&b.finish()), false);
    assert_eq!(names(&fused), ["k001_conv_add", "k003_sigmoid_mul"]);
}

#[test]
fn small_models_are_fused_as_expected() {
    for (what, build, expected) in MODELS {
        let b = Builder::new("model");
        build(&b);
        b.check().expect(what);
        let lowered = lower(&b.finish());
        let (fusions, fused) = choose(&lowered, true);
        assert_eq!(names(&fused), *expected, "{what}: {fusions:#?}");
        assert_eq!(fuse(&lowered, &fusions).expect(what), fused, "{what}: carried out again");
        let layouts = fused.buffers.values().map(|buffer| Layout::row_major(buffer.ty.rank())).collect();
        let mut random = Random::new(1);
        let inputs: Vec<Tensor> =
            lowered.inputs.iter().map(|&(_, input)| random_tensor(&mut random, &lowered.buffers[input].ty)).collect();
        let outputs = [&lowered, &fused].map(|program| interp::run(program, &inputs).expect(what));
        assert_eq!(outputs[0], outputs[1], "{what}: the results changed");
        let plan = plan::plan(&fused, &layouts);
        assert_eq!(plan::check::check(&fused, &plan), Vec::<String>::new(), "{what}");
    }
}
