//! Ensembles of decision trees.

use std::collections::BTreeMap;

use mcc_support::{DType, Result, Shape, Tensor, TensorType, tensor::Number};

use super::forest::{Forest, Test, TreeNode};
use super::scores::{Labels, Transform, both_scores, column};
use super::{DOMAIN, rows};
use crate::graph::{ReduceFn, Wire};
use crate::ops::{NodeContext, OpDef};

pub static ALL: &[&OpDef] = &[&TREE_ENSEMBLE, &TREE_ENSEMBLE_CLASSIFIER, &TREE_ENSEMBLE_REGRESSOR];

/// Scores that are computed one by one.
const MAX_PARTS: usize = 4096;
/// Rounds of a walk that are written out.
const MAX_DEPTH: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

/// Trees, and for their leaves what each adds to which score.
struct Ensemble {
    forest: Forest,
    /// By place of the leaf: scores and weights.
    weights: BTreeMap<usize, Vec<(usize, f64)>>,
    scores: usize,
    /// Of thresholds, weights and sums.
    dtype: DType,
}

impl Ensemble {
    fn new(
        node: &NodeContext<'_, '_>,
        nodes: &[TreeNode],
        roots: Vec<usize>,
        weights: BTreeMap<usize, Vec<(usize, f64)>>,
        scores: usize,
        dtype: DType,
    ) -> Result<Self> {
        if let Some((_, score)) = weights.values().flatten().find(|(score, _)| *score >= scores) {
            return Err(node.error(format!("a leaf adds to score {score}, but there are {scores}")));
        }
        let forest = Forest::new(nodes, roots, dtype).ok_or_else(|| node.error("the nodes of a tree lead in a circle"))?;
        if forest.depth() > MAX_DEPTH || forest.node_count() > i32::MAX as usize / 2 {
            return Err(node.error(format!("trees of {} levels are not supported, {MAX_DEPTH} are", forest.depth())));
        }
        node.count("the bytes of weights for each leaf", &[forest.node_count(), scores, size_of::<f64>()])?;
        Ok(Self { forest, weights, scores, dtype })
    }

    /// Scores `[batch, scores]` of rows, in the ensemble's type.
    fn aggregate<'b>(&mut self, node: &NodeContext<'_, 'b>, x: Wire<'b>, aggregate: Aggregate) -> Result<Wire<'b>> {
        let features = x.shape()[1];
        if let Some(last) = self.forest.last_feature().filter(|&last| last >= features) {
            return Err(node.error(format!("a tree asks for feature {last}, but the operand is {}", x.ty())));
        }
        let x = x.cast(self.dtype);
        let kind = match aggregate {
            Aggregate::Min => ReduceFn::Min,
            Aggregate::Max => ReduceFn::Max,
            Aggregate::Average | Aggregate::Sum => ReduceFn::Sum,
        };
        let scores = match self.scores_of_trees() {
            Some(counts) => self.one_score_each(x, kind, &counts),
            None => self.several_scores(x, kind),
        };
        Ok(match aggregate {
            Aggregate::Sum => scores,
            Aggregate::Average => scores / self.forest.roots.len() as f64,
            // Where no leaf that was reached has a weight.
            Aggregate::Min | Aggregate::Max => scores.eq(scores.like(absent(kind))).select(scores.like(0.0), scores),
        })
    }

    /// Where all leaves of each tree add to one score, of a few: sorts the trees by it and counts them.
    fn scores_of_trees(&mut self) -> Option<Vec<usize>> {
        if self.scores > MAX_PARTS {
            return None;
        }
        let mut trees = Vec::with_capacity(self.forest.roots.len());
        for &root in &self.forest.roots {
            let mut found = None;
            for leaf in self.forest.leaves(root) {
                match self.weights.get(&leaf).map(Vec::as_slice) {
                    None => {}
                    Some(&[(score, _)]) if found.is_none_or(|found| found == score) => found = Some(score),
                    Some(_) => return None,
                }
            }
            trees.push((found.unwrap_or(0), root));
        }
        trees.sort_by_key(|&(score, _)| score);
        let mut counts = vec![0; self.scores];
        trees.iter().for_each(|&(score, _)| counts[score] += 1);
        self.forest.roots = trees.into_iter().map(|(_, root)| root).collect();
        Some(counts)
    }

    fn one_score_each<'b>(&self, x: Wire<'b>, kind: ReduceFn, counts: &[usize]) -> Wire<'b> {
        let (batch, builder) = (x.shape()[0], x.builder());
        let weight = |place: usize| self.weights.get(&place).map_or(absent(kind), |weights| weights[0].1);
        let table = (0..self.forest.node_count()).map(|place| Number::Float(weight(place)));
        let table = builder.constant(Tensor::from_numbers(TensorType::new(self.dtype, [self.forest.node_count()]), table));
        let reached = table.gather(self.forest.walk(x), 0);
        if counts.iter().all(|&count| count == counts[0]) {
            return reached.reshape([batch, counts.len(), counts[0]]).reduce(kind, &[2]);
        }
        let mut start = 0;
        let parts = counts.iter().map(|&count| {
            let part = reached.slice_axis(1, start, count).reduce_keep(kind, &[1]);
            start += count;
            part
        });
        builder.concat(&parts.collect::<Vec<_>>(), 1)
    }

    fn several_scores<'b>(&self, x: Wire<'b>, kind: ReduceFn) -> Wire<'b> {
        let mut table = vec![absent(kind); self.forest.node_count() * self.scores];
        for (place, weights) in &self.weights {
            for &(score, weight) in weights {
                let entry = &mut table[place * self.scores + score];
                *entry = if kind == ReduceFn::Sum || *entry != absent(kind) { *entry + weight } else { weight };
            }
        }
        let ty = TensorType::new(self.dtype, Shape::new([self.forest.node_count(), self.scores]));
        let table = x.builder().constant(Tensor::from_numbers(ty, table.into_iter().map(Number::Float)));
        table.gather(self.forest.walk(x), 0).reduce(kind, &[1])
    }
}

/// The weight of a leaf that has none.
fn absent(kind: ReduceFn) -> f64 {
    match kind {
        ReduceFn::Min => f64::INFINITY,
        ReduceFn::Max | ReduceFn::MaxNumber => f64::NEG_INFINITY,
        ReduceFn::Sum | ReduceFn::Prod => 0.0,
    }
}

/// A list of numbers that is an attribute of floats, or since version 3 may be a tensor under a longer name.
fn numbers(node: &NodeContext<'_, '_>, name: &str) -> Result<Option<Vec<f64>>> {
    let attributes = node.attributes();
    let tensor = if node.version() < 3 { None } else { attributes.tensor(&format!("{name}_as_tensor"))? };
    let floats = attributes.floats(name)?.filter(|floats| !floats.is_empty());
    match (floats, tensor.filter(|tensor| tensor.count() > 0)) {
        (Some(floats), None) => Ok(Some(floats.into_iter().map(f64::from).collect())),
        (None, Some(tensor)) => Ok(Some(tensor.numbers().map(Number::as_f64).collect())),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(node.error(format!("the attribute '{name}' is given twice, as floats and as a tensor"))),
    }
}

/// The entries of a list that has one for each node; without the list, all are `default`.
fn per_node<T: Clone>(node: &NodeContext<'_, '_>, name: &str, list: Option<Vec<T>>, count: usize, default: T) -> Result<Vec<T>> {
    let list = list.filter(|list| !list.is_empty() || count == 0).unwrap_or_else(|| vec![default; count]);
    if list.len() == count {
        Ok(list)
    } else {
        Err(node.error(format!("the attribute '{name}' has {} entries, but there are {count}", list.len())))
    }
}

fn place(node: &NodeContext<'_, '_>, what: &str, value: i64, count: usize) -> Result<usize> {
    let place = usize::try_from(value).ok().filter(|&place| place < count);
    place.ok_or_else(|| node.error(format!("{what} {value} does not exist, there are {count}")))
}

/// A threshold must be a number: nothing compares with NaN.
fn threshold(node: &NodeContext<'_, '_>, value: f64, dtype: DType) -> Result<f64> {
    if value.is_nan() {
        return Err(node.error("a threshold of a tree is NaN"));
    }
    Ok(if dtype == DType::F64 { value } else { f64::from(value as f32) })
}

/// The trees of a classifier or a regressor: lists with one entry for each node, which tree and number name; `prefix` and `ids` are
/// how the attributes of weights are called.
fn named_trees(node: &NodeContext<'_, '_>, prefix: &str, ids: &str, scores: usize, dtype: DType) -> Result<Ensemble> {
    let attributes = node.attributes();
    for name in ["nodes_hitrates", "nodes_hitrates_as_tensor"] {
        attributes.ignore(name);
    }
    let list = |name: &str| -> Result<Vec<i64>> { attributes.required(name, attributes.ints(name)?) };
    let (trees, numbers_in_tree) = (list("nodes_treeids")?, list("nodes_nodeids")?);
    let count = trees.len();
    let ints = |name: &str| -> Result<Vec<i64>> { per_node(node, name, attributes.ints(name)?, count, 0) };
    let numbers_in_tree = per_node(node, "nodes_nodeids", Some(numbers_in_tree), count, 0)?;
    let (yes, no) = (ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let (features, missing) = (ints("nodes_featureids")?, ints("nodes_missing_value_tracks_true")?);
    let modes = per_node(node, "nodes_modes", attributes.strings("nodes_modes")?, count, "BRANCH_LEQ")?;
    let thresholds = per_node(node, "nodes_values", numbers(node, "nodes_values")?, count, 0.0)?;
    let mut places = BTreeMap::new();
    for (at, name) in trees.iter().copied().zip(numbers_in_tree.iter().copied()).enumerate() {
        if places.insert(name, at).is_some() {
            return Err(node.error(format!("tree {} has two nodes {}", name.0, name.1)));
        }
    }
    let find = |tree: i64, number: i64| {
        places.get(&(tree, number)).copied().ok_or_else(|| node.error(format!("tree {tree} has no node {number}")))
    };
    let mut nodes = Vec::with_capacity(count);
    let mut is_child = vec![false; count];
    for at in 0..count {
        let test = match modes[at] {
            "LEAF" => Test::Leaf,
            mode => comparison(node, mode, threshold(node, thresholds[at], dtype)?)?,
        };
        let child = |number: i64| if test == Test::Leaf { Ok(at) } else { find(trees[at], number) };
        let (yes, no) = (child(yes[at])?, child(no[at])?);
        if test != Test::Leaf {
            (is_child[yes], is_child[no]) = (true, true);
        }
        let feature = if test == Test::Leaf { 0 } else { node.size("the feature", features[at])? };
        nodes.push(TreeNode { feature, test, yes, no, missing_yes: missing[at] != 0 });
    }
    let roots: Vec<usize> = (0..count).filter(|&at| !is_child[at]).collect();
    let (weight_trees, weight_nodes) = (list(&format!("{prefix}_treeids"))?, list(&format!("{prefix}_nodeids"))?);
    let (targets, name) = (list(ids)?, format!("{prefix}_weights"));
    let weights = per_node(node, &name, numbers(node, &name)?, weight_trees.len(), 0.0)?;
    let (weight_nodes, targets) =
        (per_node(node, "nodeids", Some(weight_nodes), weights.len(), 0)?, per_node(node, ids, Some(targets), weights.len(), 0)?);
    let mut of_leaves: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, &weight) in weights.iter().enumerate() {
        let leaf = find(weight_trees[at], weight_nodes[at])?;
        if nodes[leaf].test == Test::Leaf {
            of_leaves.entry(leaf).or_default().push((node.size("the score", targets[at])?, weight));
        }
    }
    if roots.is_empty() {
        return Err(node.error("the ensemble has no tree"));
    }
    Ensemble::new(node, &nodes, roots, of_leaves, scores, dtype)
}

fn comparison(node: &NodeContext<'_, '_>, mode: &str, value: f64) -> Result<Test> {
    Ok(match mode {
        "BRANCH_LEQ" => Test::AtMost(value),
        "BRANCH_LT" => Test::Below(value),
        "BRANCH_GTE" => Test::AtLeast(value),
        "BRANCH_GT" => Test::Above(value),
        "BRANCH_EQ" => Test::Equal(value),
        "BRANCH_NEQ" => Test::NotEqual(value),
        _ => return Err(node.error(format!("the mode '{mode}' of a node is unknown"))),
    })
}

pub static TREE_ENSEMBLE_REGRESSOR: OpDef = OpDef {
    domain: DOMAIN,
    name: "TreeEnsembleRegressor",
    since: &[1, 3],
    shape_inputs: &[],
    build: |node| {
        let x = rows(node)?;
        let attributes = node.attributes();
        let targets = node.size("the count of targets", attributes.int_or("n_targets", 1)?)?;
        let aggregate = match attributes.word("aggregate_function", &["SUM", "AVERAGE", "MIN", "MAX"])? {
            "AVERAGE" => Aggregate::Average,
            "MIN" => Aggregate::Min,
            "MAX" => Aggregate::Max,
            _ => Aggregate::Sum,
        };
        let transform = Transform::of(node)?;
        let mut ensemble = named_trees(node, "target", "target_ids", targets, x.dtype().single_or_double())?;
        let scores = ensemble.aggregate(node, x, aggregate)?;
        let scores = match numbers(node, "base_values")? {
            Some(base) => scores + row(node, &base, targets, scores.dtype())?,
            None => scores,
        };
        Ok(vec![transform.apply_to_several(scores.cast(DType::F32))])
    },
};

/// The attribute `base_values` as a row that is added to the scores.
fn row<'b>(node: &NodeContext<'_, 'b>, base: &[f64], count: usize, dtype: DType) -> Result<Wire<'b>> {
    if base.len() != count {
        return Err(node.error(format!("{} base values are given for {count} scores", base.len())));
    }
    let ty = TensorType::new(dtype, [1, count]);
    Ok(node.builder().constant(Tensor::from_numbers(ty, base.iter().copied().map(Number::Float))))
}

/// Results are the label and the scores of each row.
pub static TREE_ENSEMBLE_CLASSIFIER: OpDef = OpDef {
    domain: DOMAIN,
    name: "TreeEnsembleClassifier",
    since: &[1, 3],
    shape_inputs: &[],
    build: |node| {
        let x = rows(node)?;
        let labels = Labels::of(node, "classlabels_int64s", "classlabels_strings")?;
        let transform = Transform::of(node)?;
        let mut ensemble = named_trees(node, "class", "class_ids", labels.count(), x.dtype().single_or_double())?;
        let positive = ensemble.weights.values().flatten().all(|&(_, weight)| weight >= 0.0);
        let used: Vec<bool> =
            (0..labels.count()).map(|class| ensemble.weights.values().flatten().any(|&(score, _)| score == class)).collect();
        let base = numbers(node, "base_values")?.unwrap_or_default();
        let scores = ensemble.aggregate(node, x, Aggregate::Sum)?;
        if labels.count() == 2 {
            return two_classes(node, scores, &labels, transform, positive, &used, &base);
        }
        let scores = if base.is_empty() { scores } else { scores + row(node, &base, labels.count(), scores.dtype())? };
        // A class for which no tree speaks is not chosen.
        let silent: Vec<f64> = used.iter().map(|&used| if used || !base.is_empty() { 0.0 } else { f64::NEG_INFINITY }).collect();
        let heard = if silent.contains(&f64::NEG_INFINITY) && silent.contains(&0.0) {
            scores + row(node, &silent, labels.count(), scores.dtype())?
        } else {
            scores
        };
        Ok(vec![labels.of_largest(heard), transform.apply_to_several(scores.cast(DType::F32))])
    },
};

/// Of two classes, a model may have the score of one alone.
fn two_classes<'b>(
    node: &NodeContext<'_, 'b>,
    scores: Wire<'b>,
    labels: &Labels,
    transform: Transform,
    positive: bool,
    used: &[bool],
    base: &[f64],
) -> Result<Vec<Wire<'b>>> {
    let single = used != [true, true];
    let limit = if single && positive { 0.5 } else { 0.0 };
    if used == [false, true] || !single {
        if !base.is_empty() {
            return Err(node.error("base values of two classes that have scores of their own are not supported"));
        }
        let second = column(scores, 1);
        return Ok(vec![labels.either(second.like(limit).lt(second)), transform.apply(scores.cast(DType::F32))]);
    }
    let score = scores.slice_axis(1, 0, 1);
    let score = if base.is_empty() { score } else { score + row(node, base, 1, score.dtype())? };
    let decided = column(score, 0);
    let label = labels.either(decided.like(limit).lt(decided));
    Ok(vec![label, both_scores(node, score.cast(DType::F32), transform, positive)?])
}

pub static TREE_ENSEMBLE: OpDef = OpDef {
    domain: DOMAIN,
    name: "TreeEnsemble",
    since: &[5],
    shape_inputs: &[],
    build: |node| {
        let x = rows(node)?;
        let attributes = node.attributes();
        let targets = node.size("the count of targets", attributes.int_or("n_targets", 1)?)?;
        let aggregate = match attributes.int_or("aggregate_function", 1)? {
            0 => Aggregate::Average,
            1 => Aggregate::Sum,
            2 => Aggregate::Min,
            3 => Aggregate::Max,
            other => return Err(node.error(format!("attribute 'aggregate_function' is {other}, which is not one of 0, 1, 2, 3"))),
        };
        let transform = place(node, "the transform", attributes.int_or("post_transform", 0)?, Transform::ALL.len())?;
        let mut ensemble = linked_trees(node, targets, x.dtype().single_or_double())?;
        let scores = ensemble.aggregate(node, x, aggregate)?;
        Ok(vec![Transform::ALL[transform].1.apply_to_several(scores).cast(x.dtype())])
    },
};

/// The trees of `TreeEnsemble`: lists of inner nodes and of leaves, whose places are the links. Leaves stand behind the inner nodes.
fn linked_trees(node: &NodeContext<'_, '_>, scores: usize, dtype: DType) -> Result<Ensemble> {
    let attributes = node.attributes();
    attributes.ignore("nodes_hitrates");
    let required = |name: &str| -> Result<Vec<i64>> { attributes.required(name, attributes.ints(name)?) };
    let tensor = |name: &str| -> Result<Option<Vec<f64>>> {
        Ok(attributes.tensor(name)?.map(|tensor| tensor.numbers().map(Number::as_f64).collect()))
    };
    let needed = |name: &str| -> Result<Vec<f64>> { attributes.required(name, tensor(name)?) };
    let features = required("nodes_featureids")?;
    let count = features.len();
    let ints = |name: &str, list: Option<Vec<i64>>| per_node(node, name, list, count, 0);
    let (yes, no) = (
        ints("nodes_truenodeids", attributes.ints("nodes_truenodeids")?)?,
        ints("nodes_falsenodeids", attributes.ints("nodes_falsenodeids")?)?,
    );
    let (yes_leaf, no_leaf) = (
        ints("nodes_trueleafs", attributes.ints("nodes_trueleafs")?)?,
        ints("nodes_falseleafs", attributes.ints("nodes_falseleafs")?)?,
    );
    let missing = ints("nodes_missing_value_tracks_true", attributes.ints("nodes_missing_value_tracks_true")?)?;
    let modes = per_node(node, "nodes_modes", Some(needed("nodes_modes")?), count, 0.0)?;
    let splits = per_node(node, "nodes_splits", Some(needed("nodes_splits")?), count, 0.0)?;
    let weights = needed("leaf_weights")?;
    let targets = per_node(node, "leaf_targetids", Some(required("leaf_targetids")?), weights.len(), 0)?;
    // The members of one set after the other, each closed by a NaN.
    let members = tensor("membership_values")?.unwrap_or_default();
    let mut sets = members.split(|member| member.is_nan()).map(<[f64]>::to_vec);
    let mut nodes = Vec::with_capacity(count + weights.len());
    for at in 0..count {
        let child = |place_of: i64, leaf: i64| {
            if leaf == 0 {
                place(node, "the node", place_of, count)
            } else {
                Ok(count + place(node, "the leaf", place_of, weights.len())?)
            }
        };
        let test = if modes[at] == 6.0 {
            Test::OneOf(sets.next().ok_or_else(|| node.error("a node asks for a set that 'membership_values' has not"))?)
        } else {
            const MODES: [&str; 6] = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"];
            let mode = MODES[place(node, "the mode", modes[at] as i64, MODES.len())?];
            comparison(node, mode, threshold(node, splits[at], dtype)?)?
        };
        nodes.push(TreeNode {
            feature: node.size("the feature", features[at])?,
            test,
            yes: child(yes[at], yes_leaf[at])?,
            no: child(no[at], no_leaf[at])?,
            missing_yes: missing[at] != 0,
        });
    }
    let leaf = TreeNode { feature: 0, test: Test::Leaf, yes: 0, no: 0, missing_yes: false };
    nodes.extend(std::iter::repeat_n(leaf, weights.len()));
    let roots =
        required("tree_roots")?.into_iter().map(|root| place(node, "the root", root, count)).collect::<Result<Vec<_>>>()?;
    if roots.is_empty() {
        return Err(node.error("the ensemble has no tree"));
    }
    let mut of_leaves = BTreeMap::new();
    for (at, (&weight, &target)) in weights.iter().zip(&targets).enumerate() {
        of_leaves.insert(count + at, vec![(node.size("the score", target)?, weight)]);
    }
    Ensemble::new(node, &nodes, roots, of_leaves, scores, dtype)
}
