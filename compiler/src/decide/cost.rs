//! What a register tile costs: the one model from which sizes of tiles are chosen. Reads from top to bottom.
//!
//! A tile is `rows × columns` accumulators of a reduction: `columns` neighbours along the axis in lanes, in vectors, and `rows` rounds
//! of other axes. In each step of the reduction it loads a vector for each vector of columns and one factor for each row, and
//! multiplies and adds for each accumulator. What bounds a step is the busiest of the units for multiply-adds, those for loads, and
//! the time that a multiply-add needs before the next can add to its result. Where accumulators are too few for that, each may be several
//! sums of every so many steps, which are added up at the end.

use mcc_kernel::Facts;

/// Cycles to start and end a tile of no accumulators, and for each of them, which is set to zero, finished and stored.
const START_CYCLES: f64 = 12.0;
const FINISH_CYCLES: f64 = 1.0;
/// Cycles to start and end a tile of windows, and for each step where a loop is left inside of it.
const WINDOW_CYCLES: f64 = 5.5;
const LOOP_STEP_CYCLES: f64 = 0.4;
/// Instructions of windows that are under way at once: of several tiles where these are small.
const UNDER_WAY: f64 = 160.0;
/// Cycles for each byte of a panel that comes from the second-level cache, beside the multiply-adds that hide most of it.
const PANEL_BYTE_CYCLES: f64 = 0.0018;
/// Cycles for each line of a map that comes from the second-level cache, and from beyond; and how much longer it takes where a tile asks
/// for more lines than a core waits for at once.
const LINE_CYCLES: f64 = 0.5;
const FAR_LINE_CYCLES: f64 = 3.0;
const WAITED_LINES: usize = 24;
const CROWDED_LINES: f64 = 1.25;
/// Cycles for each load of what the tile before it along the row has loaded too: where the results of that one lie at the same place of a
/// page, the load waits for their stores.
const AGAIN_CYCLES: f64 = 0.3;
/// Bytes of a way of the first-level cache: lines at a multiple of this distance take each other's place.
const WAY_BYTES: usize = 4096;
/// Cycles for each byte between panels that nobody needs: the rests of panels come from memory in pieces.
const PADDING_BYTE_CYCLES: f64 = 0.05;
/// Cycles in a step for each row, where their lines drive each other out of the first cache.
const CROWDED_ROW_CYCLES: f64 = 0.25;
/// Cycles for the place of a load among multiply-adds that hide it.
const PLACE_CYCLES: f64 = 0.1;
/// Accumulators of windows that share no factor, at most: with all their taps, the body of the loop stays short.
const MAX_WINDOW: usize = 12;
/// Vectors of columns beyond these never help.
const MAX_VECTORS: usize = 8;
/// Multiply-adds in the body of a tile's innermost loop, at most.
pub const MAX_BODY: usize = 112;
/// Code for different rests makes a tile a little worse: each accumulator that it finishes, and each instruction of windows, which have many
/// of their steps in the code.
const CODE_WEIGHT: f64 = 1.0 / 4000.0;
const WINDOW_CODE_WEIGHT: f64 = 1.0 / 5000.0;

/// A reduction as tiles see it.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Elements along the axis in lanes.
    pub columns: usize,
    /// Elements of the panels in which a weight lies already: a tile has all of one, or an even part.
    pub panel: Option<usize>,
    /// Lane counts of the vectors that may be used, the widest first.
    pub lane_counts: Vec<usize>,
    pub lane_bytes: usize,
    /// Whether a rest runs in one vector, of which it uses a part.
    pub parts: bool,
    /// Rounds of the axis whose rounds are jammed first, and of the one around it: jammed only with all of the first, but in windows.
    pub rows: [usize; 2],
    /// Rounds of the reduction.
    pub depth: usize,
    /// Whether one factor is the same in all lanes; else they are windows that each have their own factors, and share some of what they
    /// slide over.
    pub broadcasts: bool,
    /// Rounds at the ends of each row axis that have code of their own, beside `rows`.
    pub ends: [usize; 2],
    /// Along each row axis.
    pub windows: [Window; 2],
    /// Whether each element has a factor; else elements are only combined.
    pub weighted: bool,
    /// Loads for a vector of what varies along the lanes, and stores for one of results: one, or one for each lane.
    pub vector_accesses: [usize; 2],
    /// What windows slide over.
    pub map: Option<Map>,
    /// Accumulators at most.
    pub most: usize,
    /// Bytes from one row of the first axis to the next, of what is the same in all lanes; 0 where that is not known.
    pub row_bytes: usize,
    /// Whether the columns are of a weight that is laid out in panels.
    pub has_panels: bool,
    /// Sums in which an accumulator may be kept, 1 first.
    pub sums: Vec<usize>,
    /// Whether steps are left over behind the loop that does several at once: its accumulators then leave a register free, without which
    /// some of them would be kept in memory.
    pub has_rest: bool,
}

/// How a map lies that windows slide over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    /// Bytes from an element to the next along each row axis; and from one result to the next.
    pub distances: [usize; 2],
    pub result_distances: [usize; 2],
    /// Whether all columns are done before the next rows; else all rows are.
    pub columns_first: bool,
    /// Whether it comes from beyond the second-level cache.
    pub is_far: bool,
}

/// How windows slide along an axis of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Elements from one to the next.
    pub step: usize,
    /// Elements that each takes, and from the first of them to the last.
    pub taps: usize,
    pub span: usize,
    /// Rounds at the beginning and at the end in which it reaches over the border.
    pub pads: [usize; 2],
}

impl Window {
    /// What is there where nothing slides.
    pub const NONE: Window = Window { step: 1, taps: 1, span: 1, pads: [0, 0] };

    /// Elements that so many neighbours take.
    fn reach(&self, rows: usize) -> usize {
        (rows * self.taps).min((rows - 1) * self.step + self.span)
    }
}

/// How the rounds of an axis of windows are cut into tiles. Those that reach over a border know what lies outside: they are done in tiles
/// of their own, as large as the others, or round by round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Rounds at both ends.
    pub ends: [usize; 2],
    /// Whether those at an end are done together.
    pub together: bool,
    /// Rounds of each tile in between; the last has what is left over.
    tile: usize,
    between: usize,
}

impl Cut {
    fn new(extent: usize, tile: usize, pads: [usize; 2], together: bool) -> Cut {
        let together = together && tile > 1;
        // One tile knows both borders.
        if pads == [0, 0] || together && extent <= tile {
            return Cut { ends: [0, 0], together, tile: tile.min(extent), between: extent };
        }
        if !together {
            return Cut { ends: pads, together, tile, between: extent - pads[0] - pads[1] };
        }
        let first = if pads[0] > 0 { pads[0].max(tile) } else { 0 };
        let left = extent - first;
        // With what is left over.
        let is_last = |rounds: &usize| rounds % tile == left % tile;
        let last = (pads[1].max(1)..).find(is_last).filter(|_| pads[1] > 0).map_or(0, |rounds| rounds.min(left));
        Cut { ends: [first, last], together, tile, between: left - last }
    }

    /// Sizes of the tiles that have code of their own: rounds at an end that are done one by one each know another border.
    fn codes(&self) -> Vec<usize> {
        let end = |rounds: usize| if self.together { vec![rounds] } else { vec![1; rounds] };
        let full = if self.between < self.tile { 0 } else { self.tile };
        let mut codes = [end(self.ends[0]), vec![full, self.between % self.tile], end(self.ends[1])].concat();
        codes.retain(|&rounds| rounds > 0);
        codes
    }

    /// Tiles by their size: how many rounds, how many tiles.
    fn parts(&self) -> impl Iterator<Item = (usize, usize)> {
        let end = |rounds: usize| if self.together { (rounds, usize::from(rounds > 0)) } else { (1, rounds) };
        let rest = self.between % self.tile;
        let parts = [end(self.ends[0]), (self.tile, self.between / self.tile), (rest, usize::from(rest > 0)), end(self.ends[1])];
        parts.into_iter().filter(|part| part.1 > 0)
    }
}

/// Rounds of each row axis, and elements of the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub rows: [usize; 2],
    pub columns: usize,
}

/// Sizes of the tiles that cover an extent, with how many there are of each: as even as can be, or all full but for a rest.
pub fn parts(extent: usize, tile: usize, evenly: bool) -> [(usize, usize); 2] {
    if !evenly {
        return [(tile, extent / tile), (extent % tile, usize::from(!extent.is_multiple_of(tile)))];
    }
    let count = extent.div_ceil(tile.max(1));
    let size = extent.div_ceil(count.max(1));
    let smaller = size * count - extent;
    [(size, count - smaller), (size.saturating_sub(1), smaller)]
}

impl Problem {
    /// The size of the cheapest tile that fits the registers, and in how many sums its accumulators are kept.
    pub fn best(&self, facts: &Facts) -> (Size, usize) {
        let columns = self.panel.unwrap_or(self.lane_counts[0]).min(self.columns);
        let mut best = (f64::INFINITY, (Size { rows: [1, 1], columns }, 1));
        for size in self.sizes(facts) {
            let tile = [size.rows[0] * size.rows[1], self.vectors(size.columns)];
            for &sums in self.sums.iter().filter(|&&sums| sums == 1 || self.fits(tile, sums, facts)) {
                let cost = self.cycles(size, sums, facts);
                if cost < best.0 {
                    best = (cost, (size, sums));
                }
            }
        }
        best.1
    }

    /// Whether rows are windows that share some of what they slide over; what is only summed up has no rows.
    pub fn is_windows(&self) -> bool {
        !self.broadcasts && self.rows != [1, 1]
    }

    fn sizes(&self, facts: &Facts) -> Vec<Size> {
        let lanes = self.lane_counts[0];
        // Of windows one vector, or two that share the loops around them where that is still less than a line of the cache.
        let widest = if 2 * lanes * self.lane_bytes < facts.line_bytes { 2 * lanes } else { lanes };
        let columns: Vec<usize> = match self.panel {
            Some(panel) if self.is_windows() => {
                let fitting: Vec<usize> = self.even_parts(panel).filter(|&part| part <= widest).collect();
                if fitting.is_empty() { vec![panel] } else { fitting }
            }
            Some(panel) => self.even_parts(panel).collect(),
            None if self.is_windows() => (1..=widest / lanes).map(|vectors| (vectors * lanes).min(self.columns)).collect(),
            None => {
                (1..=MAX_VECTORS.min(self.columns.div_ceil(lanes))).map(|vectors| (vectors * lanes).min(self.columns)).collect()
            }
        };
        let registers = facts.vector_registers as usize;
        let mut sizes = Vec::new();
        for columns in columns {
            let splits = |&inner: &usize| self.is_windows() || parts(self.rows[0], inner, true)[0].0 == inner;
            for inner in (1..=self.rows[0].min(registers)).filter(splits) {
                let whole = inner == self.rows[0] || !self.broadcasts;
                let most_outer = if whole { self.rows[1].min(registers / inner) } else { 1 };
                for outer in 1..=most_outer {
                    let (rows, vectors) = (inner * outer, self.vectors(columns));
                    if self.is_windows() {
                        let size = Size { rows: [inner, outer], columns };
                        let largest = |cut: Cut| cut.parts().map(|part| part.0).max().unwrap_or(1);
                        let [inner, outer] = self.cuts(size, facts).map(largest);
                        if inner * outer * vectors <= self.most.min(MAX_WINDOW) {
                            sizes.push(size);
                        }
                    } else if self.fits([rows, vectors], 1, facts) && rows * vectors <= self.most {
                        sizes.push(Size { rows: [inner, outer], columns });
                    }
                }
            }
        }
        sizes
    }

    /// Whether a tile of so many rows and vectors has enough registers for so many sums of each accumulator.
    fn fits(&self, [rows, vectors]: [usize; 2], sums: usize, facts: &Facts) -> bool {
        // Beside the accumulators a vector of each column, where rows share it, and factors, which may come one by one.
        let shared = if rows == 1 { 1 } else { vectors };
        let factors = if self.broadcasts && facts.lane_operand { rows } else { 1 };
        rows * vectors * sums + shared + factors + usize::from(self.has_rest) <= facts.vector_registers as usize
    }

    /// Whether so many rows, and a line of a panel, have more lines in the same place of the first cache than it holds.
    fn is_crowded(&self, rows: usize, facts: &Facts) -> bool {
        let way = WAY_BYTES;
        let places = way.checked_div(self.row_bytes).unwrap_or(rows);
        let regular = self.row_bytes.is_multiple_of(way) || way.is_multiple_of(self.row_bytes.max(1));
        regular && rows.div_ceil(places.max(1)) + 1 > facts.l1_bytes / way
    }

    /// How windows along each row axis are cut into tiles. Rows at a border are done together where the factors of all their steps stay in
    /// registers.
    pub fn cuts(&self, size: Size, facts: &Facts) -> [Cut; 2] {
        let factors = self.factors(self.vectors(size.columns));
        let results = size.rows[0] * size.rows[1] * self.vectors(size.columns);
        let together = stay(self.depth * factors, results, facts);
        let cut = |axis: usize, together| Cut::new(self.rows[axis], size.rows[axis], self.windows[axis].pads, together);
        [cut(0, true), cut(1, together)]
    }

    /// Columns of windows whose rows are done before those of the next ones, where tiles have less than a line of the cache: a line that
    /// comes for one tile is still there for its neighbours.
    pub fn block(&self, size: Size, facts: &Facts) -> Option<usize> {
        let line = facts.line_bytes / self.lane_bytes.max(1);
        let row = self.rows[0] * self.windows[0].step * self.lane_bytes;
        let band_bytes = self.windows[1].reach(size.rows[1]) * row;
        let most = (facts.l1_bytes / 2 / band_bytes.max(1)).max(line);
        let blocks = || (line..=most).rev().filter(|block| block % line == 0 && self.columns.is_multiple_of(*block));
        if self.is_windows() && size.columns < line { blocks().next() } else { None }
    }

    /// A panel, and its even parts that fill vectors, the largest first.
    fn even_parts(&self, panel: usize) -> impl Iterator<Item = usize> {
        let lanes = self.lane_counts[0];
        let parts = (2..=panel / lanes).filter(move |count| panel.is_multiple_of(count * lanes)).map(move |count| panel / count);
        std::iter::once(panel).chain(parts)
    }

    /// Vectors for so many neighbours, each of the widest that the rest fills, or all of the rest in a part of one.
    pub fn vectors(&self, columns: usize) -> usize {
        self.groups(columns).iter().map(|group| group.1).sum()
    }

    /// Lanes and number of these vectors, by their widths: each width, and a part, has a loop of its own.
    fn groups(&self, mut columns: usize) -> Vec<(usize, usize)> {
        let mut groups = Vec::new();
        for &lanes in self.lane_counts.iter().chain(&[1]) {
            groups.push((lanes, columns / lanes));
            columns %= lanes;
            if self.parts && columns > 1 {
                groups.push((lanes, 1));
                columns = 0;
            }
        }
        groups.retain(|group| group.1 > 0);
        groups
    }

    /// The tiles of an extent: how long, how many.
    fn tiles(extent: usize, tile: usize, evenly: bool) -> Vec<(usize, usize)> {
        parts(extent, tile, evenly).into_iter().filter(|part| part.1 > 0).collect()
    }

    /// Cycles for the whole reduction.
    fn cycles(&self, size: Size, sums: usize, facts: &Facts) -> f64 {
        let rows = match self.is_windows() {
            true => self.cuts(size, facts).map(|cut| cut.parts().collect()),
            false => [0, 1].map(|axis| Self::tiles(self.rows[axis], size.rows[axis], true)),
        };
        let columns = Self::tiles(self.columns, size.columns, false);
        let mut cycles = 0.0;
        for &(inner, inner_tiles) in &rows[0] {
            for &(outer, outer_tiles) in &rows[1] {
                for &(columns, column_tiles) in &columns {
                    let tiles = inner_tiles * outer_tiles * column_tiles;
                    let mut add = |group: (usize, usize)| {
                        cycles += tiles as f64 * self.tile_cycles([inner, outer], group, sums, facts);
                    };
                    match self.is_windows() {
                        // All that is loaded of a map is loaded together.
                        true => add((columns.div_ceil(self.vectors(columns)), self.vectors(columns))),
                        false => self.groups(columns).into_iter().for_each(add),
                    }
                }
            }
        }
        if self.has_panels && self.panel.is_none() && !self.is_windows() {
            let padding = size.columns * self.columns.div_ceil(size.columns) - self.columns;
            cycles += (padding * self.depth * self.lane_bytes) as f64 * PADDING_BYTE_CYCLES;
        }
        let vectors: Vec<usize> = columns.iter().map(|part| self.vectors(part.0)).collect();
        if self.is_windows() {
            return cycles * (1.0 + self.window_code(size, &vectors, facts) as f64 * WINDOW_CODE_WEIGHT);
        }
        // Each tile and rest of one axis meets each of the others.
        let apart = |axis: usize| rows[axis].iter().map(|part| part.0).sum::<usize>() + self.ends[axis];
        let finished = apart(0) * apart(1) * vectors.iter().sum::<usize>() * self.vector_accesses[1];
        cycles * (1.0 + finished as f64 * CODE_WEIGHT)
    }

    /// Instructions of the tiles of windows that have code of their own, for each of these numbers of vectors: each of one axis meets each
    /// of the others.
    fn window_code(&self, size: Size, vectors: &[usize], facts: &Facts) -> usize {
        let [inner, outer] = self.cuts(size, facts).map(|cut| cut.codes());
        let mut instructions = 0;
        let rows = || inner.iter().flat_map(|&inner| outer.iter().map(move |&outer| [inner, outer]));
        for (&vectors, tile) in vectors.iter().flat_map(|vectors| rows().map(move |tile| (vectors, tile))) {
            let steps = self.unrolled_steps(tile, vectors, facts);
            let loads = self.window_loads(tile, vectors, facts) * steps / self.depth.max(1);
            instructions += tile[0] * tile[1] * vectors * (steps + self.vector_accesses[1]) + loads;
        }
        instructions
    }

    /// Steps of windows that stand in the code: all where their factors stay in registers, or those along a row.
    fn unrolled_steps(&self, [inner, outer]: [usize; 2], vectors: usize, facts: &Facts) -> usize {
        let results = inner * outer * vectors;
        let stay = stay(self.depth * self.factors(vectors), results, facts);
        if stay && results * self.depth <= MAX_BODY { self.depth } else { self.windows[0].taps }
    }

    /// Factors of a step, in vectors.
    pub fn factors(&self, vectors: usize) -> usize {
        if self.weighted { vectors } else { 0 }
    }

    /// What a tile of windows loads for all its steps. Where factors stay in registers, and steps come in the order of what they load, each
    /// input comes once: for all steps, or for those along a row.
    fn window_loads(&self, [inner, outer]: [usize; 2], vectors: usize, facts: &Facts) -> usize {
        let [along, across] = self.windows;
        let factors = self.factors(vectors);
        let left = registers_left(inner * outer * vectors, facts);
        let inputs = if stay(self.depth * factors, inner * outer * vectors, facts) {
            along.reach(inner) * across.reach(outer) * self.depth / (along.taps * across.taps)
        } else if along.taps * factors <= left {
            along.reach(inner) * outer * self.depth / along.taps
        } else {
            inner * outer * self.depth
        };
        inputs * vectors * self.vector_accesses[0] + self.depth * factors
    }

    /// Cycles in which a tile of windows waits for what it is the first to load of a map: what its neighbours have loaded is still there
    /// where that fits the first-level cache. These are all columns of the tile before it along the row, or a band of rows of its columns.
    fn wait_cycles(&self, [inner, outer]: [usize; 2], columns: usize, facts: &Facts) -> f64 {
        let Some(map) = self.map.filter(|_| self.is_windows()) else { return 0.0 };
        let [along, across] = self.windows;
        let element = map.distances[0];
        let reach = along.reach(inner).min(self.rows[0] * along.step);
        let line = facts.line_bytes;
        let (mut elements, mut rows) = (inner * along.step, across.reach(outer));
        let of_rows = |pieces: [usize; 2], distances: [usize; 2], bytes: usize| {
            let starts = (0..pieces[1]).flat_map(move |row| (0..pieces[0]).map(move |at| row * distances[1] + at * distances[0]));
            lines_of_a_set(starts, bytes, line)
        };
        let band = rows * self.rows[0] * along.step + outer * self.rows[0];
        let is_held = |lines: usize| lines <= facts.l1_bytes / WAY_BYTES * 3 / 4;
        if map.columns_first {
            if !is_held(of_rows([1, rows], map.distances, reach * element)) {
                elements = reach;
            }
        } else {
            // With the results, which may begin in the same set.
            let taken = of_rows([reach, rows], map.distances, line);
            if !is_held(taken + of_rows([inner, outer], map.result_distances, line)) {
                elements = reach;
            } else if is_held(lines_of_a_set((0..band).map(|at| at * element), line, line)) {
                rows = rows.min(outer * across.step);
            }
        }
        let lines = elements * rows * (columns * self.lane_bytes).div_ceil(line);
        let crowded = if map.columns_first && map.is_far && lines > WAITED_LINES { CROWDED_LINES } else { 1.0 };
        let line_cycles = if map.is_far { FAR_LINE_CYCLES } else { LINE_CYCLES };
        let again = if map.columns_first { 0 } else { (reach - (inner * along.step).min(reach)) * across.reach(outer) };
        // Neighbouring columns share a line.
        let fetched = (elements * rows * columns * self.lane_bytes) as f64 / line as f64;
        fetched * line_cycles * crowded + again as f64 * AGAIN_CYCLES
    }

    fn tile_cycles(&self, [inner, outer]: [usize; 2], (lanes, vectors): (usize, usize), sums: usize, facts: &Facts) -> f64 {
        let (rows, columns) = (inner * outer, lanes * vectors);
        let accumulators = (rows * vectors) as f64;
        let factors = match (self.broadcasts, facts.lane_operand) {
            (true, false) => rows as f64,
            (true, true) => rows as f64 / 4.0,
            (false, _) if self.is_windows() => {
                self.window_loads([inner, outer], vectors, facts) as f64 / self.depth as f64 - vectors as f64
            }
            (false, _) if self.weighted => vectors as f64,
            (false, _) => 0.0,
        };
        let multiply_adds = accumulators / f64::from(facts.fmas_per_cycle);
        let loads = (vectors as f64 + factors) / f64::from(facts.loads_per_cycle);
        // Loads in pairs and fours take little but their place in the code.
        let places = match (self.broadcasts, facts.lane_operand) {
            (true, true) => PLACE_CYCLES * (vectors as f64 / 2.0 + factors),
            (true, false) => 0.0,
            (false, _) if self.is_windows() => 0.0,
            (false, _) => PLACE_CYCLES * factors,
        };
        let beside = match self.is_windows() {
            true => (UNDER_WAY / ((accumulators + vectors as f64 + factors) * self.depth as f64)).max(1.0),
            false => sums as f64,
        };
        let latency = f64::from(facts.fma_latency) / beside;
        let crowded = if self.is_crowded(inner, facts) { CROWDED_ROW_CYCLES * rows as f64 } else { 0.0 };
        let step = multiply_adds.max(loads).max(latency) + places + crowded;
        let panel_bytes = self.depth * columns * self.lane_bytes;
        let panel = if panel_bytes > facts.l1_bytes / 2 { panel_bytes as f64 * PANEL_BYTE_CYCLES } else { 0.0 };
        let wait = self.wait_cycles([inner, outer], columns, facts);
        let start = match self.is_windows() {
            true if self.unrolled_steps([inner, outer], vectors, facts) == self.depth => WINDOW_CYCLES,
            true => WINDOW_CYCLES + LOOP_STEP_CYCLES * self.depth as f64,
            false => START_CYCLES + FINISH_CYCLES * accumulators * sums as f64,
        };
        self.depth as f64 * step + panel + wait + start
    }
}

/// Registers for factors, beside those of results and one for what is loaded.
fn registers_left(results: usize, facts: &Facts) -> usize {
    (facts.vector_registers as usize).saturating_sub(results + 1)
}

/// Whether so many factors of windows stay in registers from tile to tile, beside results and what finishes those.
pub fn stay(factors: usize, results: usize, facts: &Facts) -> bool {
    factors < registers_left(results, facts).max(1)
}

/// The most lines that any set of the cache has to hold of pieces of memory of so many bytes.
fn lines_of_a_set(pieces: impl Iterator<Item = usize>, bytes: usize, line_bytes: usize) -> usize {
    let mut lines = vec![0; WAY_BYTES / line_bytes];
    let sets = lines.len();
    for start in pieces {
        let first = start / line_bytes;
        (first..first + bytes.div_ceil(line_bytes)).for_each(|line| lines[line % sets] += 1);
    }
    lines.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with vectors of 16 lanes and this many registers.
    fn facts(vector_registers: u32, fmas_per_cycle: u32) -> Facts {
        Facts {
            vector_bytes: 64,
            vector_registers,
            l1_bytes: 32 << 10,
            l2_bytes: 1 << 20,
            fmas_per_cycle,
            loads_per_cycle: 2,
            fma_latency: 4,
            ..Facts::default()
        }
    }

    fn problem(rows: [usize; 2], columns: usize, depth: usize) -> Problem {
        let lane_counts = vec![16, 8, 4];
        Problem {
            columns,
            panel: None,
            lane_counts,
            lane_bytes: 4,
            parts: false,
            rows,
            depth,
            broadcasts: true,
            ends: [0, 0],
            windows: [Window::NONE; 2],
            weighted: true,
            vector_accesses: [1, 1],
            map: None,
            most: 32,
            row_bytes: 0,
            has_panels: false,
            sums: vec![1],
            has_rest: false,
        }
    }

    #[test]
    fn tiles_cover_the_latency_and_fit_the_registers() {
        for (rows, columns) in [([56, 56], 64), ([28, 28], 128), ([14, 14], 256), ([7, 7], 512), ([12544, 1], 16), ([49, 1], 960)]
        {
            let size = problem(rows, columns, 576).best(&facts(32, 2)).0;
            let vectors = size.columns / 16;
            let accumulators = size.rows[0] * size.rows[1] * vectors;
            assert!((14..=30).contains(&accumulators) && accumulators + vectors < 32, "{rows:?} {columns}: {size:?}");
        }
    }

    #[test]
    fn sums_with_a_rest_leave_a_register() {
        let problem = Problem { lane_counts: vec![8, 4], parts: true, has_panels: true, ..problem([784, 1], 58, 58) };
        let taken = |problem: &Problem| {
            let size = problem.best(&facts(16, 2)).0;
            let vectors = size.columns / 8;
            size.rows[0] * vectors + vectors + 1
        };
        assert_eq!(taken(&problem), 16);
        assert!(taken(&Problem { has_rest: true, ..problem }) < 16);
    }

    #[test]
    fn rests_are_few_and_a_panel_stays_as_it_lies() {
        let size = problem([49, 1], 16, 960).best(&facts(32, 2)).0;
        assert_eq!(49usize.div_ceil(size.rows[0]), 2, "{size:?}");
        let packed = Problem { panel: Some(48), ..problem([49, 1], 96, 100) };
        assert_eq!(packed.best(&facts(32, 2)).0.columns, 48);
        // Fewer registers hold a part of it.
        let narrow = Problem { panel: Some(96), lane_counts: vec![8], ..packed };
        let size = narrow.best(&facts(16, 2)).0;
        assert!(size.columns < 48 && 96 % size.columns == 0 && size.rows[0] > 1, "{size:?}");
    }

    #[test]
    fn what_is_only_summed_up_has_several_sums_under_way() {
        for columns in [64, 240, 1280] {
            let size = Problem { broadcasts: false, ..problem([1, 1], columns, 49) }.best(&facts(32, 2)).0;
            assert!(size.columns >= 64, "{columns}: {size:?}");
        }
    }

    #[test]
    fn rests_of_columns_run_in_narrower_vectors_or_a_part_of_one() {
        let problem = problem([1, 1], 31, 1);
        assert_eq!([31, 24, 16, 5, 3].map(|columns| problem.vectors(columns)), [6, 2, 1, 2, 3]);
        let problem = Problem { parts: true, ..problem };
        assert_eq!([31, 24, 16, 5, 3].map(|columns| problem.vectors(columns)), [2, 2, 1, 1, 1]);
    }

    #[test]
    fn windows_at_borders_are_tiles_like_the_others() {
        let parts =
            |extent, tile, pads, together| -> Vec<(usize, usize)> { Cut::new(extent, tile, pads, together).parts().collect() };
        assert_eq!(parts(14, 14, [1, 1], true), [(14, 1)]);
        assert_eq!(parts(14, 4, [1, 1], true), [(4, 1), (4, 2), (2, 1)]);
        assert_eq!(parts(14, 4, [1, 0], true), [(4, 1), (4, 2), (2, 1)]);
        assert_eq!(parts(14, 4, [1, 1], false), [(1, 1), (4, 3), (1, 1)]);
        assert_eq!(parts(28, 9, [2, 2], true), [(9, 1), (9, 1), (10, 1)]);
        for (extent, tile, first, last) in (1..20).flat_map(|extent| (1..7).map(move |tile| (extent, tile, 1, 1 + tile % 2))) {
            for pads in [[first, last], [first, 0], [0, last], [0, 0]] {
                if pads[0] + pads[1] < extent {
                    for together in [true, false] {
                        let sum: usize = parts(extent, tile, pads, together).iter().map(|part| part.0 * part.1).sum();
                        assert_eq!(sum, extent, "{tile} {pads:?} {together}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_the_same_sets_are_few() {
        // The rows of this map take each other's place in the cache.
        let window = Window { step: 2, taps: 3, span: 3, pads: [1, 0] };
        let map = Map { distances: [256, 28672], result_distances: [256, 14336], columns_first: true, is_far: true };
        let pool =
            Problem { broadcasts: false, weighted: false, windows: [window; 2], map: Some(map), ..problem([56, 56], 64, 9) };
        let size = pool.best(&Facts { line_bytes: 64, ..facts(32, 2) }).0;
        assert!(window.reach(size.rows[1]) <= 6 && size.rows[0] * size.rows[1] >= 4, "{size:?}");
    }

    /// Windows of 3 by 3 with a border of one.
    fn windows(rows: [usize; 2], columns: usize, map: Map) -> Problem {
        let window = Window { step: 1, taps: 3, span: 3, pads: [1, 1] };
        Problem { broadcasts: false, windows: [window; 2], map: Some(map), ..problem(rows, columns, 9) }
    }

    #[test]
    fn rows_and_results_of_the_same_sets_are_few() {
        // Every second row of the map and of the results lies in the same sets.
        let distances = [128, 14336];
        let map = Map { distances, result_distances: distances, columns_first: false, is_far: true };
        let facts = Facts { line_bytes: 64, ..facts(32, 2) };
        let [inner, outer] = windows([112, 112], 32, map).best(&facts).0.rows;
        assert!((outer + 2).div_ceil(2) + outer.div_ceil(2) <= 6 && inner * outer >= 4, "{inner} by {outer}");
        // None do.
        let distances = [128, 14400];
        let map = Map { distances, result_distances: distances, ..map };
        let tall = windows([112, 112], 32, map).best(&facts).0;
        assert!(tall.rows[1] > outer, "{tall:?}");
    }

    #[test]
    fn long_code_makes_tiles_of_windows_smaller() {
        let map = Map { distances: [2304, 32256], result_distances: [2304, 32256], columns_first: false, is_far: false };
        let facts = Facts { line_bytes: 64, ..facts(32, 2) };
        let results = |problem: &Problem| problem.best(&facts).0.rows.iter().product::<usize>();
        let plain = windows([56, 56], 144, map);
        let lane_by_lane = Problem { vector_accesses: [16, 16], ..plain.clone() };
        assert!(results(&lane_by_lane) < results(&plain), "{} and {}", results(&lane_by_lane), results(&plain));
    }
}
