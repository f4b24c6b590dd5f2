//! Bits of lanes that are likely to show a fault.

use mcc_kernel::Lane;
use mcc_support::random::Random;

const F32: [f32; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.49999997,
    8388607.5,
    -8388608.0,
    16777217.0,
    2147483648.0,
    -2147483648.0,
    4294967296.0,
    9.223372e18,
    -9.223372e18,
    1.8446744e19,
    1e-40,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

const F64: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.49999999999999994,
    4503599627370495.5,
    -4503599627370496.0,
    9007199254740993.0,
    2147483647.5,
    -2147483649.0,
    4294967295.5,
    9223372036854775808.0,
    -9223372036854775808.0,
    18446744073709551616.0,
    1e-310,
    f64::MAX,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// The bits of a lane: special ones, small numbers, or any.
pub(crate) fn lane_bits(random: &mut Random, lane: Lane) -> u64 {
    let any = random.next_u64();
    match (random.below(8), lane) {
        (0..4, Lane::F32) => u64::from(random.pick(&F32).to_bits()),
        (0..4, Lane::F64) => random.pick(&F64).to_bits(),
        (4..7, Lane::F32) => u64::from((random.between(-100.0, 100.0) as f32).to_bits()),
        (4..7, Lane::F64) => random.between(-100.0, 100.0).to_bits(),
        (0..4, _) => (1 << (lane.bits() - 1)) - (any % 3) + 1,
        (4..7, _) => (any % 9).wrapping_sub(4),
        _ => any,
    }
}

/// Lanes of random bits.
pub(crate) fn lanes(random: &mut Random, lane: Lane, count: usize) -> Vec<u8> {
    (0..count).flat_map(|_| lane_bits(random, lane).to_le_bytes().into_iter().take(lane.bytes() as usize)).collect()
}
