//! The steps of a tile's sum: how many stand in the body of its loop, and in how many sums each accumulator is kept.

use mcc_support::Shape;

use super::{Chooser, MAX_BODY, Stride, Tile, Tiler, reduce_order};
use crate::decide::cost::Problem;
use crate::decisions::Step;
use crate::loops::AxisId;

/// Steps of a loop are unrolled from so many rounds on.
pub const FEW_ROUNDS: usize = 16;

/// Accumulators of a tile whose loop takes long beside a step of its sum.
const FEW_ACCUMULATORS: usize = 4;

/// What tiles have of an axis, by the name of the loop whose rounds are done together: full ones, and rests.
pub type Parts = Vec<(String, usize)>;

/// A loop over the steps of tiles of one size.
struct Sum {
    axis: String,
    accumulators: usize,
    sums: usize,
}

/// The axis whose steps are neighbours: the innermost that has several.
pub fn innermost(order: &[AxisId], extent: impl Fn(AxisId) -> usize) -> AxisId {
    let last = *order.last().expect("an axis reduces");
    order.iter().rev().copied().find(|&axis| extent(axis) > 1).unwrap_or(last)
}

impl Tiler<'_> {
    /// Bytes between neighbouring rows of what is the same in all lanes.
    pub(super) fn row_bytes(&self, rows: AxisId, vector: AxisId, bits: usize) -> usize {
        let broadcast = self.operands.iter().find(|access| self.stride(access, vector) == Stride::Zero);
        let distance = broadcast.and_then(|access| self.distance(access, rows));
        distance.map_or(0, |distance| distance.unsigned_abs() as usize * bits / 8)
    }

    /// In how many sums the accumulators of a tile may be kept: more than one where a loop is left over the innermost steps, and, where
    /// there are loops around that, has no rest.
    pub(super) fn sums(&self, broadcasts: bool) -> Vec<usize> {
        let order = reduce_order(self.kernel, self.reduction, broadcasts);
        let innermost = self.extent(innermost(&order, |axis| self.extent(axis)));
        let alone = order.iter().all(|&axis| matches!(self.extent(axis), 1) || self.extent(axis) == innermost);
        let may = broadcasts && innermost >= FEW_ROUNDS && (alone || innermost.is_multiple_of(8));
        if may { vec![1, 2, 4] } else { vec![1] }
    }
}

impl Chooser<'_> {
    /// Unrolls the steps of a tile's reduction, the innermost first, while the body stays short. `rows` and `columns` are the parts that
    /// tiles have of each axis.
    pub(super) fn unroll_steps(&mut self, order: &[AxisId], tile: &Tile, rows: &[Parts], columns: &Parts) {
        let innermost = innermost(order, |axis| self.extent(axis));
        let count: usize = tile.rows.iter().map(|rows| rows.count).product();
        let accumulators = count * tile.columns.div_ceil(tile.lane_counts[0]);
        let sums = match &tile.problem {
            Some(problem) if problem.sums.len() > 1 => self.loops_over(innermost, problem, rows, columns),
            _ => vec![Sum { axis: self.name(innermost), accumulators, sums: 1 }],
        };
        let mut body = accumulators;
        for &axis in order.iter().rev() {
            let (name, extent) = (self.name(axis), self.extent(axis));
            // Without a loop left, the factors of windows and of small products stay in registers from tile to tile, where there are enough of
            // them.
            let steps = body / accumulators * extent;
            let all = steps == order.iter().map(|&axis| self.extent(axis)).product::<usize>();
            let factors = match tile.broadcasts {
                false => tile.factors,
                true if accumulators < FEW_ACCUMULATORS => count,
                true => 0,
            };
            let crowded = all && accumulators + steps * factors >= self.facts.vector_registers as usize;
            let fits = body * extent <= MAX_BODY && !crowded;
            if axis == innermost {
                for sum in &sums {
                    // Part of the rounds, where the loop is still all of the body; more of them where that does little in each.
                    let most = if tile.broadcasts && sum.accumulators < FEW_ACCUMULATORS { 8 } else { 4 };
                    let factor = [most, 4, 2].into_iter().find(|&factor| sum.accumulators * factor <= MAX_BODY);
                    let factor = if fits { Some(extent) } else { factor.filter(|_| extent >= FEW_ROUNDS) };
                    if let Some(factor) = factor {
                        self.unroll_rounds(&sum.axis, extent, factor, sum.sums);
                    }
                }
            } else if fits {
                self.unroll(name);
            }
            if !fits {
                return;
            }
            body *= extent;
        }
    }

    /// The loops over the steps of an axis, the first that of full tiles: rests have one of their own where they are kept in another number
    /// of sums.
    fn loops_over(&mut self, axis: AxisId, problem: &Problem, rows: &[Parts], columns: &Parts) -> Vec<Sum> {
        let name = self.name(axis);
        let mut found: Vec<Sum> = Vec::new();
        let counts: Shape = rows.iter().chain([columns]).map(Vec::len).collect();
        let mut combinations: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
        counts.for_each_index(|index| {
            let parts = rows.iter().chain([columns]).zip(index);
            combinations.push(parts.map(|(parts, &at)| parts[at].clone()).unzip());
        });
        for (inside, sizes) in combinations {
            let (&vectors, rows) = sizes.split_last().expect("the columns");
            let size = |at: usize| rows.get(at).copied().unwrap_or(1);
            let sums = problem.sums([size(0), size(1)], vectors, self.facts);
            let accumulators = sizes.iter().product();
            match found.len() {
                0 => found.push(Sum { axis: name.clone(), accumulators, sums }),
                _ if found[0].sums == sums => {}
                part => {
                    let own = format!("{name}.{part}");
                    self.steps.push(Step::Own { axis: name.clone(), inside, name: own.clone() });
                    found.push(Sum { axis: own, accumulators, sums });
                }
            }
        }
        found
    }

    /// Unrolls an axis of this extent by a factor, as so many sums.
    fn unroll_rounds(&mut self, name: &str, extent: usize, factor: usize, sums: usize) {
        let split = |chooser: &mut Self, by: usize| {
            chooser.split(name, by);
            if !extent.is_multiple_of(by) {
                chooser.unroll(format!("{name}.t"));
            }
        };
        if factor < extent {
            split(self, factor);
            self.unroll_rounds(&format!("{name}.i"), factor, factor, sums);
        } else if sums == 1 {
            self.unroll(name.into());
        } else if sums == extent {
            self.steps.push(Step::Apart { axis: name.into() });
        } else {
            split(self, sums);
            self.unroll(format!("{name}.o"));
            self.steps.push(Step::Apart { axis: format!("{name}.i") });
        }
    }
}
