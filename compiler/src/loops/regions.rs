//! Regions: kernels that run under a condition or again and again.

use std::collections::BTreeSet;

use mcc_support::{Result, ensure};

use super::{Program, Region, RegionId, RegionKind};

/// What runs at one place of a region, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// By place in the program.
    Kernel(usize),
    Region(RegionId, Vec<Item>),
}

impl RegionKind {
    /// The `bool[]` that decides.
    pub fn condition(&self) -> super::BufferId {
        match *self {
            RegionKind::Loop { go } => go,
            RegionKind::Branch { cond, .. } => cond,
        }
    }
}

impl Program {
    /// The regions that a kernel stands in, the outermost first.
    pub fn region_path(&self, region: Option<RegionId>) -> Vec<RegionId> {
        let mut path: Vec<RegionId> = std::iter::successors(region, |&region| self.regions[region].parent).collect();
        path.reverse();
        path
    }

    /// Whether two regions stand in different branches of one condition.
    pub fn are_sides(&self, a: Option<RegionId>, b: Option<RegionId>) -> bool {
        let (a, b) = (self.region_path(a), self.region_path(b));
        let sides = |&a: &RegionId, &b: &RegionId| match (self.regions[a].kind, self.regions[b].kind) {
            (RegionKind::Branch { cond: x, taken: s }, RegionKind::Branch { cond: y, taken: t }) => {
                x == y && s != t && self.regions[a].parent == self.regions[b].parent
            }
            _ => false,
        };
        a.iter().any(|a| b.iter().any(|b| sides(a, b)))
    }

    /// The kernels as they stand in regions. A region without kernels is left out.
    pub fn items(&self) -> Vec<Item> {
        let mut open: Vec<(Option<RegionId>, Vec<Item>)> = vec![(None, Vec::new())];
        let close = |open: &mut Vec<(Option<RegionId>, Vec<Item>)>| {
            if let Some((Some(region), items)) = open.pop() {
                open.last_mut().expect("the outermost stays").1.push(Item::Region(region, items));
            }
        };
        for (place, kernel) in self.kernels.iter().enumerate() {
            let path = self.region_path(kernel.region);
            let common = open.iter().skip(1).zip(&path).take_while(|((region, _), wanted)| *region == Some(**wanted)).count();
            while open.len() > 1 + common {
                close(&mut open);
            }
            open.extend(path[common..].iter().map(|&region| (Some(region), Vec::new())));
            open.last_mut().expect("the outermost stays").1.push(Item::Kernel(place));
        }
        while open.len() > 1 {
            close(&mut open);
        }
        open.remove(0).1
    }

    /// First and last kernel of each loop, with those of the regions in it.
    pub fn loop_spans(&self) -> Vec<(RegionId, usize, usize)> {
        let is_loop = |region: &Region| matches!(region.kind, RegionKind::Loop { .. });
        let span = |(id, _): (RegionId, &Region)| {
            let inside = |&place: &usize| self.region_path(self.kernels[place].region).contains(&id);
            let mut places = (0..self.kernels.len()).filter(inside);
            let first = places.next()?;
            Some((id, first, places.next_back().unwrap_or(first)))
        };
        self.regions.iter().filter(|(_, region)| is_loop(region)).filter_map(span).collect()
    }
}

/// That the kernels of each region stand side by side, and that latches end loops.
pub fn verify(program: &Program) -> Result<()> {
    let mut seen = BTreeSet::new();
    verify_items(program, &program.items(), &mut seen)?;
    for kernel in program.kernels.iter().filter(|kernel| kernel.latch) {
        let in_loop = kernel.region.is_some_and(|region| matches!(program.regions[region].kind, RegionKind::Loop { .. }));
        ensure!(in_loop, "kernel {} is a latch, but it is not in a loop", kernel.name);
    }
    Ok(())
}

fn verify_items(program: &Program, items: &[Item], seen: &mut BTreeSet<RegionId>) -> Result<()> {
    let mut latched = false;
    for item in items {
        let is_latch = matches!(item, Item::Kernel(place) if program.kernels[*place].latch);
        ensure!(is_latch || !latched, "something runs behind the latches of a loop");
        latched |= is_latch;
        if let Item::Region(region, items) = item {
            ensure!(seen.insert(*region), "the kernels of {region} stand apart");
            verify_items(program, items, seen)?;
        }
    }
    Ok(())
}
