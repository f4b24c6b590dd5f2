//! Images sampled at computed places, and images put together from blocks.

use mcc_support::{DType, Result, Shape, Tensor};

use super::OpDef;
use super::activation::widened;
use super::spatial::{pads, positive};
use crate::graph::{BinaryFn, Conv, Op, UnaryFn, Wire};

pub static ALL: &[&OpDef] = &[&AFFINE_GRID, &COL2IM, &GRID_SAMPLE];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outside {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// One spatial axis of the operand.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub extent: usize,
    pub align_corners: bool,
    pub outside: Outside,
}

/// An element along one axis: its index, its weight, and whether it exists, where that is in question.
#[derive(Clone, Copy)]
pub(super) struct Tap<'b> {
    pub index: Wire<'b>,
    pub weight: Option<Wire<'b>>,
    pub inside: Option<Wire<'b>>,
}

impl Axis {
    /// From −1 … 1 to elements.
    fn coordinate(self, x: Wire<'_>) -> Wire<'_> {
        let extent = self.extent as f64;
        if self.align_corners { (x + 1.0) / 2.0 * (extent - 1.0) } else { ((x + 1.0) * extent - 1.0) / 2.0 }
    }

    /// The borders: the outermost elements, or the outer edges of those.
    fn borders(self) -> (f64, f64) {
        let last = self.extent as f64 - 1.0;
        if self.align_corners { (0.0, last) } else { (-0.5, last + 0.5) }
    }

    /// Mirrors at the borders.
    fn reflected(self, x: Wire<'_>) -> Wire<'_> {
        let (low, high) = self.borders();
        let range = high - low;
        if range <= 0.0 {
            return x * 0.0;
        }
        let along = (x - low).abs().binary(BinaryFn::Rem, x.like(2.0 * range));
        along.min(2.0 * range - along) + low
    }

    fn moved_inside(self, x: Wire<'_>) -> Wire<'_> {
        match self.outside {
            Outside::Zeros => x,
            Outside::Border => x.clamp(0.0, self.extent as f64 - 1.0),
            Outside::Reflection => self.reflected(x),
        }
    }

    fn tap<'b>(self, place: Wire<'b>, weight: Option<Wire<'b>>) -> Tap<'b> {
        let last = self.extent as f64 - 1.0;
        let inside = (self.outside == Outside::Zeros).then(|| place.like(0.0).le(place).and(place.le(place.like(last))));
        let index = self.moved_inside(place).clamp(0.0, last).cast(DType::I64);
        Tap { index, weight, inside }
    }

    /// Around places that count elements.
    pub fn taps<'b>(self, x: Wire<'b>, mode: Mode) -> Vec<Tap<'b>> {
        if mode == Mode::Nearest {
            return vec![self.tap(self.moved_inside(x.unary(UnaryFn::Round)), None)];
        }
        // Behind the outermost element the curve goes on, through elements that stand for those that are not there.
        let x = if mode == Mode::Cubic && self.outside == Outside::Border { x } else { self.moved_inside(x) };
        let floor = x.unary(UnaryFn::Floor);
        let behind = x - floor;
        if mode == Mode::Linear {
            return vec![self.tap(floor, Some(1.0 - behind)), self.tap(floor + 1.0, Some(behind))];
        }
        const A: f64 = -0.75;
        let near = |x: Wire<'b>| (x * (A + 2.0) - (A + 3.0)) * x * x + 1.0;
        let far = |x: Wire<'b>| ((x * A - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        let ahead = 1.0 - behind;
        [(-1.0, far(behind + 1.0)), (0.0, near(behind)), (1.0, near(ahead)), (2.0, far(ahead + 1.0))]
            .map(|(offset, weight)| self.tap(floor + offset, Some(weight)))
            .to_vec()
    }
}

/// Interpolates between the elements around the places that a grid gives, innermost axis first.
pub static GRID_SAMPLE: OpDef = OpDef {
    domain: "",
    name: "GridSample",
    since: &[16, 20, 22],
    shape_inputs: &[],
    build: |node| {
        let (x, grid) = (node.input(0)?, node.input(1)?);
        let attributes = node.attributes();
        let words: &[&str] =
            if node.version() < 20 { &["bilinear", "nearest", "bicubic"] } else { &["linear", "nearest", "cubic"] };
        let mode = match attributes.word("mode", words)? {
            "nearest" => Mode::Nearest,
            "bilinear" | "linear" => Mode::Linear,
            _ => Mode::Cubic,
        };
        let outside = match attributes.word("padding_mode", &["zeros", "border", "reflection"])? {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            _ => Outside::Reflection,
        };
        let align_corners = attributes.flag("align_corners", false)?;
        let (shape, places) = (x.shape(), grid.shape());
        let axes = shape.rank().saturating_sub(2);
        let fits = axes > 0 && places.rank() == shape.rank() && places[0] == shape[0] && places.last() == Some(&axes);
        if !fits || shape.contains(&0) {
            return Err(node.error(format!("a grid {places} does not fit an operand {shape}")));
        }
        let axis = |at: usize| {
            let axis = Axis { extent: shape[at + 2], align_corners, outside };
            // The grid lists the innermost axis first.
            let coordinate = grid.slice_axis(axes + 1, axes - 1 - at, 1);
            let coordinate = coordinate.cast(grid.dtype().single_or_double());
            axis.taps(axis.coordinate(coordinate), mode)
        };
        let taps: Vec<Vec<Tap<'_>>> = (0..axes).map(axis).collect();
        let images = node.builder().iota(DType::I64, [places[0]], 0);
        let sampled = |x| sampled(x, images, &taps, &places[1..=axes], |sum, term| sum + term);
        Ok(vec![if mode == Mode::Nearest { sampled(x) } else { widened(x, sampled) }])
    },
};

/// The weighted elements of `x [batch, channels, space…]` at every combination of taps along the axes of space, combined. The taps
/// have shape `[n, out…, 1]` or broadcast to it, and `images [n]` says in which image each lies: `[n, channels, out…]`.
pub(super) fn sampled<'b>(
    x: Wire<'b>,
    images: Wire<'b>,
    taps: &[Vec<Tap<'b>>],
    out: &[usize],
    combine: impl Fn(Wire<'b>, Wire<'b>) -> Wire<'b>,
) -> Wire<'b> {
    let shape = x.shape();
    let (batch, channels, image) = (shape[0], shape[1], shape[2..].iter().product::<usize>());
    // Rows of channels, so that one index serves them all.
    let rows = x.reshape([batch, channels, image]).transpose(&[0, 2, 1]).reshape([batch * image, channels]);
    let counts: Shape = taps.iter().map(Vec::len).collect();
    let count = images.shape().count();
    let mut first = vec![1; out.len() + 2];
    first[0] = count;
    let images = (images * image as f64).reshape(first);
    let mut result: Option<Wire<'b>> = None;
    counts.for_each_index(|choice| {
        let (mut index, mut weight, mut inside) = (None::<Wire<'b>>, None::<Wire<'b>>, None::<Wire<'b>>);
        for (axis, &at) in choice.iter().enumerate() {
            let tap = taps[axis][at];
            index = Some(index.map_or(tap.index, |index| index * shape[axis + 2] as f64 + tap.index));
            weight = tap.weight.map(|factor| weight.map_or(factor, |weight| weight * factor));
            inside = tap.inside.map(|here| inside.map_or(here, |inside| inside.and(here)));
        }
        let index = index.expect("there is an axis") + images;
        let pixels = rows.gather(index.reshape([&[count], out].concat()), 0);
        let pixels = inside.map_or(pixels, |inside| inside.select(pixels, pixels.like(0.0)));
        let term = weight.map_or(pixels, |weight| pixels * weight.cast(pixels.dtype()));
        result = Some(result.map_or(term, |result| combine(result, term)));
    });
    let axes = out.len();
    let order: Vec<usize> = [0, axes + 1].into_iter().chain(1..=axes).collect();
    result.expect("there is a tap").transpose(&order)
}

/// The places that affine maps make of an even grid from −1 to 1.
pub static AFFINE_GRID: OpDef = OpDef {
    domain: "",
    name: "AffineGrid",
    since: &[20],
    shape_inputs: &[1],
    build: |node| {
        let theta = node.input(0)?;
        let size = node.constant_ints(1)?;
        let size = size.iter().map(|&extent| node.size("the extent", extent)).collect::<Result<Vec<_>>>()?;
        let align_corners = node.attributes().flag("align_corners", false)?;
        let axes = size.len().saturating_sub(2);
        if axes == 0 || theta.shape().dims() != [size[0], axes, axes + 1] {
            return Err(node.error(format!("maps {} do not fit images of shape {size:?}", theta.ty())));
        }
        let coordinate = |index: usize, extent: usize| match extent {
            1 => 0.0,
            _ if align_corners => 2.0 * index as f64 / (extent as f64 - 1.0) - 1.0,
            _ => (2.0 * index as f64 + 1.0) / extent as f64 - 1.0,
        };
        let mut places = Vec::new();
        let image = Shape::new(&size[2..]);
        if image.checked_count().is_none_or(|count| count > i32::MAX as usize) {
            return Err(node.error(format!("images of shape {size:?} are too large")));
        }
        image.for_each_index(|index| {
            places.extend(index.iter().zip(image.iter()).rev().map(|(&index, &extent)| coordinate(index, extent)));
            places.push(1.0);
        });
        let places = node.builder().constant(Tensor::from_elements([image.count(), axes + 1], &places));
        let grid = theta.contract(places.cast(theta.dtype()), "nij", "pj", "npi");
        Ok(vec![grid.reshape([&size[..1], &size[2..], &[axes]].concat())])
    },
};

/// Adds blocks up to images: a transposed convolution, in which each cell of a block has a channel.
pub static COL2IM: OpDef = OpDef {
    domain: "",
    name: "Col2Im",
    since: &[18],
    shape_inputs: &[1, 2],
    build: |node| {
        let x = node.input(0)?;
        let extents = |index: usize, what: &str| -> Result<Vec<usize>> {
            node.constant_ints(index)?.iter().map(|&extent| node.size(what, extent)).collect()
        };
        let (image, block) = (extents(1, "the extent of an image")?, extents(2, "the extent of a block")?);
        let rank = image.len();
        let (strides, dilations, pads) =
            (positive(node, "strides", rank)?, positive(node, "dilations", rank)?, pads(node, rank)?);
        let cells = Shape::new(block.clone());
        let [batch, columns, count] = *x.shape().dims() else {
            return Err(node.error(format!("the operand must have rank 3, not {}", x.ty())));
        };
        let wrong = || {
            node.error(format!("{} columns of {} do not make images of shape {image:?} by blocks of {block:?}", count, columns))
        };
        let cell_count = cells
            .checked_count()
            .filter(|&cells| cells > 0 && block.len() == rank && columns.is_multiple_of(cells))
            .ok_or_else(wrong)?;
        let (mut blocks, mut borders) = (Vec::with_capacity(rank), Vec::with_capacity(rank));
        for axis in 0..rank {
            let covered = (block[axis] as i64 - 1) * dilations[axis] as i64;
            let free = image[axis] as i64 + pads[axis].0 + pads[axis].1 - covered - 1;
            let places = usize::try_from(free / strides[axis] as i64 + 1).ok().filter(|_| free >= 0).ok_or_else(wrong)?;
            let before = covered - pads[axis].0;
            let spread = (places as i64 - 1) * strides[axis] as i64 + 1;
            blocks.push(places);
            borders.push((before, image[axis] as i64 + covered - before - spread));
        }
        if Shape::new(blocks.clone()).checked_count() != Some(count) {
            return Err(wrong());
        }
        let channels = columns / cell_count;
        // The channel of a cell goes to its place, counted from the other end as a convolution has it.
        let weights: Vec<f64> = (0..cell_count)
            .flat_map(|cell| (0..cell_count).map(move |at| f64::from(u8::from(cell + at + 1 == cell_count))))
            .collect();
        let weights = node.builder().constant(Tensor::from_elements([&[1, cell_count], &block[..]].concat(), &weights));
        // Sums of the narrower integers have the same low bits in a wider one, and those of `bool` are not 0 where one is set.
        let bits = x.dtype() == DType::U64;
        let wide = match x.dtype() {
            dtype if dtype.is_float() => x,
            DType::U64 => node.builder().add(Op::Bitcast(DType::I64), &[x]),
            DType::U32 => x.cast(DType::I64),
            DType::I64 => x,
            _ => x.cast(DType::I32),
        };
        let weights = weights.cast(wide.dtype());
        let conv = Conv { strides: vec![1; rank], dilations, pads: borders, input_dilations: strides, groups: 1 };
        let y = wide.reshape([&[batch * channels, cell_count], &blocks[..]].concat()).conv(weights, conv);
        let y = if bits { node.builder().add(Op::Bitcast(DType::U64), &[y]) } else { y.cast(x.dtype()) };
        Ok(vec![y.reshape([&[batch, channels], &image[..]].concat())])
    },
};
