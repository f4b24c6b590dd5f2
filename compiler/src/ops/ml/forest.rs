//! Decision trees in one normal form, and the walk through all of them at once.
//!
//! Every node asks `x[feature] ≤ threshold`, whatever a model asks: `<` has the next smaller threshold, `>` and `≥` swap the
//! children, equality is two nodes, membership of a set a search tree over its members. A leaf leads to itself. So each round of the
//! walk is the same few gathers for all trees of all rows, and after as many rounds as the deepest tree has levels all are at leaves.

use std::collections::{BTreeMap, VecDeque};

use mcc_support::{DType, Tensor, TensorType, tensor::Number};

use crate::graph::{Extent, Op, UnaryFn, Wire};

/// What a node of a model asks of its feature.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    Leaf,
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    Equal(f64),
    NotEqual(f64),
    OneOf(Vec<f64>),
}

/// A node as models give it; children are places in the list of nodes.
#[derive(Clone, Debug)]
pub struct TreeNode {
    pub feature: usize,
    pub test: Test,
    pub yes: usize,
    pub no: usize,
    /// A missing value (NaN) goes to `yes`, whatever the test.
    pub missing_yes: bool,
}

/// In normal form.
#[derive(Clone, Copy)]
struct Node {
    feature: usize,
    threshold: f64,
    yes: usize,
    no: usize,
    missing_yes: bool,
}

/// Trees whose nodes stand in one list; a place that the list of the model has stays that place.
pub struct Forest {
    nodes: Vec<Node>,
    pub roots: Vec<usize>,
    /// In which thresholds are compared.
    dtype: DType,
    depth: usize,
}

impl Forest {
    /// `dtype` is f32 or f64. `None` where a walk would never end.
    pub fn new(given: &[TreeNode], roots: Vec<usize>, dtype: DType) -> Option<Self> {
        let leaf = |place| Node { feature: 0, threshold: 0.0, yes: place, no: place, missing_yes: false };
        let mut forest = Self { nodes: (0..given.len()).map(leaf).collect(), roots, dtype, depth: 0 };
        for (place, node) in given.iter().enumerate().filter(|(_, node)| node.test != Test::Leaf) {
            forest.nodes[place] = forest.normal(node);
        }
        forest.depth = forest.longest_path()?;
        Some(forest)
    }

    /// The node that asks what `given` does; others that it needs are appended.
    fn normal(&mut self, given: &TreeNode) -> Node {
        let &TreeNode { feature, ref test, yes, no, missing_yes } = given;
        let plain = |threshold: f64, yes, no, missing_yes| Node { feature, threshold, yes, no, missing_yes };
        match *test {
            Test::Leaf => unreachable!("leaves are not asked"),
            Test::AtMost(value) => plain(value, yes, no, missing_yes),
            Test::Below(value) => plain(self.before(value), yes, no, missing_yes),
            // A NaN must go to `no`, which is where the swapped test would send it for `≤`.
            Test::Above(value) => plain(value, no, yes, !missing_yes),
            Test::AtLeast(value) => plain(self.before(value), no, yes, !missing_yes),
            Test::Equal(value) => self.equal(feature, value, yes, no, missing_yes),
            // NaN differs from everything.
            Test::NotEqual(value) => self.equal(feature, value, no, yes, false),
            Test::OneOf(ref members) => {
                let mut members: Vec<f64> = members.iter().copied().filter(|member| !member.is_nan()).collect();
                members.sort_by(f64::total_cmp);
                members.dedup();
                self.member(feature, &members, yes, no, missing_yes)
            }
        }
    }

    /// Is at most `value` and not at most the number before it.
    fn equal(&mut self, feature: usize, value: f64, yes: usize, no: usize, missing_yes: bool) -> Node {
        let below = Node { feature, threshold: self.before(value), yes: no, no: yes, missing_yes: false };
        self.nodes.push(below);
        Node { feature, threshold: value, yes: self.nodes.len() - 1, no, missing_yes }
    }

    /// A balanced search among sorted members.
    fn member(&mut self, feature: usize, members: &[f64], yes: usize, no: usize, missing_yes: bool) -> Node {
        match *members {
            [] => Node { feature, threshold: f64::NAN, yes, no, missing_yes },
            [value] => self.equal(feature, value, yes, no, missing_yes),
            _ => {
                let (low, high) = members.split_at(members.len() / 2);
                let child = |forest: &mut Self, part: &[f64]| {
                    let node = forest.member(feature, part, yes, no, missing_yes);
                    forest.nodes.push(node);
                    forest.nodes.len() - 1
                };
                let (yes, no) = (child(self, low), child(self, high));
                Node { feature, threshold: low[low.len() - 1], yes, no, missing_yes: false }
            }
        }
    }

    /// The largest number of the type below `value`; NaN, to which nothing compares, where there is none.
    fn before(&self, value: f64) -> f64 {
        let before = if self.dtype == DType::F64 { value.next_down() } else { f64::from((value as f32).next_down()) };
        if value == f64::NEG_INFINITY { f64::NAN } else { before }
    }

    /// The number of steps from a root to the farthest leaf. `None` where nodes lead in a circle.
    fn longest_path(&self) -> Option<usize> {
        let children = |place: usize| {
            let node = self.nodes[place];
            [node.yes, node.no].into_iter().filter(move |&child| child != place || node.yes != node.no)
        };
        let mut parents = vec![0usize; self.nodes.len()];
        (0..self.nodes.len()).flat_map(children).for_each(|child| parents[child] += 1);
        let mut ready: VecDeque<usize> = (0..self.nodes.len()).filter(|&place| parents[place] == 0).collect();
        let mut depths = vec![0; self.nodes.len()];
        let mut seen = 0;
        while let Some(place) = ready.pop_front() {
            seen += 1;
            for child in children(place) {
                depths[child] = depths[child].max(depths[place] + 1);
                parents[child] -= 1;
                if parents[child] == 0 {
                    ready.push_back(child);
                }
            }
        }
        (seen == self.nodes.len()).then(|| depths.into_iter().max().unwrap_or(0))
    }

    pub fn depth(&self) -> usize {
        self.depth
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The largest feature that is asked for.
    pub fn last_feature(&self) -> Option<usize> {
        self.inner().map(|(_, node)| node.feature).max()
    }

    fn inner(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate().filter(|(place, node)| node.yes != *place || node.no != *place)
    }

    /// The leaves of the tree below a root.
    pub fn leaves(&self, root: usize) -> Vec<usize> {
        let mut seen = BTreeMap::new();
        let mut waiting = vec![root];
        while let Some(place) = waiting.pop() {
            let node = self.nodes[place];
            let leaf = node.yes == place && node.no == place;
            if seen.insert(place, leaf).is_none() && !leaf {
                waiting.extend([node.no, node.yes]);
            }
        }
        seen.into_iter().filter(|&(_, leaf)| leaf).map(|(place, _)| place).collect()
    }

    /// For rows `x [batch, features]` of the forest's type, the place of the leaf that each tree reaches: `[batch, trees]`.
    pub fn walk<'b>(&self, x: Wire<'b>) -> Wire<'b> {
        let builder = x.builder();
        let per_node = |numbers: Vec<Number>, dtype: DType| {
            builder.constant(Tensor::from_numbers(TensorType::new(dtype, [numbers.len()]), numbers))
        };
        let places = |numbers: Vec<usize>| per_node(numbers.into_iter().map(|n| Number::Int(n as i64)).collect(), DType::I32);
        let features = places(self.nodes.iter().map(|node| node.feature).collect());
        let thresholds = per_node(self.nodes.iter().map(|node| Number::Float(node.threshold)).collect(), self.dtype);
        let children = places(self.nodes.iter().flat_map(|node| [node.no, node.yes]).collect());
        let missing = self
            .inner()
            .any(|(_, node)| node.missing_yes)
            .then(|| per_node(self.nodes.iter().map(|node| Number::Int(i64::from(node.missing_yes))).collect(), DType::Bool));
        let mut place = places(self.roots.clone());
        for round in 0..self.depth {
            let feature = features.gather(place, 0);
            // All rows begin at the roots.
            let value =
                if round == 0 { x.gather(feature, 1) } else { builder.add(Op::GatherElements { axis: 1 }, &[x, feature]) };
            let mut answer = value.le(thresholds.gather(place, 0));
            if let Some(missing) = missing {
                answer = value.unary(UnaryFn::IsNan).select(missing.gather(place, 0), answer);
            }
            place = children.gather(place * 2.0 + answer.cast(DType::I32), 0);
        }
        place.broadcast_to(&[x.extent(0), Extent::from(self.roots.len())])
    }
}
