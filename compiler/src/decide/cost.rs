//! What a register tile costs: the one model from which sizes of tiles are chosen. Reads from top to bottom.
//!
//! A tile is `rows × columns` accumulators of a reduction: `columns` neighbours along the axis in lanes, in vectors, and `rows` rounds
//! of other axes. In each step of the reduction it loads a vector for each vector of columns and one factor for each row, and
//! multiplies and adds for each accumulator. What bounds a step is the busiest of the units for multiply-adds, those for loads, and
//! the time that a multiply-add needs before the next can add to its result.

use mcc_kernel::Facts;

/// Cycles to start and end a tile of no accumulators, and for each of them, which is set to zero, finished and stored.
const START_CYCLES: f64 = 12.0;
const FINISH_CYCLES: f64 = 1.0;
/// Cycles for each byte of a panel that comes from the second-level cache, beside the multiply-adds that hide most of it.
const PANEL_BYTE_CYCLES: f64 = 0.0018;
/// Cycles for the place of a load among multiply-adds that hide it.
const PLACE_CYCLES: f64 = 0.1;
/// Accumulators of windows that share no factor, at most: with all their taps, the body of the loop stays short.
const MAX_WINDOW: usize = 12;
/// Vectors of columns beyond these never help.
const MAX_VECTORS: usize = 8;
/// Code for different rests makes a tile a little worse.
const CODE_WEIGHT: f64 = 1.0 / 4000.0;
/// The same where each accumulator has all its steps in the code.
const WINDOW_CODE_WEIGHT: f64 = 1.0 / 1000.0;

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
    /// Rounds of the axis whose rounds are jammed first, and of the one around it: jammed only with all of the first, but in windows.
    pub rows: [usize; 2],
    /// Rounds of the reduction.
    pub depth: usize,
    /// Whether one factor is the same in all lanes; else they are windows that each have their own factors, and share some of what they
    /// slide over.
    pub broadcasts: bool,
    /// Rounds at the ends of each row axis, which have code of their own.
    pub ends: [usize; 2],
    /// Of windows: elements from one to the next, along each row axis.
    pub steps: [usize; 2],
    /// Accumulators at most.
    pub most: usize,
}

/// Rounds of each row axis, and elements of the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub rows: [usize; 2],
    pub columns: usize,
}

impl Problem {
    /// The size of the cheapest tile that fits the registers.
    pub fn best(&self, facts: &Facts) -> Size {
        let mut best =
            (f64::INFINITY, Size { rows: [1, 1], columns: self.panel.unwrap_or(self.lane_counts[0]).min(self.columns) });
        for size in self.sizes(facts) {
            let cost = self.cycles(size, facts);
            if cost < best.0 {
                best = (cost, size);
            }
        }
        best.1
    }

    /// Whether rows are windows that share some of what they slide over; what is only summed up has no rows.
    fn is_windows(&self) -> bool {
        !self.broadcasts && self.rows != [1, 1]
    }

    fn sizes(&self, facts: &Facts) -> Vec<Size> {
        let lanes = self.lane_counts[0];
        let columns: Vec<usize> = match self.panel {
            Some(panel) if self.is_windows() => {
                let fits = |part: &usize| *part <= self.window_columns(facts);
                vec![self.parts(panel).find(fits).unwrap_or(panel)]
            }
            Some(panel) => self.parts(panel).collect(),
            None if self.is_windows() => vec![self.window_columns(facts).min(self.columns)],
            None => {
                (1..=MAX_VECTORS.min(self.columns.div_ceil(lanes))).map(|vectors| (vectors * lanes).min(self.columns)).collect()
            }
        };
        let registers = facts.vector_registers as usize;
        let mut sizes = Vec::new();
        for columns in columns {
            for inner in 1..=self.rows[0].min(registers) {
                let whole = inner == self.rows[0] || !self.broadcasts;
                let most_outer = if whole { self.rows[1].min(registers / inner) } else { 1 };
                for outer in 1..=most_outer {
                    let (rows, vectors) = (inner * outer, self.vectors(columns));
                    // Beside the accumulators a vector of each column, where rows share it, and factors, which may come one by one.
                    let shared = if rows == 1 { 1 } else { vectors };
                    let factors = match (self.broadcasts, facts.lane_operand) {
                        (true, true) => rows,
                        (true, false) => 1,
                        // An input of one step, and the factors of some, so that neighbours share inputs.
                        (false, true) => 6,
                        (false, false) => 1,
                    };
                    let most = if self.is_windows() { self.most.min(MAX_WINDOW) } else { self.most };
                    if rows * vectors + shared + factors <= registers && rows * vectors <= most {
                        sizes.push(Size { rows: [inner, outer], columns });
                    }
                }
            }
        }
        sizes
    }

    /// Neighbours of windows that are done together: a vector, and where windows leave out some of what they slide over, so that loads
    /// are many beside the multiply-adds, two that share a line of the cache.
    fn window_columns(&self, facts: &Facts) -> usize {
        let (lanes, line) = (self.lane_counts[0], facts.line_bytes / self.lane_bytes.max(1));
        if self.steps.iter().any(|&step| step > 1) && 2 * lanes <= line { 2 * lanes } else { lanes }
    }

    /// A panel, and its even parts that fill vectors, the largest first.
    fn parts(&self, panel: usize) -> impl Iterator<Item = usize> {
        let lanes = self.lane_counts[0];
        let parts = (2..=panel / lanes).filter(move |count| panel.is_multiple_of(count * lanes)).map(move |count| panel / count);
        std::iter::once(panel).chain(parts)
    }

    /// Vectors for so many neighbours, each of the widest that the rest fills.
    pub fn vectors(&self, mut columns: usize) -> usize {
        let mut vectors = 0;
        for &lanes in &self.lane_counts {
            vectors += columns / lanes;
            columns %= lanes;
        }
        vectors + columns
    }

    /// Cycles for the whole reduction.
    fn cycles(&self, size: Size, facts: &Facts) -> f64 {
        let parts =
            |extent: usize, tile: usize| [(tile, extent / tile), (extent % tile, usize::from(!extent.is_multiple_of(tile)))];
        let mut cycles = 0.0;
        for (inner, inner_tiles) in parts(self.rows[0], size.rows[0]) {
            for (outer, outer_tiles) in parts(self.rows[1], size.rows[1]) {
                for (columns, column_tiles) in parts(self.columns, size.columns) {
                    let tiles = inner_tiles * outer_tiles * column_tiles;
                    if tiles > 0 {
                        cycles += tiles as f64 * self.tile_cycles([inner, outer], columns, facts);
                    }
                }
            }
        }
        // Each tile and rest of one axis meets each of the others.
        let apart =
            |extent: usize, tile: usize| parts(extent, tile).iter().filter(|part| part.1 > 0).map(|part| part.0).sum::<usize>();
        let rows = |axis: usize| apart(self.rows[axis], size.rows[axis]) + self.ends[axis];
        let columns = parts(self.columns, size.columns);
        let vectors: usize = columns.iter().filter(|part| part.1 > 0).map(|part| self.vectors(part.0)).sum();
        let weight = if self.is_windows() { WINDOW_CODE_WEIGHT } else { CODE_WEIGHT };
        cycles * (1.0 + (rows(0) * rows(1) * vectors) as f64 * weight)
    }

    fn tile_cycles(&self, [inner, outer]: [usize; 2], columns: usize, facts: &Facts) -> f64 {
        let (rows, vectors) = (inner * outer, self.vectors(columns));
        let accumulators = (rows * vectors) as f64;
        let factors = match (self.broadcasts, facts.lane_operand) {
            (true, false) => rows as f64,
            (true, true) => rows as f64 / 4.0,
            // What the windows slide over, in all steps together, over the steps.
            (false, _) => {
                let side = (self.depth as f64).sqrt();
                let along = |rows: usize, step: usize| ((rows - 1) * step) as f64 / side + 1.0;
                along(inner, self.steps[0]) * along(outer, self.steps[1]) * vectors as f64
            }
        };
        let multiply_adds = accumulators / f64::from(facts.fmas_per_cycle);
        let loads = (vectors as f64 + factors) / f64::from(facts.loads_per_cycle);
        // Loads in pairs and fours take little but their place in the code.
        let places = match (self.broadcasts, facts.lane_operand) {
            (true, true) => PLACE_CYCLES * (vectors as f64 / 2.0 + factors),
            (true, false) => 0.0,
            (false, _) => PLACE_CYCLES * factors,
        };
        // Windows of several tiles are under way at once.
        let latency = if self.is_windows() { 0.0 } else { f64::from(facts.fma_latency) };
        let step = multiply_adds.max(loads).max(latency) + places;
        let panel_bytes = self.depth * columns * self.lane_bytes;
        let panel = if panel_bytes > facts.l1_bytes / 2 { panel_bytes as f64 * PANEL_BYTE_CYCLES } else { 0.0 };
        self.depth as f64 * step + panel + START_CYCLES + FINISH_CYCLES * accumulators
    }
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
            rows,
            depth,
            broadcasts: true,
            ends: [0, 0],
            steps: [1, 1],
            most: 32,
        }
    }

    #[test]
    fn tiles_cover_the_latency_and_fit_the_registers() {
        for (rows, columns) in [([56, 56], 64), ([28, 28], 128), ([14, 14], 256), ([7, 7], 512), ([12544, 1], 16), ([49, 1], 960)]
        {
            let size = problem(rows, columns, 576).best(&facts(32, 2));
            let vectors = size.columns / 16;
            let accumulators = size.rows[0] * size.rows[1] * vectors;
            assert!((14..=30).contains(&accumulators) && accumulators + vectors < 32, "{rows:?} {columns}: {size:?}");
        }
    }

    #[test]
    fn rests_are_few_and_a_panel_stays_as_it_lies() {
        let size = problem([49, 1], 16, 960).best(&facts(32, 2));
        assert_eq!(49usize.div_ceil(size.rows[0]), 2, "{size:?}");
        let packed = Problem { panel: Some(48), ..problem([49, 1], 96, 100) };
        assert_eq!(packed.best(&facts(32, 2)).columns, 48);
        // Fewer registers hold a part of it.
        let narrow = Problem { panel: Some(96), lane_counts: vec![8], ..packed };
        let size = narrow.best(&facts(16, 2));
        assert!(size.columns < 48 && 96 % size.columns == 0 && size.rows[0] > 1, "{size:?}");
    }

    #[test]
    fn what_is_only_summed_up_has_several_sums_under_way() {
        for columns in [64, 240, 1280] {
            let size = Problem { broadcasts: false, ..problem([1, 1], columns, 49) }.best(&facts(32, 2));
            assert!(size.columns >= 64, "{columns}: {size:?}");
        }
    }

    #[test]
    fn rests_of_columns_run_in_narrower_vectors() {
        let problem = problem([1, 1], 31, 1);
        assert_eq!([31, 24, 16, 5, 3].map(|columns| problem.vectors(columns)), [6, 2, 1, 2, 3]);
    }
}
