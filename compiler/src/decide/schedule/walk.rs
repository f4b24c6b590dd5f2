//! What a reduction reads, as the axis that runs in lanes walks through it: which loops should be around which.

use std::collections::BTreeMap;

use mcc_kernel::Facts;

use crate::decide::nest::{Access, Stride, is_constant, stride};
use crate::decisions::Layout;
use crate::loops::{AxisId, Kernel, Program};

/// The operands of a reduction, and the axis in lanes.
pub(super) struct Walk<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub layouts: &'a BTreeMap<String, Layout>,
    pub operands: &'a [Access],
    /// What is stored after it, and what is loaded for that.
    pub results: &'a [Access],
    pub vector: AxisId,
}

impl Walk<'_> {
    /// Bytes of the operands that the axis walks along, or of the others.
    pub fn bytes(&self, along: bool) -> usize {
        let moves =
            |access: &&Access| (stride(self.program, self.layouts, self.kernel, access, self.vector) != Stride::Zero) == along;
        self.operands.iter().filter(moves).map(|access| self.program.buffers[access.buffer].ty.size_bytes()).sum()
    }

    /// Whether all columns should be done before the next rows, where so many are done before those in any case. All operands of windows
    /// go along: without weights there is nothing that should stay. A pass over a map that fits no cache should use whole lines, or best
    /// all of them, while the weights of all columns stay near.
    pub fn streams(&self, columns: usize, facts: &Facts) -> bool {
        let buffer = |access: &Access| &self.program.buffers[access.buffer];
        let weights = || self.operands.iter().filter(|access| is_constant(self.program, access.buffer));
        let weight_bytes: usize = weights().map(|access| buffer(access).ty.size_bytes()).sum();
        let stored = self.results.iter().filter(|access| access.is_store);
        let stored_bytes: usize = stored.map(|access| buffer(access).ty.size_bytes()).sum();
        let bits = self.operands.iter().map(|access| buffer(access).ty.dtype.size_bits()).max().unwrap_or(8);
        let column_bytes = (columns * bits).div_ceil(8);
        let is_large = if column_bytes < facts.line_bytes {
            self.bytes(true) + stored_bytes > facts.l2_bytes && weight_bytes <= facts.l1_bytes / 4
        } else {
            self.bytes(true) > 4 * facts.l2_bytes
        };
        self.bytes(false) == 0 && (weights().next().is_none() || is_large)
    }
}
