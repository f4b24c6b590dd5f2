"""Cases of the domain ai.onnx: attributes, types and versions that ONNX's node tests leave out."""
import numpy as np
from onnx import TensorProto, helper


def numbers(seed, shape, dtype=np.float32, low=-2.0, high=2.0):
    return np.random.Generator(np.random.PCG64(seed)).uniform(low, high, shape).astype(dtype)


def integers(seed, shape, low, high, dtype=np.int64):
    return np.random.Generator(np.random.PCG64(seed)).integers(low, high, shape).astype(dtype)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def determinants(recorder):
    for size in (1, 2, 3, 5, 9, 40):
        x = numbers(size, (2, 3, size, size))
        # A pivot of 0, a row of zeros, and two equal rows.
        x[0, 0, 0, 0] = 0
        x[0, 1, size - 1] = 0
        x[1, 1, 0] = x[1, 1, size - 1]
        recorder.case("det_%d" % size, node("Det", "x", "y"), {"x": x}, ["y"], opsets={"": 11}, tolerance=1e-4)


def regions(recorder):
    x = numbers(1, (2, 3, 9, 11))
    rois = numbers(2, (5, 4), low=0, high=16)
    rois[:, 2:] += rois[:, :2]
    rois[4] = [-3, -4, 40, 30]
    images = np.array([0, 1, 1, 0, 1], np.int64)
    for opset in (10, 16):
        for mode in ("avg", "max"):
            for half in ("half_pixel", "output_half_pixel"):
                if opset == 10 and half == "half_pixel":
                    continue
                for ratio in (1, 2, 3, 0):
                    extra = {} if opset == 10 else {"coordinate_transformation_mode": half}
                    n = node("RoiAlign", "x rois images", "y", mode=mode, output_height=3, output_width=4,
                             sampling_ratio=ratio, spatial_scale=0.5, **extra)
                    name = "roi_align_%d_%s_%s_%d" % (opset, mode, half, ratio)
                    recorder.case(name, n, {"x": x, "rois": rois, "images": images}, ["y"], opsets={"": opset})
    boxes = np.concatenate([images[:, None].astype(np.float32), rois], 1)
    n = node("MaxRoiPool", "x rois", "y", pooled_shape=[3, 2], spatial_scale=0.5)
    recorder.case("max_roi_pool", n, {"x": x, "rois": boxes}, ["y"], opsets={"": 11})


def deformed(recorder):
    def case(name, x, w, groups, offset_groups, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), bias=False, mask=False):
        out = [(x[2 + a] + pads[a] + pads[a + 2] - (w[2 + a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in (0, 1)]
        cells = w[2] * w[3]
        inputs = {"x": numbers(1, x), "w": numbers(2, w), "offset": numbers(3, (x[0], offset_groups * cells * 2, *out))}
        if bias:
            inputs["b"] = numbers(4, w[:1])
        if mask:
            inputs["mask"] = numbers(5, (x[0], offset_groups * cells, *out), low=0, high=1)
        names = ["x", "w", "offset", "b" if bias else "", "mask" if mask else ""]
        n = helper.make_node("DeformConv", names, ["y"], group=groups, offset_group=offset_groups, strides=strides, pads=pads,
                             dilations=dilations, kernel_shape=w[2:])
        recorder.case("deform_conv_" + name, n, inputs, ["y"], opsets={"": 19})

    case("plain", (2, 4, 7, 8), (3, 4, 3, 2), 1, 1)
    case("groups", (2, 4, 7, 8), (6, 2, 3, 3), 2, 1, bias=True)
    case("offset_groups", (1, 4, 7, 8), (6, 2, 3, 3), 2, 4, pads=(1, 0, 2, 1), mask=True)
    case("strides", (2, 4, 9, 8), (2, 4, 2, 3), 1, 2, strides=(2, 3), dilations=(2, 1), pads=(1, 2, 0, 1), bias=True, mask=True)


def vectors(recorder):
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 8, 5, 5, 6, 7]
    base = dict(ngram_counts=[0, 4, 12], ngram_indexes=[0, 1, 2, 3, 4, 5, 6, 7, 8], pool_int64s=pool)
    for mode in ("TF", "IDF", "TFIDF"):
        for least, most in ((1, 1), (1, 2), (2, 3), (1, 3)):
            for skips in (0, 5):
                attributes = dict(base, mode=mode, min_gram_length=least, max_gram_length=most, max_skip_count=skips)
                if mode != "TF":
                    attributes["weights"] = [0.5 + i for i in range(9)]
                one = most == 2
                x = integers(least + skips, (12,) if one else (3, 12), 2, 9, np.int32 if one else np.int64)
                name = "tfidf_%s_%d%d_%d" % (mode.lower(), least, most, skips)
                recorder.case(name, node("TfIdfVectorizer", "x", "y", **attributes), {"x": x}, ["y"])


def unpooled(recorder):
    # Indices of a real pool, several images and channels.
    pool = dict(kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 1, 1])
    nodes = [node("MaxPool", "x", "m i", **pool), node("MaxUnpool", "m i", "y", **pool)]
    recorder.case("max_unpool", nodes, {"x": numbers(1, (2, 3, 7, 9))}, ["y"], opsets={"": 11})


def bands(recorder):
    for count, length, rate, low, high in ((8, 16, 8192, 0.0, 4096.0), (13, 64, 16000, 20.0, 7600.0), (40, 257, 22050, 0.0, 8000.0)):
        constants = {"count": np.int64(count).reshape(()), "length": np.int64(length).reshape(())}
        inputs = {"rate": np.array(rate, np.int64), "low": np.array(low, np.float32), "high": np.array(high, np.float32)}
        n = node("MelWeightMatrix", "count length rate low high", "y")
        recorder.case("mel_%d" % count, n, inputs, ["y"], {k: np.asarray(v) for k, v in constants.items()})


def unique(recorder):
    def case(name, x, **attributes):
        n = node("Unique", "x", "u first inverse counts", **attributes)
        recorder.case("unique_" + name, n, {"x": x}, ["u", "first", "inverse", "counts"])

    case("floats", integers(1, (3, 20), -4, 5, np.float32))
    case("order", integers(2, (60,), 0, 9), sorted=0)
    for axis in (0, 1, -1):
        case("axis_%d" % (axis + 1), integers(3, (4, 5, 3), 0, 2, np.float32), axis=axis)
    case("axis_order", integers(4, (9, 2), 0, 3, np.int64), axis=0, sorted=0)


def suppressed(recorder):
    corners = numbers(1, (2, 30, 4), low=0, high=4)
    centres = numbers(2, (2, 30, 4), low=0.5, high=2)
    scores = integers(3, (2, 3, 30), 0, 12).astype(np.float32) / 10
    for name, boxes, most, overlap, least, centred in (
            ("corners", corners, 30, 0.3, 0.2, 0), ("centres", centres, 30, 0.4, None, 1), ("few", corners, 3, 0.5, 0.0, 0),
            ("one", centres, 1, 0.5, 0.9, 1), ("none", corners, 5, 0.5, 5.0, 0), ("touching", np.round(corners), 30, 0.0, 0.1, 0)):
        inputs = {"boxes": boxes, "scores": scores, "overlap": np.array([overlap], np.float32)}
        names = ["boxes", "scores", "most", "overlap"]
        if least is not None:
            inputs["least"] = np.array([least], np.float32)
            names.append("least")
        n = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=centred)
        for known in (0, 1):
            given, constants = (inputs, {"most": scalar([most])}) if known else ({**inputs, "most": scalar([most])}, {})
            recorder.case("nms_%s_%d" % (name, known), n, given, ["y"], constants, opsets={"": 11})


def placed(recorder):
    # Statistics for each place, of opset 7.
    x = numbers(1, (2, 3, 4, 5))
    statistics = {k: numbers(i, (3, 4, 5), low=0.5) for i, k in enumerate("sbmv")}
    n = node("BatchNormalization", "x s b m v", "y", spatial=0)
    recorder.case("batch_norm_places", n, {"x": x, **statistics}, ["y"], opsets={"": 7})


def resized(recorder):
    """Scales that are no f32, by every rule that ONNX Runtime follows as the specification has it."""
    def case(opset, mode, transform, nearest, scales, sizes=None):
        attributes = {"mode": mode}
        if opset > 10:
            attributes["coordinate_transformation_mode"] = transform
        if nearest:
            attributes["nearest_mode"] = nearest
        names = ["x", "scales"] if opset == 10 else ["x", "", "" if sizes else "scales", "sizes"][:4 if sizes else 3]
        constants = {"sizes": np.array(sizes, np.int64)} if sizes else {"scales": np.array(scales, np.float32)}
        n = helper.make_node("Resize", names, ["y"], **attributes)
        name = "resize_%d_%s_%s_%s_%s" % (opset, mode, transform, nearest, "sizes" if sizes else scales[2])
        recorder.case(name, n, {"x": numbers(opset, (1, 2, 10, 7))}, ["y"], constants, opsets={"": opset})

    for scales in ((1, 1, 0.7, 1.2), (1, 1, 2.5, 0.6)):
        case(10, "nearest", "asymmetric", None, scales)
        case(10, "linear", "asymmetric", None, scales)
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            for transform in ("half_pixel", "pytorch_half_pixel", "asymmetric"):
                case(13, "nearest", transform, nearest, scales)
        for mode in ("linear", "cubic"):
            case(19, mode, "half_pixel_symmetric", None, scales)
    for mode in ("linear", "cubic"):
        case(19, mode, "align_corners", None, scales, [1, 2, 6, 11])


def pooled(recorder):
    x = numbers(1, (2, 2, 8, 9))
    for operator in ("AveragePool", "MaxPool"):
        for pad in ("VALID", "NOTSET"):
            n = node(operator, "x", "y", kernel_shape=[3, 2], strides=[2, 2], auto_pad=pad, ceil_mode=1)
            recorder.case("%s_ceil_%s" % (operator.lower(), pad.lower()), n, {"x": x}, ["y"], opsets={"": 11})
    inputs = {"x": numbers(2, (1, 2, 5, 6)), "w": numbers(3, (2, 3, 3, 2))}
    for pad in ("SAME_UPPER", "SAME_LOWER"):
        n = node("ConvTranspose", "x w", "y", strides=[2, 3], auto_pad=pad)
        recorder.case("conv_transpose_" + pad.lower(), n, inputs, ["y"])


def sampled(recorder):
    inputs = {"x": numbers(1, (2, 2, 4, 5)), "grid": numbers(2, (2, 3, 4, 2), low=-1.6, high=1.6)}
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            n = node("GridSample", "x grid", "y", mode="cubic", padding_mode=padding, align_corners=corners)
            recorder.case("grid_cubic_%s_%d" % (padding, corners), n, inputs, ["y"], opsets={"": 20})


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


def value(name, elem_type=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, elem_type, shape)


def sequences(recorder):
    x, y, z = (numbers(seed, (2, 3)) for seed in (1, 2, 3))
    three = {"x": x, "y": y, "z": z}
    edit = [
        node("SequenceConstruct", "x y z", "s0"),
        node("SequenceErase", "s0 minus_two", "s1"),
        node("SequenceInsert", "s1 y one", "s2"),
        node("SequenceInsert", "s2 x", "s3"),
        node("SequenceErase", "s3", "s4"),
        node("SequenceInsert", "s4 z minus_three", "s5"),
        node("SequenceAt", "s5 minus_one", "last"),
        node("SequenceLength", "s5", "length"),
        node("ConcatFromSequence", "s5", "joined", axis=-2),
        node("ConcatFromSequence", "s5", "stacked", axis=-1, new_axis=1),
    ]
    places = {"one": scalar(1), "minus_one": scalar(-1), "minus_two": scalar(-2, np.int32), "minus_three": scalar(-3)}
    recorder.case("sequence_edit", edit, three, ["last", "length", "joined", "stacked"], places)
    for name, split, extra in (("each", None, {}), ("drop", None, {"keepdims": 0}), ("size", scalar(3), {}),
                               ("sizes", np.array([1, 4, 2]), {"keepdims": 0})):
        nodes = [node("SplitToSequence", "x split" if split is not None else "x", "s", axis=1, **extra),
                 node("SequenceAt", "s place", "part"), node("SequenceLength", "s", "length")]
        constants = {"place": scalar(-1), **({"split": split} if split is not None else {})}
        recorder.case("sequence_split_" + name, nodes, {"x": numbers(4, (2, 7))}, ["part", "length"], constants)
    empty = helper.make_tensor_sequence_value_info("seq", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [node("Identity", "c", "c2"), node("Cast", "i", "f", to=TensorProto.FLOAT), node("Add", "x f", "e"),
         node("SequenceInsert", "seq e", "seq2"), node("SequenceLength", "seq2", "n")],
        "body", [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), empty],
        [value("c2", TensorProto.BOOL, []), helper.make_tensor_sequence_value_info("seq2", TensorProto.FLOAT, None),
         value("n", TensorProto.INT64, [])])
    nodes = [node("SequenceEmpty", "", "seq0"), node("Loop", "rounds go seq0", "all lengths", body=body),
             node("ConcatFromSequence", "all", "y", axis=0)]
    recorder.case("sequence_loop", nodes, {"x": x}, ["y", "lengths"], {"rounds": scalar(3), "go": scalar(True, bool)})
    each = helper.make_graph([node("Mul", "a t", "p"), node("Neg", "p", "q")], "each", [value("a"), value("t")],
                             [value("p"), value("q")])
    nodes = [node("SequenceConstruct", "x y z", "s"), node("SequenceMap", "s x", "p q", body=each),
             node("ConcatFromSequence", "p", "ps", axis=0), node("ConcatFromSequence", "q", "qs", axis=1)]
    recorder.case("sequence_map", nodes, three, ["ps", "qs"])
    branch = lambda name, a, b: helper.make_graph(
        [node("SequenceConstruct", a + " " + b, name)], name, [],
        [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)])
    nodes = [node("If", "cond", "s", then_branch=branch("t", "x", "y"), else_branch=branch("e", "y", "z")),
             node("Identity", "s", "same"), node("SequenceAt", "same place", "out")]
    for cond in (False, True):
        constants = {"cond": scalar(cond, bool), "place": scalar(0)}
        recorder.case("sequence_if_%d" % cond, nodes, three, ["out"], constants)


def scanned(recorder):
    body = helper.make_graph([node("Add", "s a", "t"), node("Mul", "t b", "o")], "body", [value("s"), value("a"), value("b")],
                             [value("t"), value("o")])
    inputs = {"s": numbers(1, (2, 3)), "a": numbers(2, (2, 5, 3)), "b": numbers(3, (2, 5, 3))}
    for name, lengths, directions in (("plain", "", [0, 0]), ("lengths", "n", [0, 0]), ("reverse", "", [1, 0])):
        n = helper.make_node("Scan", [lengths, "s", "a", "b"], ["t", "o"], body=body, num_scan_inputs=2, directions=directions)
        constants = {"n": np.array([5, 2], np.int64)} if lengths else {}
        recorder.case("scan_batches_" + name, n, inputs, ["t", "o"], constants, opsets={"": 8})


def record(recorder):
    for family in (determinants, regions, deformed, vectors, unpooled, bands, unique, suppressed, placed,
                   resized, pooled, sampled, sequences, scanned):
        family(recorder)
