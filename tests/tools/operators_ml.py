"""Cases of the domain ai.onnx.ml."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 5


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs, outputs, domain="ai.onnx.ml", **attributes)


def rows(rng, count=7, dtype=np.float32, features=FEATURES, missing=False):
    """Values on a coarse grid, so that they meet thresholds exactly."""
    x = np.round(rng.standard_normal((count, features)) * 2) / 2
    if missing:
        x[rng.random(x.shape) < 0.3] = np.nan
    return x.astype(dtype)


def forest(rng, trees, depth, modes=("BRANCH_LEQ",), missing=False):
    """Nodes of random trees as lists: (tree, node, mode, feature, threshold, true child, false child, missing tracks true)."""
    nodes = []
    for tree in range(trees):
        count = 0

        def grow(level):
            nonlocal count
            own, count = count, count + 1
            place = len(nodes)
            nodes.append(None)
            if level == 0 or (level < depth and rng.random() < 0.2):
                nodes[place] = (tree, own, "LEAF", 0, 0.0, 0, 0, 0)
                return own
            yes, no = grow(level - 1), grow(level - 1)
            mode = modes[rng.integers(len(modes))]
            threshold = float(np.round(rng.standard_normal() * 2) / 2)
            track = int(missing and rng.random() < 0.5)
            nodes[place] = (tree, own, mode, int(rng.integers(FEATURES)), threshold, yes, no, track)
            return own

        grow(depth)
    return nodes


def columns(nodes, as_double=False):
    tree, own, mode, feature, threshold, yes, no, track = map(list, zip(*nodes))
    result = dict(nodes_treeids=tree, nodes_nodeids=own, nodes_modes=mode, nodes_featureids=feature, nodes_truenodeids=yes,
                  nodes_falsenodeids=no)
    if any(track):
        result["nodes_missing_value_tracks_true"] = track
    if as_double:
        result["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(threshold), "values")
    else:
        result["nodes_values"] = threshold
    return result


def leaves(rng, nodes, prefix, targets, positive=False, as_double=False):
    """Weights of all leaves: `targets` says which ones a tree's leaves have, by the number of the tree."""
    found = [(t, n, target) for t, n, mode, *_ in nodes if mode == "LEAF" for target in targets(t)]
    weights = rng.standard_normal(len(found))
    weights = np.abs(weights) / 4 if positive else weights
    tree, own, target = map(list, zip(*found))
    result = {prefix + "_treeids": tree, prefix + "_nodeids": own,
              ("class" if prefix == "class" else "target") + "_ids": target}
    if as_double:
        result[prefix + "_weights_as_tensor"] = numpy_helper.from_array(weights, "weights")
    else:
        result[prefix + "_weights"] = weights.tolist()
    return result


def tree_regressors(r):
    def one(name, rng, nodes, targets, count, x, as_double=False, opset=3, **more):
        attributes = {**columns(nodes, as_double), **leaves(rng, nodes, "target", targets, as_double=as_double), **more}
        r.case("tree_regressor_" + name, node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=count, **attributes), {"x": x}, ["y"],
               opsets={"ai.onnx.ml": opset})

    for index, modes in enumerate([(mode,) for mode in MODES] + [MODES]):
        for missing in (False, True):
            rng = np.random.default_rng(index)
            nodes = forest(rng, 4, 4, modes, missing)
            name = "%s%s" % ("mixed" if len(modes) > 1 else modes[0].lower(), "_missing" if missing else "")
            one(name, rng, nodes, lambda t: [0], 1, rows(rng, 9, missing=missing), opset=1 + 2 * (index % 2))
    for dtype in (np.float64,):
        rng = np.random.default_rng(20)
        nodes = forest(rng, 3, 3, ("BRANCH_LEQ", "BRANCH_LT"))
        one("of_" + np.dtype(dtype).name, rng, nodes, lambda t: [0], 1, rows(rng, dtype=dtype), as_double=dtype == np.float64)
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        for count, what, targets in ((1, "one", lambda t: [0]), (3, "all", lambda t: [0, 1, 2]), (3, "each", lambda t: [t % 3]),
                                     (3, "uneven", lambda t: [[0, 1, 1, 2, 2, 2][t]])):
            for base in (False, True):
                rng = np.random.default_rng(30 + count)
                nodes = forest(rng, 6, 3)
                more = {"base_values": [0.5 * (i + 1) for i in range(count)]} if base else {}
                one("%s_%s%s" % (aggregate.lower(), what, "_base" if base else ""), rng, nodes, targets, count, rows(rng),
                    aggregate_function=aggregate, **more)
    for transform in TRANSFORMS:
        for count in (1, 3):
            rng = np.random.default_rng(40)
            nodes = forest(rng, 4, 3)
            attributes = {**columns(nodes), **leaves(rng, nodes, "target", lambda t: list(range(count)), positive=True)}
            attributes["target_weights"] = [w / 2 for w in attributes["target_weights"]]
            r.case("tree_regressor_%s_%d" % (transform.lower(), count),
                   node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=count, post_transform=transform, **attributes),
                   {"x": rows(rng)}, ["y"])


def tree_classifiers(r):
    def one(name, seed, labels, targets, positive, x=None, as_double=False, **more):
        rng = np.random.default_rng(seed)
        nodes = forest(rng, 6, 3)
        attributes = {**columns(nodes, as_double), **leaves(rng, nodes, "class", targets, positive, as_double), **more}
        x = rows(rng) if x is None else x
        r.case("tree_classifier_" + name, node("TreeEnsembleClassifier", ["x"], ["label", "scores"], classlabels_int64s=labels,
                                               **attributes), {"x": x}, ["label", "scores"])

    # Where two classes have scores of their own, ONNX Runtime writes the labels 0 and 1, whatever the model calls them.
    kinds = {"binary0": ([4, 7], lambda t: [0]), "binary1": ([4, 7], lambda t: [1]), "pair": ([0, 1], lambda t: [0, 1]),
             "three": ([0, 1, 2], lambda t: [0, 1, 2]),
             "three_each": ([5, 3, 9], lambda t: [t % 3]), "silent": ([5, 3, 9], lambda t: [0, 2])}
    for kind, (labels, targets) in kinds.items():
        for positive in (False, True):
            for transform in TRANSFORMS:
                if transform == "PROBIT" and kind in ("binary0", "binary1"):
                    continue  # the second score is not written
                # What base values mean for two classes is open but for one score.
                for base in {"binary0": (0, 1), "binary1": (0,), "pair": (0,)}.get(kind, (0, len(labels))):
                    more = {"base_values": [0.25 * (i + 1) for i in range(base)]} if base else {}
                    name = "%s_%s_%s_%d" % (kind, "positive" if positive else "signed", transform.lower(), base)
                    one(name, 50 + positive, labels, targets, positive, post_transform=transform, **more)
    rng = np.random.default_rng(1)
    one("double", 60, [0, 1, 2], lambda t: [0, 1, 2], True, rows(rng, dtype=np.float64), as_double=True)
    one("int64", 61, [0, 1, 2], lambda t: [0, 1, 2], True, rows(rng, dtype=np.int64))


def ensembles(r):
    """TreeEnsemble of version 5: inner nodes and leaves in lists of their own."""
    rng = np.random.default_rng(70)

    def one(name, trees, depth, modes, targets=1, dtype=np.float32, missing=False, sets=(), **more):
        inner, leaf, members, roots = [], [], [], []

        def grow(level):
            if level == 0 or (level < depth and rng.random() < 0.2):
                leaf.append(float(rng.standard_normal()))
                return len(leaf) - 1, 1
            place = len(inner)
            inner.append(None)
            mode = int(modes[rng.integers(len(modes))])
            if mode == 6:
                members.extend(list(sets[rng.integers(len(sets))]) + [np.nan])
            split = float(np.round(rng.standard_normal() * 2) / 2)
            track = int(missing and rng.random() < 0.5)
            yes, no = grow(level - 1), grow(level - 1)
            inner[place] = (mode, int(rng.integers(FEATURES)), split, yes, no, track)
            return place, 0

        for _ in range(trees):
            roots.append(grow(depth)[0])
        mode, feature, split, yes, no, track = map(list, zip(*inner))
        array = lambda values, kind: numpy_helper.from_array(np.array(values, dtype=kind), "t")
        attributes = dict(nodes_modes=array(mode, np.uint8), nodes_featureids=feature, nodes_splits=array(split, dtype),
                          nodes_truenodeids=[place for place, _ in yes], nodes_trueleafs=[kind for _, kind in yes],
                          nodes_falsenodeids=[place for place, _ in no], nodes_falseleafs=[kind for _, kind in no],
                          leaf_targetids=[int(rng.integers(targets)) for _ in leaf], leaf_weights=array(leaf, dtype),
                          tree_roots=roots, n_targets=targets, **more)
        if missing:
            attributes["nodes_missing_value_tracks_true"] = track
        if members:
            attributes["membership_values"] = array(members, dtype)
        r.case("tree_ensemble_" + name, node("TreeEnsemble", ["x"], ["y"], **attributes),
               {"x": np.floor(rows(rng, 11, dtype, missing=missing)) if sets else rows(rng, 11, dtype, missing=missing)}, ["y"],
               opsets={"ai.onnx.ml": 5, "": 21})

    for mode in range(6):
        one("mode%d" % mode, 3, 3, [mode])
    one("mixed", 4, 4, range(6), targets=3)
    one("missing", 4, 4, range(6), missing=True)
    one("double", 4, 4, range(6), targets=2, dtype=np.float64)
    one("members", 3, 3, [6], sets=([1.0], [-1.0, 1.0], [-2.0, 0.0, 1.0, 2.0, 40.0]))
    one("members_mixed", 4, 4, [0, 6], targets=2, sets=([1.0, 2.0, 3.0], [0.0, 2.0]))
    for aggregate in range(4):
        one("aggregate%d" % aggregate, 5, 3, [0], targets=2, aggregate_function=aggregate)
    for transform in (0, 3, 4):  # ONNX Runtime has the numbers of SOFTMAX and LOGISTIC the other way round
        one("transform%d" % transform, 3, 2, [0], targets=3, post_transform=transform)


def linear_models(r):
    rng = np.random.default_rng(80)
    floats = lambda *shape: rng.standard_normal(shape).astype(np.float32).ravel().tolist()
    for transform in TRANSFORMS:
        for targets in (1, 3):
            probit = transform == "PROBIT"
            x, scale, base, tolerance = (rows(rng) / 16, 0.05, 0.8, 1e-4) if probit else (rows(rng), 1.0, 0.5, 1e-5)
            r.case("linear_regressor_%s_%d" % (transform.lower(), targets),
                   node("LinearRegressor", ["x"], ["y"], coefficients=[scale * c for c in floats(targets, FEATURES)], targets=targets,
                        intercepts=[base] * targets, post_transform=transform), {"x": x.astype(np.float32)}, ["y"], tolerance=tolerance)
            if targets > 1 or not probit:
                labels = [3, 8] if targets == 1 else [2, 4, 6]
                r.case("linear_classifier_%s_%d" % (transform.lower(), targets),
                       node("LinearClassifier", ["x"], ["label", "scores"], intercepts=[base] * targets, post_transform=transform,
                            coefficients=[scale * c for c in floats(targets, FEATURES)], classlabels_ints=labels),
                       {"x": x.astype(np.float32)}, ["label", "scores"], tolerance=tolerance)
    r.case("linear_regressor_bare", node("LinearRegressor", ["x"], ["y"], coefficients=floats(FEATURES)), {"x": rows(rng)}, ["y"])
    for dtype in (np.float64, np.int32, np.int64):
        r.case("linear_classifier_" + np.dtype(dtype).name,
               node("LinearClassifier", ["x"], ["label", "scores"], coefficients=floats(2, FEATURES), intercepts=floats(2),
                    classlabels_ints=[0, 1], multi_class=1), {"x": rows(rng, dtype=dtype)}, ["label", "scores"])


def vector_machines(r):
    rng = np.random.default_rng(90)
    floats = lambda *shape: rng.standard_normal(shape).astype(np.float32).ravel().tolist()
    kernels = {"linear": ("LINEAR", [0.5, 0.25, 3.0]), "poly2": ("POLY", [0.5, 0.25, 2.0]), "poly3": ("POLY", [0.25, 0.5, 3.0]),
               "rbf": ("RBF", [0.25, 0.0, 3.0]), "sigmoid": ("SIGMOID", [0.1, 0.25, 3.0])}
    for name, (kind, parameters) in kernels.items():
        r.case("svm_regressor_" + name,
               node("SVMRegressor", ["x"], ["y"], kernel_type=kind, kernel_params=parameters, n_supports=6, rho=[0.25],
                    coefficients=floats(6), support_vectors=floats(6, FEATURES)), {"x": rows(rng)}, ["y"])
        for classes, probable in ((2, False), (2, True), (3, False)) + (((4, True),) if kind == "RBF" else ()):
            vectors = [int(v) for v in rng.integers(1, 4, classes)]
            pairs = classes * (classes - 1) // 2
            more = dict(prob_a=(-np.abs(rng.standard_normal(pairs)) - 0.5).tolist(), prob_b=floats(pairs)) if probable else {}
            r.case("svm_classifier_%s_%d%s" % (name, classes, "_probable" if probable else ""),
                   node("SVMClassifier", ["x"], ["label", "scores"], kernel_type=kind, kernel_params=parameters,
                        vectors_per_class=vectors, rho=floats(pairs), coefficients=floats(classes - 1, sum(vectors)),
                        support_vectors=floats(sum(vectors), FEATURES), classlabels_ints=[5, 2, 9, 7][:classes], **more),
                   {"x": rows(rng, 9)}, ["label", "scores"])
    for transform in TRANSFORMS[:4]:
        for classes in (2, 3):
            vectors, pairs = [2] * classes, classes * (classes - 1) // 2
            r.case("svm_classifier_%s_%d" % (transform.lower(), classes),
                   node("SVMClassifier", ["x"], ["label", "scores"], kernel_type="RBF", kernel_params=[0.25, 0.0, 3.0],
                        vectors_per_class=vectors, rho=floats(pairs), coefficients=floats(classes - 1, sum(vectors)),
                        support_vectors=floats(sum(vectors), FEATURES), classlabels_ints=list(range(classes)),
                        post_transform=transform), {"x": rows(rng)}, ["label", "scores"])
    for classes in (2, 3):
        for positive in (False, True):
            coefficients = np.array(floats(classes, FEATURES))
            r.case("svm_classifier_linear_machine_%d%s" % (classes, "_positive" if positive else ""),
                   node("SVMClassifier", ["x"], ["label", "scores"], rho=[0.25], classlabels_ints=[4, 6, 8][:classes], kernel_params=[1.0, 0.0, 3.0],
                        coefficients=(np.abs(coefficients) if positive else coefficients).tolist()), {"x": rows(rng)}, ["label", "scores"])
    r.case("svm_regressor_linear_machine", node("SVMRegressor", ["x"], ["y"], rho=[0.25], coefficients=floats(FEATURES), kernel_params=[1.0, 0.0, 3.0]),
           {"x": rows(rng)}, ["y"])
    r.case("svm_regressor_one_class",
           node("SVMRegressor", ["x"], ["y"], kernel_type="RBF", kernel_params=[0.25, 0.0, 3.0], n_supports=4, rho=[-0.5], one_class=1,
                coefficients=floats(4), support_vectors=floats(4, FEATURES)), {"x": rows(rng)}, ["y"])


def preparation(r):
    rng = np.random.default_rng(100)
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        name, x = np.dtype(dtype).name, rows(rng, dtype=dtype)
        r.case("scaler_" + name, node("Scaler", ["x"], ["y"], offset=[0.5, 1.0, -1.0, 0.25, 3.0], scale=[2.0, 0.5, 0.1, 1.5, -1.0]),
               {"x": x}, ["y"])
        r.case("scaler_one_" + name, node("Scaler", ["x"], ["y"], offset=[0.5], scale=[0.3]), {"x": x}, ["y"])
        for norm in ("MAX", "L1", "L2"):
            given = x.copy()
            given[2] = 0
            r.case("normalizer_%s_%s" % (norm.lower(), name), node("Normalizer", ["x"], ["y"], norm=norm), {"x": given}, ["y"])
        r.case("array_feature_extractor_" + name, node("ArrayFeatureExtractor", ["x", "i"], ["y"]),
               {"x": x, "i": np.array([[3, 0, 3]], dtype=np.int64)}, ["y"])
        r.case("feature_vectorizer_" + name, node("FeatureVectorizer", ["x", "z"], ["y"], inputdimensions=[5, 2]),
               {"x": x, "z": rows(rng, dtype=dtype, features=2)}, ["y"])
        if dtype != np.int32:
            r.case("one_hot_encoder_" + name, node("OneHotEncoder", ["x"], ["y"], cats_int64s=[-1, 0, 2, 1], zeros=1), {"x": x},
                   ["y"])
    r.case("scaler_vector", node("Scaler", ["x"], ["y"], offset=[0.5, 1.0], scale=[2.0, 0.5]), {"x": np.array([1, 2], dtype=np.float32)}, ["y"])
    r.case("binarizer", node("Binarizer", ["x"], ["y"], threshold=0.5), {"x": rows(rng)}, ["y"])
    r.case("array_feature_extractor_vector", node("ArrayFeatureExtractor", ["x", "i"], ["y"]),
           {"x": np.arange(6, dtype=np.float32), "i": np.array([1, 4], dtype=np.int64)}, ["y"])
    r.case("array_feature_extractor_rank3", node("ArrayFeatureExtractor", ["x", "i"], ["y"]),
           {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "i": np.array([1, 3], dtype=np.int64)}, ["y"])
    for missing in (True, False):
        for each in (True, False):
            r.case("imputer_%s_%s" % ("nan" if missing else "zero", "each" if each else "one"),
                   node("Imputer", ["x"], ["y"], imputed_value_floats=[1.5, 2.5, 3.5, 4.5, 5.5] if each else [7.0],
                        replaced_value_float=float("nan") if missing else 0.0), {"x": rows(rng, missing=missing)}, ["y"])
    r.case("imputer_int64", node("Imputer", ["x"], ["y"], imputed_value_int64s=[9], replaced_value_int64=-1),
           {"x": rows(rng, dtype=np.int64)}, ["y"])


def maps(r):
    """A list of maps from labels to scores is here the tensor of the scores, in the order of the labels."""
    rng = np.random.default_rng(120)
    for kind, labels in (("int64s", [7, -2, 4]), ("strings", ["hot", "cold", "warm"])):
        scores = lambda found, labels=labels: np.array([[row[label] for label in labels] for row in found], dtype=np.float32)
        r.case("zip_map_" + kind, node("ZipMap", ["x"], ["y"], **{"classlabels_" + kind: labels}), {"x": rows(rng, features=3)}, ["y"],
               tensor=scores)


def label_encoders(r):
    rng = np.random.default_rng(110)
    keys = {"int64s": [5, -3, 0, 2, 7], "floats": [0.5, -1.0, 0.0, float("nan"), 2.0]}
    values = {"int64s": [10, 20, 30, 40, 50], "floats": [0.1, 0.2, 0.3, 0.4, 0.5]}
    x = {"int64s": rng.integers(-4, 9, (4, 6)), "floats": rows(rng, 6, missing=True)}
    for k in keys:
        for v in values:
            r.case("label_encoder_%s_%s" % (k, v), node("LabelEncoder", ["x"], ["y"], **{"keys_" + k: keys[k], "values_" + v: values[v]},
                                                        **({"default_int64": -7} if v == "int64s" else {"default_float": 2.5})),
                   {"x": x[k]}, ["y"], opsets={"ai.onnx.ml": 2})
    tensor = lambda values, kind: numpy_helper.from_array(np.array(values, dtype=kind), "t")
    r.case("label_encoder_nan", node("LabelEncoder", ["x"], ["y"], keys_floats=[1.0, float("nan"), 4.0], values_int64s=[1, 2, 3]),
           {"x": np.array([1, np.nan, 2], dtype=np.float32)}, ["y"], opsets={"ai.onnx.ml": 4, "": 21})
    for k, v in ((np.float64, np.float64), (np.int64, np.float32)):
        keys = np.arange(-20, 23)[rng.permutation(43)]
        r.case("label_encoder_tensor_%s_%s" % (np.dtype(k).name, np.dtype(v).name),
               node("LabelEncoder", ["x"], ["y"], keys_tensor=tensor(keys, k), values_tensor=tensor(rng.integers(0, 99, 43), v),
                    default_tensor=tensor([-5], v)), {"x": rng.integers(-25, 30, (9, 3)).astype(k)}, ["y"],
               opsets={"ai.onnx.ml": 4, "": 21})


def record(recorder):
    tree_regressors(recorder)
    tree_classifiers(recorder)
    ensembles(recorder)
    linear_models(recorder)
    vector_machines(recorder)
    preparation(recorder)
    maps(recorder)
    label_encoders(recorder)
