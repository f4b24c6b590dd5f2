//! Which convolutions with filters of 3 × 3 are computed by Winograd's transforms. Reads from top to bottom.
//!
//! They multiply 2.25 times less in tiles of 2 × 2 results and four times less in tiles of 4 × 4, but transform inputs and products, and
//! have 1.8 and 4 times as many weights, which come from memory in each run.

use std::collections::BTreeMap;

use mcc_kernel::Facts;

use super::nest::lane_counts;
use crate::decisions::{Layout, Winograd};
use crate::loops::{Kernel, Program, Role, sites};
use crate::realize::winograd::Convolution;

/// The part of the peak of multiply-adds that products reach.
const PRODUCTS: f64 = 0.9;
/// Bytes of weights that come from memory in a cycle.
const BYTES_PER_CYCLE: f64 = 6.0;
/// More weights have to save so much of the time.
const GAIN: f64 = 0.85;
/// Tiles of a group, at least, so that weights are read for many of them at once. More leave the second cache.
const TILES: usize = 14;
/// What is transformed may raise the memory of a kernel by this part of it, where the model does not need more elsewhere.
const MORE_MEMORY: usize = 4;

/// The convolutions of a fused program that are transformed, whose values lie as `layouts` say. `fixed` has, by name of weights, the
/// results of a tile that other programs have settled on.
pub fn choose(
    program: &Program,
    layouts: &BTreeMap<String, Layout>,
    facts: &Facts,
    fixed: &BTreeMap<String, usize>,
) -> BTreeMap<String, Winograd> {
    // Transforms multiply and add at once.
    if !facts.fma {
        return BTreeMap::new();
    }
    let most = program.kernels.iter().map(|kernel| touched_bytes(program, kernel)).max().unwrap_or(0);
    let chosen = |kernel: &Kernel| {
        let convolution = Convolution::of(program, kernel).ok()?;
        if !has_channels_last(program, layouts, &convolution) || is_needed_in_part(program, &convolution) {
            return None;
        }
        let outputs = match fixed.get(&program.buffers[convolution.weights].name) {
            Some(&outputs) => outputs,
            None => outputs(&convolution, facts),
        };
        let fits = outputs > 1 && convolution.map.iter().all(|&extent| extent >= outputs);
        let touched = touched_bytes(program, kernel);
        let rows = if fits { rows(&convolution, outputs, (most - touched).max(touched / MORE_MEMORY))? } else { return None };
        Some((kernel.name.clone(), Winograd { outputs, rows }))
    };
    program.kernels.iter().filter_map(chosen).collect()
}

/// By name of the weights of each convolution, the results of a tile along each dimension, 1 for none.
pub fn outputs_of_weights(program: &Program, chosen: &BTreeMap<String, Winograd>) -> BTreeMap<String, usize> {
    let of = |kernel: &Kernel| {
        let convolution = Convolution::of(program, kernel).ok()?;
        let outputs = chosen.get(&kernel.name).map_or(1, |winograd| winograd.outputs);
        Some((program.buffers[convolution.weights].name.clone(), outputs))
    };
    program.kernels.iter().filter_map(of).collect()
}

/// Whether the channels of a map are neighbours, so that they are transformed in lanes.
fn has_channels_last(program: &Program, layouts: &BTreeMap<String, Layout>, convolution: &Convolution) -> bool {
    let buffer = &program.buffers[convolution.from];
    let last = match layouts.get(&buffer.name) {
        Some(layout) => layout.coordinates.last().map(|last| last.dim),
        None => buffer.ty.rank().checked_sub(1),
    };
    last == Some(convolution.channel_dim)
}

/// Whether a run may stop before the end of a map.
fn is_needed_in_part(program: &Program, convolution: &Convolution) -> bool {
    convolution.stored().any(|buffer| program.needed.contains_key(&program.buffers[buffer].name))
}

/// Results of the cheapest tile along each dimension, 1 for none.
fn outputs(convolution: &Convolution, facts: &Facts) -> usize {
    let mut best = (1, direct_cycles(convolution, facts));
    for outputs in [2, 4] {
        let cycles = cycles(convolution, outputs, facts);
        if convolution.map.iter().all(|&extent| extent >= outputs) && cycles < GAIN * best.1 {
            best = (outputs, cycles);
        }
    }
    best.0
}

fn direct_cycles(convolution: &Convolution, facts: &Facts) -> f64 {
    let [y, x] = convolution.map;
    let pixels = (convolution.images * y * x) as f64;
    products(convolution, pixels * 9.0, facts) + weights(convolution, 9.0)
}

fn cycles(convolution: &Convolution, outputs: usize, facts: &Facts) -> f64 {
    let (tiles, inputs) = (convolution.tiles(outputs).iter().product::<usize>() as f64, (outputs + 2) as f64);
    let places = inputs * inputs;
    // Vector operations of a tile: each of the rows and columns is transformed once.
    let (of_inputs, of_products) = if outputs == 4 { (260.0, 200.0) } else { (70.0, 50.0) };
    let transforms = vectors(convolution.channels, facts) * of_inputs + vectors(convolution.filters, facts) * of_products;
    products(convolution, tiles * places, facts)
        + tiles * transforms / f64::from(facts.fmas_per_cycle)
        + weights(convolution, places)
}

fn vectors(elements: usize, facts: &Facts) -> f64 {
    elements.div_ceil(lane_counts(facts, 32).first().copied().unwrap_or(1)) as f64
}

/// Cycles to multiply all channels with all filters so many times.
fn products(convolution: &Convolution, times: f64, facts: &Facts) -> f64 {
    times * convolution.channels as f64 * vectors(convolution.filters, facts) / f64::from(facts.fmas_per_cycle) / PRODUCTS
}

/// Cycles to read weights of so many places.
fn weights(convolution: &Convolution, places: f64) -> f64 {
    4.0 * places * (convolution.channels * convolution.filters) as f64 / BYTES_PER_CYCLE
}

/// The fewest rows with enough tiles for a group, or as many as there is room for; `None` where there is none for one.
fn rows(convolution: &Convolution, outputs: usize, room_bytes: usize) -> Option<usize> {
    let [rows, columns] = convolution.tiles(outputs);
    let row_bytes = 4 * (outputs + 2).pow(2) * columns * (convolution.channels + convolution.filters);
    let groups = || (1..=rows).filter(|&group| rows.is_multiple_of(group) && group * row_bytes <= room_bytes);
    groups().find(|&group| group * columns >= TILES).or_else(|| groups().next_back())
}

/// Bytes of the tensors that a kernel computes from and to.
fn touched_bytes(program: &Program, kernel: &Kernel) -> usize {
    let (reads, writes) = sites::accesses(kernel);
    let tensors = reads.union(&writes).map(|&buffer| &program.buffers[buffer]);
    tensors.filter(|buffer| !matches!(buffer.role, Role::Constant(_))).map(|buffer| buffer.ty.size_bytes()).sum()
}
