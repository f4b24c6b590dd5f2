//! Convolutions with filters of 3 × 3 as products of transformed tiles: fewer multiplications for more memory.
//!
//! ```text
//! for m, y, x { a = 0; for c, ky, kx { a = a + x[c, y + ky, x + kx] * w[m, c, ky, kx] }; y[m, y, x] = f(a) }
//!     → for b {
//!         for r, s, c { inputs[p, t, c] = (Bᵀ x[c, tile t of b] B)[p] for each p, where t = r · (tiles of a row) + s }
//!         for p, m, t { a = 0; for c { a = a + inputs[p, t, c] * u[p, c, m] }; products[p, t, m] = a }
//!         for r, s, m { y[m, tile t of b] = f(Aᵀ products[.., t, m] A) } }
//! ```
//!
//! Where a map is not a whole number of tiles, the last tile of a row or column lies over the one before it, so that all of it is inside,
//! and stores only what that did not.

pub mod transform;

use std::collections::BTreeMap;

use mcc_support::{DType, Error, Result, TensorType, bail, ensure};

use super::fuse::rewrite::{Copier, Load, compact, drop_unit_axes, fresh_axis, shell, simplify};
use crate::decisions::Winograd;
use crate::loops::linear::{Atom, Linear};
use crate::loops::sites;
use crate::loops::{
    Axis, AxisId, AxisKind, AxisMode, Binary, Buffer, BufferId, Expr, ExprId, Kernel, Program, Role, Stmt, VarId,
};
use transform::{FILTER, Transform};

/// More operations on each result are not written out for all results of a tile.
const LONG: usize = 12;

/// Rewrites the kernels that are named, of a fused program.
pub fn apply(mut program: Program, decisions: &BTreeMap<String, Winograd>) -> Result<Program> {
    for (name, decision) in decisions {
        let place = program.kernels.iter().position(|kernel| kernel.name == *name);
        let Some(place) = place else { bail!("there is no kernel '{name}' to be transformed") };
        let rewritten = rewritten(&mut program, place, *decision);
        program.kernels[place] = rewritten.map_err(|error| error.context(format!("in kernel '{name}', to be transformed")))?;
    }
    Ok(if decisions.is_empty() { program } else { compact(&program) })
}

fn rewritten(program: &mut Program, place: usize, decision: Winograd) -> Result<Kernel> {
    let transform = Transform::new(decision.outputs)?;
    let convolution = Convolution::of(program, &program.kernels[place])?;
    let [rows, columns] = convolution.tiles(decision.outputs);
    let [y, x] = convolution.map;
    ensure!(y >= decision.outputs && x >= decision.outputs, "a map of {y} × {x} is smaller than a tile");
    ensure!(decision.rows > 0 && rows.is_multiple_of(decision.rows), "{rows} rows are not in groups of {}", decision.rows);
    let buffers = Buffers::add(program, place, &convolution, &transform, decision.rows * columns)?;
    let kernel = &program.kernels[place];
    let writer = Writer { kernel, convolution: &convolution, transform: &transform, buffers, decision };
    Ok(writer.write())
}

/// A convolution of f32 with constant filters of 3 × 3 that neither skips nor spreads, in one group.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Results along y and x.
    pub map: [usize; 2],
    pub images: usize,
    pub channels: usize,
    pub filters: usize,
    /// What is loaded from in each round, and the weights.
    pub from: BufferId,
    pub weights: BufferId,
    /// The dimension of channels of what is loaded from.
    pub channel_dim: usize,
    image: Option<AxisId>,
    /// Of filters, y, x, channels, and the two of a filter.
    axes: [AxisId; 6],
    load: ExprId,
    /// Dimensions of the weights: of filters, channels, y and x.
    dims: [usize; 4],
    sum: VarId,
    stores: Vec<Stmt>,
}

impl Convolution {
    /// What a kernel computes.
    ///
    /// # Errors
    ///
    /// Why it is no such convolution.
    pub fn of(program: &Program, kernel: &Kernel) -> Result<Self> {
        let not = || Error::new("this is no convolution of f32 with filters of 3 × 3 that neither skips nor spreads");
        Self::find(program, kernel).ok_or_else(not)
    }

    fn find(program: &Program, kernel: &Kernel) -> Option<Self> {
        let (spatial, body) = sites::outer_loops(kernel);
        let [Stmt::Set { var, value: zero }, reduction @ Stmt::Loop { .. }, stores @ ..] = body else { return None };
        let plain = |stmt: &Stmt| matches!(stmt, Stmt::Store { guard: None, .. });
        let is_zero = *kernel.exprs.get(*zero) == Expr::Const(DType::F32, 0);
        if !is_zero || stores.is_empty() || !stores.iter().all(plain) {
            return None;
        }
        let mut reducing = Vec::new();
        let mut body = std::slice::from_ref(reduction);
        while let [Stmt::Loop { axis, body: inner }] = body {
            reducing.push(*axis);
            body = inner;
        }
        let [Stmt::Set { var: sum, value }] = body else { return None };
        let reduces = |axis: &AxisId| kernel.axes[*axis].kind == AxisKind::Reduce;
        let whole = |axis: &AxisId| kernel.axes[*axis].limit.is_none() && kernel.axes[*axis].mode == AxisMode::Serial;
        if sum != var || !reducing.iter().all(reduces) || !spatial.iter().chain(&reducing).all(whole) {
            return None;
        }
        let (load, weights) = factors(program, kernel, *sum, *value)?;
        let Expr::Load { buffer: from, index, dtype: DType::F32, .. } = kernel.exprs.get(load) else { return None };
        let Expr::Load { buffer: weights, index: of_weights, otherwise: None, .. } = kernel.exprs.get(weights) else {
            return None;
        };
        let window = Window::of(kernel, index, &spatial, &reducing)?;
        let filter = spatial.iter().copied().find(|axis| ![window.y, window.x].contains(axis) && Some(*axis) != window.image)?;
        let dim = |axis: AxisId| of_weights.iter().position(|&index| *kernel.exprs.get(index) == Expr::Axis(axis));
        let dims = [dim(filter)?, dim(window.channel)?, dim(window.ky)?, dim(window.kx)?];
        let extent = |axis: AxisId| kernel.axes[axis].extent;
        let axes = [filter, window.y, window.x, window.channel, window.ky, window.kx];
        let all = spatial.len() == 3 + usize::from(window.image.is_some()) && reducing.len() == 3 && of_weights.len() == 4;
        (all && extent(window.ky) == FILTER && extent(window.kx) == FILTER).then(|| Self {
            map: [extent(window.y), extent(window.x)],
            images: window.image.map_or(1, extent),
            channels: extent(window.channel),
            filters: extent(filter),
            from: *from,
            weights: *weights,
            channel_dim: window.channel_dim,
            image: window.image,
            axes,
            load,
            dims,
            sum: *sum,
            stores: stores.to_vec(),
        })
    }

    /// Rows of tiles of all images, and tiles of a row.
    pub fn tiles(&self, outputs: usize) -> [usize; 2] {
        let [rows, columns] = self.map.map(|extent| extent.div_ceil(outputs));
        [self.images * rows, columns]
    }

    /// What results are stored to.
    pub fn stored(&self) -> impl Iterator<Item = BufferId> {
        self.stores.iter().filter_map(|stmt| match stmt {
            Stmt::Store { buffer, .. } => Some(*buffer),
            _ => None,
        })
    }
}

/// The loads of `sum + a · b`: first of a computed value, then of a constant.
fn factors(program: &Program, kernel: &Kernel, sum: VarId, value: ExprId) -> Option<(ExprId, ExprId)> {
    let [_, a, b] = sites::added_product(&kernel.exprs, sum, value)?;
    let is_constant = |expr| match kernel.exprs.get(expr) {
        Expr::Load { buffer, .. } => matches!(program.buffers[*buffer].role, Role::Constant(_)),
        _ => false,
    };
    match (is_constant(a), is_constant(b)) {
        (false, true) => Some((a, b)),
        (true, false) => Some((b, a)),
        _ => None,
    }
}

/// The axes in an index of `image, channel, y + ky, x + kx` in any order of dimensions.
struct Window {
    image: Option<AxisId>,
    channel: AxisId,
    channel_dim: usize,
    y: AxisId,
    x: AxisId,
    ky: AxisId,
    kx: AxisId,
}

impl Window {
    fn of(kernel: &Kernel, index: &[ExprId], spatial: &[AxisId], reducing: &[AxisId]) -> Option<Self> {
        let (mut images, mut channels, mut slides) = (Vec::new(), Vec::new(), Vec::new());
        for (dim, &index) in index.iter().enumerate() {
            let form = Linear::of(&kernel.exprs, index);
            let mut axes = [Vec::new(), Vec::new()];
            for (&atom, &coefficient) in &form.terms {
                let Atom::Axis(axis) = atom else { return None };
                if coefficient != 1 {
                    return None;
                }
                axes[usize::from(reducing.contains(&axis))].push(axis);
            }
            match (&axes[0][..], &axes[1][..]) {
                ([], []) => {}
                (&[image], []) if form.constant == 0 => images.push(image),
                ([], &[channel]) if form.constant == 0 => channels.push((channel, dim)),
                (&[along], &[filter]) => slides.push((along, filter)),
                _ => return None,
            }
        }
        let (&[(channel, channel_dim)], &[(y, ky), (x, kx)]) = (&channels[..], &slides[..]) else { return None };
        let image = match images[..] {
            [] => None,
            [image] => Some(image),
            _ => return None,
        };
        let mut all = vec![y, x, channel, ky, kx];
        all.extend(image);
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        (all.len() == count && all.iter().all(|axis| spatial.contains(axis) || reducing.contains(axis))).then_some(Self {
            image,
            channel,
            channel_dim,
            y,
            x,
            ky,
            kx,
        })
    }
}

/// What a transformed convolution has besides its own buffers.
#[derive(Clone, Copy)]
struct Buffers {
    /// Of a tile's places, tiles, channels.
    inputs: BufferId,
    /// Of a tile's places, channels, filters.
    weights: BufferId,
    /// Of a tile's places, tiles, filters.
    products: BufferId,
    /// Of a tile's results, filters, where much is done with each of them.
    results: Option<BufferId>,
}

impl Buffers {
    fn add(program: &mut Program, place: usize, convolution: &Convolution, transform: &Transform, tiles: usize) -> Result<Self> {
        let name = program.kernels[place].name.clone();
        let places = transform.inputs() * transform.inputs();
        let &Convolution { channels, filters, .. } = convolution;
        let inputs = local(program, format!("{name}_inputs"), &[places, tiles, apart(channels)])?;
        let products = local(program, format!("{name}_products"), &[places, tiles, filters])?;
        let outputs = transform.inputs() + 1 - FILTER;
        let is_long = operations(&program.kernels[place], &convolution.stores) > LONG;
        let results = || local(program, format!("{name}_results"), &[outputs * outputs, filters]);
        let results = is_long.then(results).transpose()?;
        let weights = &program.buffers[convolution.weights];
        let Role::Constant(tensor) = &weights.role else { unreachable!("a convolution has constant weights") };
        // Another kernel may have the same weights and tiles.
        let name = format!("{}_winograd{outputs}", weights.name);
        let found = program.buffers.iter().find(|(_, buffer)| buffer.name == name).map(|(id, _)| id);
        if let Some(found) = found {
            let expected = [places, channels, filters];
            ensure!(program.buffers[found].ty.shape.dims() == expected, "there is another buffer '{name}'");
            return Ok(Self { inputs, weights: found, products, results });
        }
        let shape = tensor.shape().dims();
        let strides: Vec<usize> = (0..shape.len()).map(|dim| shape[dim + 1..].iter().product()).collect();
        let dims = convolution.dims;
        let at = |index: [usize; 4]| index.iter().zip(dims).map(|(&index, dim)| index * strides[dim]).sum();
        let tensor = transform.weights(tensor, [filters, channels], at);
        let weights = program.buffers.push(Buffer { name, ty: tensor.ty().clone(), role: Role::Constant(tensor) });
        Ok(Self { inputs, weights, products, results })
    }
}

/// Elements from one tile's channels to the next: rows that are whole pages apart would share few lines of a cache.
fn apart(channels: usize) -> usize {
    if channels.is_multiple_of(512) { channels + 16 } else { channels }
}

/// How many operations statements do on what is no index.
fn operations(kernel: &Kernel, stmts: &[Stmt]) -> usize {
    let is_operation = |id: &ExprId| {
        !matches!(kernel.exprs.get(*id), Expr::Const(..) | Expr::Load { .. } | Expr::Var(_))
            && kernel.exprs.dtype(*id) != DType::I64
    };
    sites::reachable(kernel, stmts.iter().flat_map(Stmt::exprs).collect()).iter().filter(|id| is_operation(id)).count()
}

fn local(program: &mut Program, name: String, shape: &[usize]) -> Result<BufferId> {
    ensure!(program.buffers.values().all(|buffer| buffer.name != name), "there is another buffer '{name}'");
    Ok(program.buffers.push(Buffer { name, ty: TensorType::new(DType::F32, shape.to_vec()), role: Role::Local }))
}

struct Writer<'a> {
    kernel: &'a Kernel,
    convolution: &'a Convolution,
    transform: &'a Transform,
    buffers: Buffers,
    decision: Winograd,
}

/// A tile of a group.
struct Tile {
    /// Around it.
    loops: [AxisId; 2],
    /// In its group.
    number: ExprId,
    image: ExprId,
    /// Results along y and x: the first that it stores, and the first that it computes.
    stored: [ExprId; 2],
    first: [ExprId; 2],
}

impl Writer<'_> {
    fn write(&self) -> Kernel {
        let mut kernel = shell(self.kernel);
        let [rows, _] = self.convolution.tiles(self.decision.outputs);
        let group = axis(&mut kernel, "b", rows / self.decision.rows, AxisKind::Spatial);
        let mut body = self.transform_inputs(&mut kernel, group);
        body.extend(self.multiply(&mut kernel));
        body.extend(self.transform_products(&mut kernel, group));
        kernel.body = Stmt::loops(&[group], body);
        drop_unit_axes(&kernel)
    }

    fn places(&self) -> usize {
        self.transform.inputs()
    }

    /// The tile of a group in loops of its own.
    fn tile(&self, kernel: &mut Kernel, group: AxisId) -> Tile {
        let Winograd { outputs, rows } = self.decision;
        let [_, columns] = self.convolution.tiles(outputs);
        let loops = [axis(kernel, "r", rows, AxisKind::Spatial), axis(kernel, "s", columns, AxisKind::Spatial)];
        let map = self.convolution.map;
        let of_image = map[0].div_ceil(outputs) as i64;
        let exprs = &mut kernel.exprs;
        let [group, row, column] = [group, loops[0], loops[1]].map(|axis| exprs.axis(axis));
        let mut scaled = |by: usize, term: ExprId, plus: ExprId| {
            let by = exprs.int(by as i64);
            let product = exprs.binary(Binary::Mul, term, by);
            exprs.binary(Binary::Add, product, plus)
        };
        let (number, row) = (scaled(columns, row, column), scaled(rows, group, row));
        let of_image = exprs.int(of_image);
        let image = exprs.binary(Binary::DivFloor, row, of_image);
        let row = exprs.binary(Binary::Mod, row, of_image);
        let image = simplify(kernel, image);
        let mut stored = [row, column];
        let mut first = stored;
        for dim in 0..2 {
            let [size, last] = [outputs, map[dim] - outputs].map(|number| kernel.exprs.int(number as i64));
            stored[dim] = kernel.exprs.binary(Binary::Mul, stored[dim], size);
            first[dim] = kernel.exprs.binary(Binary::Min, stored[dim], last);
            [stored[dim], first[dim]] = [stored[dim], first[dim]].map(|index| simplify(kernel, index));
        }
        Tile { loops, number, image, stored, first }
    }

    /// The tiles of a group, transformed.
    fn transform_inputs(&self, kernel: &mut Kernel, group: AxisId) -> Vec<Stmt> {
        let channel_axis = axis(kernel, "c", self.convolution.channels, AxisKind::Spatial);
        let tile = self.tile(kernel, group);
        let channel = kernel.exprs.axis(channel_axis);
        let count = self.places();
        let mut body = Vec::new();
        let mut columns = Vec::new();
        for x in 0..count {
            let column: Vec<ExprId> = (0..count).map(|y| self.input(kernel, &tile, channel, [y, x])).collect();
            let column = self.transform.input(&mut kernel.exprs, &column);
            columns.push(column.into_iter().map(|value| set(kernel, &mut body, value)).collect::<Vec<_>>());
        }
        for y in 0..count {
            let row: Vec<ExprId> = columns.iter().map(|column| column[y]).collect();
            for (x, value) in self.transform.input(&mut kernel.exprs, &row).into_iter().enumerate() {
                let place = kernel.exprs.int((y * count + x) as i64);
                let index = vec![place, tile.number, channel];
                body.push(Stmt::Store { buffer: self.buffers.inputs, index, value, guard: None });
            }
        }
        Stmt::loops(&[tile.loops[0], tile.loops[1], channel_axis], body)
    }

    /// An input of a tile.
    fn input(&self, kernel: &mut Kernel, tile: &Tile, channel: ExprId, [y, x]: [usize; 2]) -> ExprId {
        let mut keep = |_: &mut Kernel, _: &Load| None;
        let mut copier = Copier::new(self.kernel, &mut keep);
        let [_, y_axis, x_axis, channel_axis, ky, kx] = self.convolution.axes;
        let (y, x) = (kernel.exprs.int(y as i64), kernel.exprs.int(x as i64));
        for (axis, by) in [(y_axis, tile.first[0]), (x_axis, tile.first[1]), (channel_axis, channel), (ky, y), (kx, x)] {
            copier.replace_axis(axis, by);
        }
        if let Some(image) = self.convolution.image {
            copier.replace_axis(image, tile.image);
        }
        copier.expr(kernel, self.convolution.load)
    }

    /// For each place of a tile, the products of all tiles of a group with all filters, summed over channels.
    fn multiply(&self, kernel: &mut Kernel) -> Vec<Stmt> {
        let &Convolution { channels, filters, .. } = self.convolution;
        let place = axis(kernel, "p", self.places() * self.places(), AxisKind::Spatial);
        let filter = axis(kernel, "m", filters, AxisKind::Spatial);
        let [_, columns] = self.convolution.tiles(self.decision.outputs);
        let tile = axis(kernel, "t", self.decision.rows * columns, AxisKind::Spatial);
        let channel = axis(kernel, "c", channels, AxisKind::Reduce);
        let sum = kernel.var(DType::F32);
        let exprs = &mut kernel.exprs;
        let [p, m, t, c] = [place, filter, tile, channel].map(|axis| exprs.axis(axis));
        let input = exprs.load(self.buffers.inputs, DType::F32, vec![p, t, c]);
        let weight = exprs.load(self.buffers.weights, DType::F32, vec![p, c, m]);
        let product = exprs.binary(Binary::Mul, input, weight);
        let before = exprs.var(sum, DType::F32);
        let (zero, after) = (exprs.f32(0.0), exprs.binary(Binary::Add, before, product));
        let body = vec![
            Stmt::Set { var: sum, value: zero },
            Stmt::Loop { axis: channel, body: vec![Stmt::Set { var: sum, value: after }] },
            Stmt::Store { buffer: self.buffers.products, index: vec![p, t, m], value: before, guard: None },
        ];
        Stmt::loops(&[place, filter, tile], body)
    }

    /// The results of a group of tiles.
    fn transform_products(&self, kernel: &mut Kernel, group: AxisId) -> Vec<Stmt> {
        let filter_axis = axis(kernel, "m", self.convolution.filters, AxisKind::Spatial);
        let tile = self.tile(kernel, group);
        let filter = kernel.exprs.axis(filter_axis);
        let count = self.places();
        let mut body = Vec::new();
        let mut columns = Vec::new();
        for x in 0..count {
            let load = |y: usize| {
                let place = kernel.exprs.int((y * count + x) as i64);
                kernel.exprs.load(self.buffers.products, DType::F32, vec![place, tile.number, filter])
            };
            let column: Vec<ExprId> = (0..count).map(load).collect();
            let column = self.transform.output(&mut kernel.exprs, &column);
            columns.push(column.into_iter().map(|value| set(kernel, &mut body, value)).collect::<Vec<_>>());
        }
        let outputs = self.decision.outputs;
        for y in 0..outputs {
            let row: Vec<ExprId> = columns.iter().map(|column| column[y]).collect();
            for (x, value) in self.transform.output(&mut kernel.exprs, &row).into_iter().enumerate() {
                match self.buffers.results {
                    Some(buffer) => {
                        let index = vec![kernel.exprs.int((y * outputs + x) as i64), filter];
                        body.push(Stmt::Store { buffer, index, value, guard: None });
                    }
                    None => {
                        let at = [y, x].map(|offset| kernel.exprs.int(offset as i64));
                        self.store(kernel, &mut body, &tile, filter, (at, [y, x]), value);
                    }
                }
            }
        }
        let mut nests = Stmt::loops(&[filter_axis], body);
        if let Some(buffer) = self.buffers.results {
            nests.extend(self.store_results(kernel, &tile, buffer));
        }
        Stmt::loops(&tile.loops, nests)
    }

    /// What is done with the results of a tile, in loops over them.
    fn store_results(&self, kernel: &mut Kernel, tile: &Tile, results: BufferId) -> Vec<Stmt> {
        let outputs = self.decision.outputs;
        let [y_axis, x_axis] = ["y", "x"].map(|name| axis(kernel, name, outputs, AxisKind::Spatial));
        let filter_axis = axis(kernel, "m", self.convolution.filters, AxisKind::Spatial);
        let [y, x, filter] = [y_axis, x_axis, filter_axis].map(|axis| kernel.exprs.axis(axis));
        let width = kernel.exprs.int(outputs as i64);
        let row = kernel.exprs.binary(Binary::Mul, y, width);
        let place = kernel.exprs.binary(Binary::Add, row, x);
        let value = kernel.exprs.load(results, DType::F32, vec![place, filter]);
        let mut body = Vec::new();
        self.store(kernel, &mut body, tile, filter, ([y, x], [0; 2]), value);
        Stmt::loops(&[y_axis, x_axis, filter_axis], body)
    }

    /// Stores the result at some place of a tile, of which the least is known, where no tile before it does.
    fn store(
        &self,
        kernel: &mut Kernel,
        body: &mut Vec<Stmt>,
        tile: &Tile,
        filter: ExprId,
        (at, least): ([ExprId; 2], [usize; 2]),
        value: ExprId,
    ) {
        let sum = kernel.var(DType::F32);
        body.push(Stmt::Set { var: sum, value });
        let mut index = tile.first;
        let mut guard = None;
        for dim in 0..2 {
            index[dim] = kernel.exprs.binary(Binary::Add, tile.first[dim], at[dim]);
            index[dim] = simplify(kernel, index[dim]);
            // In the last tile the first results are those of the one before it.
            let (outputs, rest) = (self.decision.outputs, self.convolution.map[dim] % self.decision.outputs);
            if rest > 0 && least[dim] < outputs - rest {
                let own = kernel.exprs.binary(Binary::Le, tile.stored[dim], index[dim]);
                guard = Some(guard.map_or(own, |other| kernel.exprs.binary(Binary::And, other, own)));
            }
        }
        let mut keep = |_: &mut Kernel, _: &Load| None;
        let mut copier = Copier::new(self.kernel, &mut keep);
        let [filter_axis, y_axis, x_axis, ..] = self.convolution.axes;
        for (axis, by) in [(filter_axis, filter), (y_axis, index[0]), (x_axis, index[1])] {
            copier.replace_axis(axis, by);
        }
        if let Some(image) = self.convolution.image {
            copier.replace_axis(image, tile.image);
        }
        copier.replace_var(self.convolution.sum, sum);
        let stores = copier.stmts(kernel, &self.convolution.stores, &mut |_, _| None);
        body.extend(stores.into_iter().map(|stmt| match stmt {
            Stmt::Store { buffer, index, value, .. } => Stmt::Store { buffer, index, value, guard },
            other => other,
        }));
    }
}

fn axis(kernel: &mut Kernel, name: &str, extent: usize, kind: AxisKind) -> AxisId {
    fresh_axis(kernel, Axis { name: name.to_owned(), extent, kind, mode: AxisMode::Serial, limit: None })
}

/// A variable that is set to a value.
fn set(kernel: &mut Kernel, body: &mut Vec<Stmt>, value: ExprId) -> ExprId {
    let var = kernel.var(DType::F32);
    body.push(Stmt::Set { var, value });
    kernel.exprs.var(var, DType::F32)
}
