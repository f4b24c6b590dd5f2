//! Random numbers, by a generator that has no state: Philox 2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! 2011) makes two words of 32 bits from a key and a counter of 64 bits, whose low word is the index of the element in the result.
//!
//! A node with a `seed` takes the bits of that float as key and 0 as the counter's high word (Dropout, whose seed is an integer: its low
//! and high word): nodes of equal seeds and shapes get equal numbers. A node without one takes [`DEFAULT_KEY`], and the FNV-1a hash of its first output's name as the high word. Every run
//! of a compiled model gives the same numbers, and so does every target.

use mcc_support::tensor::Number;
use mcc_support::{DType, Result, Shape};

use super::shape::fill;
use super::softmax::softmax;
use super::{NodeContext, OpDef};
use crate::graph::{BinaryFn, Builder, Op, ReduceFn, UnaryFn, Wire};

pub static ALL: &[&OpDef] =
    &[&BERNOULLI, &DROPOUT, &MULTINOMIAL, &RANDOM_NORMAL, &RANDOM_NORMAL_LIKE, &RANDOM_UNIFORM, &RANDOM_UNIFORM_LIKE];

pub const DEFAULT_KEY: u32 = 0x6d63_6301;

/// Numbers that belong together: one for each index.
#[derive(Clone, Copy)]
struct Stream {
    key: u32,
    high: u32,
}

impl Stream {
    fn of(node: &NodeContext<'_, '_>) -> Result<Self> {
        let seed = node.attributes().float("seed")?;
        let unseeded = Self::unseeded(node);
        Ok(seed.map_or(unseeded, |seed| Stream { key: seed.to_bits(), high: 0 }))
    }

    fn unseeded(node: &NodeContext<'_, '_>) -> Self {
        if node.is_repeated() {
            node.warn("it draws the same numbers in every round");
        }
        Stream { key: DEFAULT_KEY, high: hash(node.first_output()) }
    }

    /// The two words of each index, as u32.
    fn words<'b>(self, builder: &'b Builder, count: usize) -> [Wire<'b>; 2] {
        let low = builder.iota(DType::U32, [count], 0);
        philox(self.key, low, low.like(f64::from(self.high)))
    }

    /// Evenly spread over 0 … 1, without 1: multiples of 2^-24 in f32, of 2^-53 in f64.
    fn uniform<'b>(self, builder: &'b Builder, dtype: DType, shape: &Shape) -> Wire<'b> {
        let [first, second] = self.words(builder, shape.count());
        let bits = |word: Wire<'b>, count: u32| word.binary(BinaryFn::Shr, word.like(f64::from(32 - count))).cast(dtype);
        let number = if dtype == DType::F64 {
            (bits(first, 27) * f64::from(1 << 26) + bits(second, 26)) * libm::exp2(-53.0)
        } else {
            bits(first, 24) * libm::exp2(-24.0)
        };
        number.reshape(shape.clone())
    }

    /// Of mean 0 and variance 1, by the method of Box and Muller.
    fn normal<'b>(self, builder: &'b Builder, dtype: DType, shape: &Shape) -> Wire<'b> {
        let [first, second] = self.words(builder, shape.count());
        let [radius, angle] = [first, second].map(|word| (word.cast(dtype) + 1.0) * libm::exp2(-32.0));
        let number = (radius.log() * -2.0).sqrt() * (angle * std::f64::consts::TAU).unary(UnaryFn::Cos);
        number.reshape(shape.clone())
    }
}

/// The two words that the generator makes of a key and a counter's low and high word, all u32.
fn philox<'b>(key: u32, mut low: Wire<'b>, mut high: Wire<'b>) -> [Wire<'b>; 2] {
    const MULTIPLIER: u32 = 0xd256_d193;
    const KEY_STEP: u32 = 0x9e37_79b9;
    for round in 0..10 {
        let product = low.cast(DType::U64) * f64::from(MULTIPLIER);
        let upper = product.binary(BinaryFn::Shr, product.like(32.0)).cast(DType::U32);
        let key = low.like(f64::from(key.wrapping_add(KEY_STEP.wrapping_mul(round))));
        (low, high) = (upper.binary(BinaryFn::Xor, key).binary(BinaryFn::Xor, high), product.cast(DType::U32));
    }
    [low, high]
}

/// FNV-1a.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The dtype that the attribute names, which must be one of floats.
fn float(node: &NodeContext<'_, '_>, otherwise: DType) -> Result<DType> {
    let dtype = node.attributes().dtype("dtype")?.unwrap_or(otherwise);
    if dtype.is_float() { Ok(dtype) } else { Err(node.error(format!("random numbers are floats, not {dtype}"))) }
}

fn shape(node: &NodeContext<'_, '_>) -> Result<Shape> {
    let dims = node.attributes().required("shape", node.attributes().ints("shape")?)?;
    let shape: Shape = dims.iter().map(|&dim| node.size("the extent", dim)).collect::<Result<_>>()?;
    let bounded = shape.checked_count().is_some_and(|count| count <= u32::MAX as usize);
    if bounded { Ok(shape) } else { Err(node.error(format!("a result of shape {shape} is too large"))) }
}

fn uniform<'b>(node: &NodeContext<'_, 'b>, dtype: DType, shape: &Shape) -> Result<Vec<Wire<'b>>> {
    let (low, high) = (f64::from(node.attributes().float_or("low", 0.0)?), f64::from(node.attributes().float_or("high", 1.0)?));
    let number = Stream::of(node)?.uniform(node.builder(), dtype.single_or_double(), shape);
    Ok(vec![(number * (high - low) + low).cast(dtype)])
}

fn normal<'b>(node: &NodeContext<'_, 'b>, dtype: DType, shape: &Shape) -> Result<Vec<Wire<'b>>> {
    let (mean, scale) =
        (f64::from(node.attributes().float_or("mean", 0.0)?), f64::from(node.attributes().float_or("scale", 1.0)?));
    let number = Stream::of(node)?.normal(node.builder(), dtype.single_or_double(), shape);
    Ok(vec![(number * scale + mean).cast(dtype)])
}

macro_rules! random {
    ($ident:ident, $name:literal, $function:ident, like) => {
        pub static $ident: OpDef = OpDef {
            domain: "",
            name: $name,
            since: &[1, 22],
            shape_inputs: &[],
            build: |node| {
                let x = node.input(0)?;
                $function(node, float(node, x.dtype())?, &x.shape())
            },
        };
    };
    ($ident:ident, $name:literal, $function:ident) => {
        pub static $ident: OpDef = OpDef {
            domain: "",
            name: $name,
            since: &[1, 22],
            shape_inputs: &[],
            build: |node| $function(node, float(node, DType::F32)?, &shape(node)?),
        };
    };
}

random!(RANDOM_NORMAL, "RandomNormal", normal);
random!(RANDOM_NORMAL_LIKE, "RandomNormalLike", normal, like);
random!(RANDOM_UNIFORM, "RandomUniform", uniform);
random!(RANDOM_UNIFORM_LIKE, "RandomUniformLike", uniform, like);

/// 1 with the probability that the operand gives, else 0.
pub static BERNOULLI: OpDef = OpDef {
    domain: "",
    name: "Bernoulli",
    since: &[15, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        node.expect_dtype(x, "floats", DType::is_float)?;
        let dtype = node.attributes().dtype("dtype")?.unwrap_or(x.dtype());
        let number = Stream::of(node)?.uniform(node.builder(), x.dtype().single_or_double(), &x.shape());
        Ok(vec![number.lt(x.cast(x.dtype().single_or_double())).cast(dtype)])
    },
};

/// Drawn from classes whose probabilities are the softmax of the operand's rows.
pub static MULTINOMIAL: OpDef = OpDef {
    domain: "",
    name: "Multinomial",
    since: &[7, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        node.expect_dtype(x, "floats", DType::is_float)?;
        let &[batch, classes] = x.shape().dims() else {
            return Err(node.error(format!("the operand must have rank 2, not {}", x.ty())));
        };
        let count = node.size("the number of samples", node.attributes().int_or("sample_size", 1)?)?;
        let dtype = node.attributes().dtype("dtype")?.unwrap_or(DType::I32);
        if !matches!(dtype, DType::I32 | DType::I64) || classes == 0 {
            return Err(node.error(format!("samples of {} as {dtype} are not supported", x.ty())));
        }
        let number = Stream::of(node)?.uniform(node.builder(), x.dtype().single_or_double(), &Shape::new([batch, count]));
        Ok(vec![drawn(x.cast(number.dtype()), number).cast(dtype)])
    },
};

/// For each number of a row of `numbers [n, count]`, a class by the probabilities that a row of `[n, classes]` gives: i32.
fn drawn<'b>(logits: Wire<'b>, numbers: Wire<'b>) -> Wire<'b> {
    let (shape, count) = (logits.shape(), numbers.shape()[1]);
    let scan = Op::Scan { kind: ReduceFn::Sum, axis: 1, exclusive: false, reverse: false };
    let bounds = logits.builder().add(scan, &[softmax(logits, &[1])]);
    // The sum of all may differ from 1; a number below 1 times the sum is below the sum.
    let number = (numbers * bounds.slice_axis(1, shape[1] - 1, 1)).reshape([shape[0], count, 1]);
    let passed = bounds.reshape([shape[0], 1, shape[1]]).le(number);
    passed.cast(DType::I32).reduce(ReduceFn::Sum, &[2]).clamp(0.0, shape[1] as f64 - 1.0)
}

/// The identity, with a mask that keeps everything; in training, elements become 0 with the probability `ratio` and what is left
/// grows by as much.
pub static DROPOUT: OpDef = OpDef {
    domain: "",
    name: "Dropout",
    since: &[7, 10, 12, 13, 22],
    shape_inputs: &[],
    build: |node| {
        let x = node.input(0)?;
        let training = if node.version() < 12 { None } else { node.optional_scalar(2)? };
        let may_train = |flag: &Wire<'_>| flag.constant().is_none_or(|flag| flag.number(0).as_f64() != 0.0);
        let Some(training) = training.filter(may_train) else {
            // Neither matters where nothing is dropped.
            node.attributes().ignore(if node.version() < 12 { "ratio" } else { "seed" });
            node.optional(1);
            let dtype = if node.version() < 10 { x.dtype() } else { DType::Bool };
            let mask =
                node.wants_output(1).then(|| fill(node, dtype, Shape::scalar(), Number::Int(1)).broadcast_to(&x.extents()));
            return Ok([Some(x), mask].into_iter().flatten().collect());
        };
        // Which elements are dropped depends on where they are.
        node.expect_whole(x, 0..x.rank())?;
        let what =
            if training.constant().is_some() { "it drops elements at random" } else { "an input may make it drop elements" };
        node.warn_of_training(what);
        let ratio =
            node.optional_scalar(1)?.map_or_else(|| node.builder().scalar(DType::F32, 0.5), |ratio| ratio.cast(DType::F32));
        let seed = node.attributes().int("seed")?.map(|seed| Stream { key: seed as u32, high: (seed >> 32) as u32 });
        let number = seed.unwrap_or(Stream::unseeded(node)).uniform(node.builder(), DType::F32, &x.shape());
        let mask = ratio.le(number).binary(BinaryFn::Or, !training);
        let scale = training.select(1.0 / (1.0 - ratio), ratio.like(1.0));
        let wide = x.cast(x.dtype().single_or_double());
        Ok(vec![mask.select(wide * scale.cast(wide.dtype()), wide.like(0.0)).cast(x.dtype()), mask])
    },
};

#[cfg(test)]
mod tests {
    use mcc_support::Tensor;

    use super::*;

    /// The known answers of the generator's authors.
    #[test]
    fn the_generator_is_philox() {
        let cases = [
            (0, [0, 0], [0xff1d_ae59, 0x6cd1_0df2]),
            (u32::MAX, [u32::MAX, u32::MAX], [0x2c3f_628b, 0xab4f_d7ad]),
            (0x1319_8a2e, [0x243f_6a88, 0x85a3_08d3], [0xdd7c_e038, 0xf62a_4c12]),
        ];
        for (key, counter, want) in cases {
            let builder = Builder::new("words");
            let [low, high] = counter.map(|word: u32| builder.constant(Tensor::scalar(word)));
            let words = philox(key, low, high).map(|word| word.constant().expect("constants fold").elements::<u32>()[0]);
            assert_eq!(words, want);
        }
    }
    fn moments(wire: Wire<'_>) -> (f64, f64) {
        let values: Vec<f64> = wire.constant().expect("constants fold").numbers().map(Number::as_f64).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        (mean, values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count)
    }

    /// Means and variances, but for five standard deviations of each; streams that are not correlated with each other.
    #[test]
    fn numbers_have_their_distribution() {
        const COUNT: f64 = 1e4;
        let shape = Shape::new([COUNT as usize]);
        for dtype in [DType::F32, DType::F64] {
            let builder = Builder::new("numbers");
            let streams = [hash("a"), hash("b"), 0].map(|high| Stream { key: DEFAULT_KEY, high });
            let uniform = streams.map(|stream| stream.uniform(&builder, dtype, &shape));
            for numbers in uniform {
                let (mean, variance) = moments(numbers);
                assert!((mean - 0.5).abs() < 5.0 * libm::sqrt(1.0 / 12.0 / COUNT), "{mean}");
                assert!((variance - 1.0 / 12.0).abs() < 5.0 * libm::sqrt(1.0 / 180.0 / COUNT), "{variance}");
                let values = numbers.constant().expect("constants fold");
                assert!(values.numbers().all(|number| (0.0..1.0).contains(&number.as_f64())));
                // Of ten equal parts, by the chi-squared distribution of nine degrees of freedom.
                let mut parts = [0.0; 10];
                values.numbers().for_each(|number| parts[(number.as_f64() * 10.0) as usize] += 1.0);
                let chi: f64 =
                    parts.iter().map(|part: &f64| (part - COUNT / 10.0) * (part - COUNT / 10.0) / (COUNT / 10.0)).sum();
                assert!(chi < 33.7, "{chi}");
            }
            let (mean, _) = moments((uniform[0] - 0.5) * (uniform[1] - 0.5));
            assert!(mean.abs() < 5.0 / 12.0 / libm::sqrt(COUNT), "{mean}");
            let (mean, variance) = moments(streams[0].normal(&builder, dtype, &shape));
            assert!(
                mean.abs() < 5.0 / libm::sqrt(COUNT) && (variance - 1.0).abs() < 5.0 * libm::sqrt(2.0 / COUNT),
                "{mean} {variance}"
            );
            let normal = streams[0].normal(&builder, dtype, &shape);
            let (kurtosis, _) = moments(normal * normal * normal * normal);
            assert!((kurtosis - 3.0).abs() < 5.0 * libm::sqrt(96.0 / COUNT), "{kurtosis}");
        }
    }

    /// As often as their probabilities say, but for five standard deviations; never one of probability 0.
    #[test]
    fn classes_are_drawn_by_their_probabilities() {
        const COUNT: f64 = 1e4;
        let shares = [0.0f32, 0.1, 0.2, 0.0, 0.7, 0.0];
        let builder = Builder::new("classes");
        let logits = builder.constant(Tensor::from_elements([1, shares.len()], &shares)).log();
        let numbers = Stream { key: 1, high: 2 }.uniform(&builder, DType::F32, &Shape::new([1, COUNT as usize]));
        let drawn = drawn(logits, numbers).constant().expect("constants fold").elements::<i32>();
        for (class, &share) in shares.iter().enumerate() {
            let (found, share) = (drawn.iter().filter(|&&drawn| drawn == class as i32).count() as f64, f64::from(share));
            let deviation = libm::sqrt(COUNT * share * (1.0 - share));
            assert!((found - COUNT * share).abs() <= 5.0 * deviation, "{class}: {found}");
        }
    }
}
