//! Windows that slide over a map: how far they reach, and how the map lies.

use super::{Tiler, Walk, cost};
use crate::decide::nest::Access;
use crate::loops::AxisId;
use crate::loops::linear::{Atom, Linear};

impl Tiler<'_> {
    /// How windows slide along an axis: what some index adds to it.
    pub(super) fn window(&self, axis: AxisId) -> cost::Window {
        let pads = self.padded.iter().find(|peel| peel.axis == axis).map_or([0, 0], |peel| [peel.first, peel.last]);
        let mut found = cost::Window { pads, ..cost::Window::NONE };
        for &index in self.operands.iter().flat_map(|access| &access.index) {
            let form = Linear::of(&self.kernel.exprs, index);
            let along = |axis: AxisId| form.coefficient(Atom::Axis(axis)).unsigned_abs() as usize;
            let taps = self.reduction.axes.iter().filter(|&&axis| along(axis) > 0);
            if along(axis) > 0 {
                found.step = found.step.max(along(axis));
                found.taps = found.taps.max(taps.clone().map(|&axis| self.extent(axis)).product());
                found.span = found.span.max(1 + taps.map(|&axis| along(axis) * (self.extent(axis) - 1)).sum::<usize>());
            }
        }
        found
    }

    /// Whether neighbours along an axis slide over the same elements.
    pub(super) fn overlaps(&self, axis: AxisId) -> bool {
        let window = self.window(axis);
        window.span > window.step && self.extent(axis) > 1
    }

    /// What windows slide over along two axes of rows.
    pub(super) fn map(&self, vector: AxisId, lanes: usize, rows: [Option<AxisId>; 2]) -> Option<cost::Map> {
        let Tiler { program, kernel, layouts, ref operands, ref results, .. } = *self;
        let walk = Walk { program, kernel, layouts, operands, results, vector };
        let map = self.operands.iter().max_by_key(|access| self.program.buffers[access.buffer].ty.size_bytes())?;
        let bytes = |access: &Access, axis: Option<AxisId>| {
            let distance = axis.map_or(Some(0), |axis| self.distance(access, axis))?.unsigned_abs() as usize;
            Some((distance * self.program.buffers[access.buffer].ty.dtype.size_bits()).div_ceil(8))
        };
        let element = |axis: Option<AxisId>| Some(bytes(map, axis)? / axis.map_or(1, |axis| self.window(axis).step));
        let result = self.results.iter().find(|access| access.is_store);
        let of_results = |axis| result.and_then(|result| bytes(result, axis)).unwrap_or(0);
        let [inner, outer] = rows;
        Some(cost::Map {
            distances: [element(inner)?, element(outer)?],
            result_distances: rows.map(of_results),
            columns_first: walk.streams(lanes, self.facts),
            is_far: walk.bytes(true) > self.facts.l2_bytes,
        })
    }
}
