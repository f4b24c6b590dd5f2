//! The attributes that convolutions and pools share: strides, dilations and pads along each spatial axis.

use mcc_support::Result;

use super::NodeContext;
use crate::graph::Wire;

/// A window that slides over one spatial axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slide {
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    pub pads: (i64, i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AutoPad {
    /// The pads are given.
    NotSet,
    Valid,
    /// As many results as there are strides in the input; what is odd goes to the end.
    SameUpper,
    /// The same; what is odd goes to the beginning.
    SameLower,
}

impl Slide {
    /// Elements from the first cell of a window to its last.
    pub fn covered(&self) -> i64 {
        (self.kernel as i64 - 1).saturating_mul(self.dilation as i64).saturating_add(1)
    }

    /// With the pads that `auto_pad` stands for in an input of this extent.
    fn auto_padded(mut self, auto_pad: AutoPad, extent: usize) -> Self {
        if auto_pad != AutoPad::NotSet {
            self.pads = (0, 0);
        }
        if matches!(auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
            let count = extent.div_ceil(self.stride) as i64;
            let reached = (count - 1).saturating_mul(self.stride as i64).saturating_add(self.covered());
            let total = reached.saturating_sub(extent as i64).max(0);
            self.pads = split_pads(total, auto_pad != AutoPad::SameLower);
        }
        self
    }
}

/// Divides an amount in two, the larger part at the end or at the beginning.
pub(super) fn split_pads(total: i64, more_at_end: bool) -> (i64, i64) {
    let half = total / 2;
    if more_at_end { (half, total - half) } else { (total - half, half) }
}

pub(super) fn auto_pad(node: &NodeContext<'_, '_>) -> Result<AutoPad> {
    Ok(match node.attributes().word("auto_pad", &["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])? {
        "VALID" => AutoPad::Valid,
        "SAME_UPPER" => AutoPad::SameUpper,
        "SAME_LOWER" => AutoPad::SameLower,
        _ => AutoPad::NotSet,
    })
}

/// A list of positive numbers with one entry for each spatial axis; ones by default.
pub(super) fn positive(node: &NodeContext<'_, '_>, name: &str, rank: usize) -> Result<Vec<usize>> {
    let Some(values) = node.attributes().ints(name)? else { return Ok(vec![1; rank]) };
    if values.len() != rank {
        return Err(node.error(format!("attribute '{name}' has {} entries for {rank} spatial axes", values.len())));
    }
    let positive = |&value: &i64| usize::try_from(value).ok().filter(|&value| value > 0 && value <= u32::MAX as usize);
    values
        .iter()
        .map(|value| {
            positive(value).ok_or_else(|| node.error(format!("attribute '{name}' holds {value}, which is not a positive extent")))
        })
        .collect()
}

/// The attribute `pads`: those before, then those after each spatial axis.
pub(super) fn pads(node: &NodeContext<'_, '_>, rank: usize) -> Result<Vec<(i64, i64)>> {
    let values = node.attributes().ints("pads")?.unwrap_or_else(|| vec![0; 2 * rank]);
    if values.len() != 2 * rank {
        return Err(node.error(format!("attribute 'pads' has {} entries for {rank} spatial axes", values.len())));
    }
    if let Some(amount) = values.iter().find(|amount| amount.unsigned_abs() > u64::from(u32::MAX)) {
        return Err(node.error(format!("attribute 'pads' holds {amount}, which is too large")));
    }
    Ok((0..rank).map(|axis| (values[axis], values[axis + rank])).collect())
}

/// The windows of a convolution or a pool over the spatial axes of `x`, the dilations only `if dilated`.
pub(super) fn slides<'b>(node: &NodeContext<'_, 'b>, x: Wire<'b>, kernel: &[usize], dilated: bool) -> Result<Vec<Slide>> {
    let shape = x.shape();
    let extents = &shape[2..];
    let rank = extents.len();
    let strides = positive(node, "strides", rank)?;
    let dilations = if dilated { positive(node, "dilations", rank)? } else { vec![1; rank] };
    let pads = pads(node, rank)?;
    let auto_pad = auto_pad(node)?;
    if matches!(auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
        // With a stride, the pads depend on the extent.
        node.expect_whole(x, (0..rank).filter(|&axis| strides[axis] != 1).map(|axis| axis + 2))?;
    }
    let slide = |axis: usize| {
        let slide = Slide { kernel: kernel[axis], stride: strides[axis], dilation: dilations[axis], pads: pads[axis] };
        slide.auto_padded(auto_pad, extents[axis])
    };
    Ok((0..rank).map(slide).collect())
}
