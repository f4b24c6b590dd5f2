//! The steps of a tile's sum: how many stand in the body of its loop, and in how many sums each accumulator is kept.

use super::cost::{MAX_BODY, stay};
use super::{Chooser, Stride, Tile, Tiler, reduce_order};
use crate::decisions::Step;
use crate::loops::AxisId;

/// Steps of a loop are unrolled from so many rounds on.
pub const FEW_ROUNDS: usize = 16;

/// Steps that its body has, where accumulators are not very few or very many.
const STEPS: usize = 4;

/// Accumulators of a tile whose loop takes long beside a step of its sum.
const FEW_ACCUMULATORS: usize = 4;

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
        let (order, innermost) = self.innermost(broadcasts);
        let alone = order.iter().all(|&axis| matches!(self.extent(axis), 1) || self.extent(axis) == innermost);
        let may = broadcasts && innermost >= FEW_ROUNDS && (alone || innermost.is_multiple_of(8));
        if may { vec![1, 2, 4] } else { vec![1] }
    }

    /// Whether steps are left over behind a loop over the innermost ones.
    pub(super) fn has_rest(&self, broadcasts: bool) -> bool {
        let (_, innermost) = self.innermost(broadcasts);
        innermost >= FEW_ROUNDS && !innermost.is_multiple_of(STEPS)
    }

    /// The axes that reduce in order, and the extent of the innermost.
    fn innermost(&self, broadcasts: bool) -> (Vec<AxisId>, usize) {
        let order = reduce_order(self.kernel, self.reduction, broadcasts);
        let extent = self.extent(innermost(&order, |axis| self.extent(axis)));
        (order, extent)
    }
}

impl Chooser<'_> {
    /// Unrolls the steps of a tile's reduction, the innermost first, while the body stays short.
    pub(super) fn unroll_steps(&mut self, order: &[AxisId], tile: &Tile) {
        let innermost = innermost(order, |axis| self.extent(axis));
        let count: usize = tile.rows.iter().map(|rows| rows.count).product();
        let accumulators = count * tile.columns.div_ceil(tile.lane_counts[0]);
        let mut body = accumulators;
        for &axis in order.iter().rev() {
            let (name, extent) = (self.name(axis), self.extent(axis));
            // Without a loop left, the factors of windows and of small products stay in registers from tile to tile, where there are enough of
            // them.
            let steps = body / accumulators * extent;
            let all = steps == order.iter().map(|&axis| self.extent(axis)).product::<usize>();
            let crowded = all
                && match tile.broadcasts {
                    false => !stay(steps * tile.factors, accumulators, self.facts),
                    true => {
                        accumulators < FEW_ACCUMULATORS && accumulators + steps * count >= self.facts.vector_registers as usize
                    }
                };
            let fits = body * extent <= MAX_BODY && !crowded;
            if axis == innermost {
                // Part of the rounds, where the loop is still all of the body; more of them where that does little in each.
                let most = if tile.broadcasts && accumulators < FEW_ACCUMULATORS { 2 * STEPS } else { STEPS };
                let factor = [most, STEPS, STEPS / 2].into_iter().find(|&factor| accumulators * factor <= MAX_BODY);
                let factor = if fits { Some(extent) } else { factor.filter(|_| extent >= FEW_ROUNDS) };
                if let Some(factor) = factor {
                    self.unroll_rounds(&name, extent, factor, tile.sums);
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
