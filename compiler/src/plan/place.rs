//! Offsets for blocks with life spans: several greedy orders, then exact search while it is cheap.
//!
//! The search is in the manner of MiniMalloc: in a best placement every block rests on the bottom or on another that lives at the
//! same time, so blocks placed in the order of their offsets need no other offsets than the tops of those placed before.

use std::cmp::Reverse;

use super::live::Live;

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub size_bytes: usize,
    pub live: Live,
}

#[derive(Clone, Debug)]
pub struct Placed {
    /// One for each block.
    pub offsets: Vec<usize>,
    pub size_bytes: usize,
}

/// Steps of the exact search before it gives up.
const SEARCH_STEPS: usize = 30_000;

/// Places blocks so that those that live at the same time do not overlap.
pub fn place(blocks: &[Block]) -> Placed {
    let bound = largest_live_set(blocks);
    let best = best_greedy(blocks);
    if best.size_bytes == bound {
        return best;
    }
    let mut search = Search { blocks, bound, best, offsets: vec![None; blocks.len()], steps: SEARCH_STEPS };
    search.extend(0);
    search.best
}

/// The best of a few orders.
fn best_greedy(blocks: &[Block]) -> Placed {
    let span = |block: &Block| block.live.last - block.live.first + 1;
    let orders: [&dyn Fn(usize) -> (Reverse<usize>, Reverse<usize>); 3] = [
        &|at| (Reverse(blocks[at].size_bytes), Reverse(span(&blocks[at]))),
        &|at| (Reverse(blocks[at].size_bytes * span(&blocks[at])), Reverse(blocks[at].size_bytes)),
        &|at| (Reverse(span(&blocks[at])), Reverse(blocks[at].size_bytes)),
    ];
    let mut best: Option<Placed> = None;
    for order in orders {
        let mut sequence: Vec<usize> = (0..blocks.len()).collect();
        sequence.sort_by_key(|&at| order(at));
        let placed = greedy(blocks, &sequence);
        if best.as_ref().is_none_or(|best| placed.size_bytes < best.size_bytes) {
            best = Some(placed);
        }
    }
    best.expect("there is a greedy order")
}

/// Each block at the lowest offset that is free during its life.
fn greedy(blocks: &[Block], sequence: &[usize]) -> Placed {
    let mut offsets = vec![0; blocks.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(blocks.len());
    for &at in sequence {
        let mut offset = 0;
        // By offset, so that the first gap that is large enough is the lowest.
        for &other in placed.iter().filter(|&&other| blocks[other].live.overlaps(blocks[at].live)) {
            if offsets[other] >= offset + blocks[at].size_bytes {
                break;
            }
            offset = offset.max(offsets[other] + blocks[other].size_bytes);
        }
        offsets[at] = offset;
        let position = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(position, at);
    }
    let size_bytes = (0..blocks.len()).map(|at| offsets[at] + blocks[at].size_bytes).max().unwrap_or(0);
    Placed { offsets, size_bytes }
}

/// The most bytes that live at one time.
pub fn largest_live_set(blocks: &[Block]) -> usize {
    let live_at = |time: usize| blocks.iter().filter(|b| b.live.first <= time && time <= b.live.last).map(|b| b.size_bytes).sum();
    // The maximum is reached where some block begins to live.
    blocks.iter().map(|block| live_at(block.live.first)).max().unwrap_or(0)
}

struct Search<'b> {
    blocks: &'b [Block],
    bound: usize,
    best: Placed,
    offsets: Vec<Option<usize>>,
    steps: usize,
}

impl Search<'_> {
    /// Places one more block, at no less than `lowest`; true when the search is over.
    fn extend(&mut self, lowest: usize) -> bool {
        if self.steps == 0 {
            return true;
        }
        self.steps -= 1;
        let mut candidates: Vec<(usize, usize)> = Vec::new();
        for at in (0..self.blocks.len()).filter(|&at| self.offsets[at].is_none()) {
            let rest = self.rest(at);
            if rest.max(lowest) + self.blocks[at].size_bytes >= self.best.size_bytes {
                return false;
            }
            candidates.push((rest, at));
        }
        if candidates.is_empty() {
            let offsets: Vec<usize> = self.offsets.iter().map(|offset| offset.expect("all are placed")).collect();
            let size_bytes = offsets.iter().zip(self.blocks).map(|(offset, block)| offset + block.size_bytes).max().unwrap_or(0);
            self.best = Placed { offsets, size_bytes };
            return size_bytes == self.bound;
        }
        // A block that could have come earlier has been tried there.
        candidates.retain(|&(rest, _)| rest >= lowest);
        candidates.sort_by_key(|&(rest, at)| (rest, Reverse(self.blocks[at].size_bytes)));
        for (rest, at) in candidates {
            self.offsets[at] = Some(rest);
            let done = self.extend(rest);
            self.offsets[at] = None;
            if done {
                return true;
            }
        }
        false
    }

    /// The top of the placed blocks that live at the same time.
    fn rest(&self, at: usize) -> usize {
        let tops = self.blocks.iter().zip(&self.offsets).filter_map(|(block, offset)| {
            offset.filter(|_| block.live.overlaps(self.blocks[at].live)).map(|offset| offset + block.size_bytes)
        });
        tops.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcc_support::random::Random;

    fn block(size_bytes: usize, first: usize, last: usize) -> Block {
        Block { size_bytes, live: Live { first, last } }
    }

    #[test]
    fn blocks_that_live_together_are_apart_and_search_finds_what_greedy_misses() {
        let mut random = Random::new(3);
        let mut better = 0;
        for case in 0..300 {
            let count = 1 + random.below(14);
            let blocks: Vec<Block> = (0..count)
                .map(|_| {
                    let first = random.below(10);
                    block(64 * (1 + random.below(9)), first, first + random.below(5))
                })
                .collect();
            let placed = place(&blocks);
            for a in 0..count {
                assert!(placed.offsets[a] + blocks[a].size_bytes <= placed.size_bytes);
                for b in 0..a {
                    let apart = placed.offsets[a] + blocks[a].size_bytes <= placed.offsets[b]
                        || placed.offsets[b] + blocks[b].size_bytes <= placed.offsets[a];
                    assert!(apart || !blocks[a].live.overlaps(blocks[b].live), "case {case}: {a} and {b}");
                }
            }
            assert!(placed.size_bytes >= largest_live_set(&blocks));
            better += usize::from(placed.size_bytes < best_greedy(&blocks).size_bytes);
        }
        assert!(better > 0, "the search never found anything");
    }
}
