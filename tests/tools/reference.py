#!/usr/bin/env python3
"""Records what ONNX Runtime computes for the models that tests run.

    reference.py CACHE [--sets N]

Reads CACHE/zoo (models and ranges of tests/data/zoo.json) and tests/data/models. Writes to CACHE/reference, for each model and
set of seeded inputs, NAME-HASH-VERSION.SET.npz with `in_<name>` and `out_<name>`, and index.json: a list of {name, model
(models/NAME.onnx in tests/data, or zoo/NAME.onnx in CACHE), sets (file names), test, spread, tolerance}. What was recorded for the
same model, ranges, kind, version of ONNX Runtime and of this script is kept.

Models of 8 bits run as they are written, without ONNX Runtime's rewrites, which round at other places. Models of f16 run in f32;
their results are rounded to f16 at the end. The spread is by how much the results with and without rewrites differ, as a part
of the largest magnitude, and for models of 8 bits also those with weights and inputs moved by roundings of f32, because one
value that is quantized to the next step changes all that follows. Where a model magnifies roundings, no engine can agree better
with another, so the tolerance is at least twice the spread.
"""
import argparse, hashlib, json, os, sys
import numpy as np

# Largest error as a part of the largest magnitude. Where a sum of floats is quantized, the order of the sum decides some
# roundings: one step of 8 bits.
TOLERANCE = {"f32": 1e-4, "int8": 1 / 255, "f16": 2e-3}
# Runs of a model of 8 bits with weights and inputs that are moved by roundings.
NUDGES = 4
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")


def picture(rng, shape, least, most):
    """Bright, with rectangles of other colours: edges and flat areas, which detectors need to answer anything. [1,C,H,W] or [1,H,W,C]."""
    first = shape[1] <= 4
    height, width, channels = (shape[2], shape[3], shape[1]) if first else shape[1:]
    data = np.ones((height, width, channels)) * rng.uniform(0.6, 1, channels)
    for _ in range(40):
        y, x = rng.integers(0, height), rng.integers(0, width)
        data[y:y + rng.integers(1, height // 6 + 2), x:x + rng.integers(1, width // 4 + 2)] = rng.uniform(0, 1, channels)
    data = least + (most - least) * data
    return (data.transpose(2, 0, 1) if first else data)[None]


def seeded(rng, name, value, suggested):
    """An input in the range that the zoo's list gives, else standard normal or 0 … 99."""
    given = suggested.get(name, {})
    shape = given.get("shape", [d if isinstance(d, int) else 1 for d in value.shape])
    dtype = np.dtype({"tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2", "tensor(bool)": "?"}.get(
        value.type, value.type[len("tensor("):-1]))
    real = dtype.kind == "f"
    if "picture" in given:
        data = picture(rng, shape, *given["picture"])
    elif "const" in given:
        data = np.full(shape, given["const"])
    elif "lo" in given:
        data = rng.uniform(given["lo"], given["hi"], shape) if real else rng.integers(given["lo"], given["hi"], shape)
    else:
        data = rng.standard_normal(shape) if real else rng.integers(0, 2 if dtype == bool else 100, shape)
    return np.asarray(data).astype(dtype)


def kind(entry):
    quant = " ".join(entry["quant"])
    return "int8" if "int8" in quant else "f16" if "fp16" in quant else "f32"


def in_f32(path):
    """The model with every f16 made f32, as bytes."""
    import onnx

    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT

    def tensor(t):
        if t.data_type == half:
            t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t).astype(np.float32), t.name))

    def graph(g):
        for t in g.initializer:
            tensor(t)
        for value in [*g.input, *g.output, *g.value_info]:
            if value.type.tensor_type.elem_type == half:
                value.type.tensor_type.elem_type = single
        for node in g.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    tensor(attribute.t)
                elif attribute.type == onnx.AttributeProto.GRAPH:
                    graph(attribute.g)
                elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == half:
                    attribute.i = single

    model = onnx.load(path)
    graph(model.graph)
    return model.SerializeToString()


def nudged(rng, array):
    """Floats moved by a few units in the last place of f32."""
    return (array * (1 + rng.choice([-1, 0, 1], array.shape) * 2.0**-21)).astype(array.dtype)


def nudged_model(path, rng):
    """The model with its f32 weights moved by roundings, as bytes. Small tensors may be parameters and stay."""
    import onnx

    model = onnx.load(path)
    for t in model.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT and np.prod(t.dims) >= 16:
            t.CopyFrom(onnx.numpy_helper.from_array(nudged(rng, onnx.numpy_helper.to_array(t)), t.name))
    return model.SerializeToString()


def session_of(model, is_plain):
    """Of a path or of bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if is_plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def error_of(got, want):
    """The largest error in proportion to the largest finite magnitude; infinite where shapes or special values differ."""
    if got.shape != want.shape:
        return np.inf
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(got) & np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return np.inf
    error = np.abs(got[finite] - want[finite]).max(initial=0.0)
    return 0.0 if error == 0 else float(error / np.abs(want[finite]).max())


def record(name, path, ranges, inputs_of_set, sets, folder, kind="f32"):
    """Runs one model on each set of inputs, unless that was recorded; returns the file names and the spread."""
    import onnxruntime

    digest = hashlib.sha256(json.dumps([ranges, kind], sort_keys=True).encode())
    for source in (path, os.path.abspath(__file__)):
        with open(source, "rb") as file:
            digest.update(file.read())
    digest = digest.hexdigest()[:12]
    files = ["%s-%s-%s.%d.npz" % (name, digest, onnxruntime.__version__, s) for s in range(sets)]
    # The spread is that of all sets together, so it is one for each number of sets.
    spread_file = os.path.join(folder, "%s-%s-%s.spread%d.json" % (name, digest, onnxruntime.__version__, sets))
    if all(os.path.exists(os.path.join(folder, f)) for f in [*files, spread_file]):
        with open(spread_file) as file:
            return files, json.load(file)
    model = in_f32(path) if kind == "f16" else path
    rewritten, plain = session_of(model, False), session_of(model, True)
    rng = np.random.Generator(np.random.PCG64(0))
    others = [session_of(nudged_model(path, rng), True) for _ in range(NUDGES)] if kind == "int8" else []
    values = plain.get_outputs()
    halves = [v.name for v in session_of(path, True).get_outputs() if v.type == "tensor(float16)"] if kind == "f16" else []
    spread = 0.0
    for s, file in enumerate(files):
        feeds = inputs_of_set(s, plain.get_inputs())
        found, other = plain.run(None, feeds), rewritten.run(None, feeds)
        results = [other]
        for session in others:
            results.append(session.run(None, {k: nudged(rng, v) if v.dtype.kind == "f" else v for k, v in feeds.items()}))
        spread = max([spread, *(error_of(a, b) for result in results for a, b in zip(result, found))])
        arrays = {"in_" + k: v for k, v in feeds.items()}
        for value, of_plain, of_rewritten in zip(values, found, other):
            result = of_plain if kind == "int8" else of_rewritten
            arrays["out_" + value.name] = result.astype(np.float16) if value.name in halves else result
        part = os.path.join(folder, "part.npz")
        np.savez(part, **arrays)
        os.replace(part, os.path.join(folder, file))
    with open(spread_file, "w") as file:
        json.dump(spread, file)
    print("recorded " + name, file=sys.stderr, flush=True)
    return files, spread


def seeded_sets(entry):
    """The inputs of each set for a model of the zoo."""

    def inputs_of_set(s, values):
        rng = np.random.Generator(np.random.PCG64(s))
        return {v.name: seeded(rng, v.name, v, entry["suggested_inputs"]) for v in values}

    return inputs_of_set


def record_zoo(entry, cache, sets):
    """Records a model of the zoo; returns its entry of the index."""
    name, ranges = entry["short_name"], entry["suggested_inputs"]
    path, folder = os.path.join(cache, "zoo", name + ".onnx"), os.path.join(cache, "reference")
    files, spread = record(name, path, ranges, seeded_sets(entry), sets, folder, kind(entry))
    return {
        "name": name, "model": "zoo/%s.onnx" % name, "sets": files, "test": entry["test"],
        "spread": spread, "tolerance": max(TOLERANCE[kind(entry)], 2 * spread),
    }


def zoo():
    with open(os.path.join(DATA, "zoo.json")) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache")
    parser.add_argument("--sets", type=int, default=2, help="sets of inputs per model (default 2)")
    arguments = parser.parse_args()
    folder = os.path.join(arguments.cache, "reference")
    os.makedirs(folder, exist_ok=True)
    images = np.load(os.path.join(DATA, "digits", "images.npy")).astype(np.float32)[:, None] / 255
    index = []
    for model in sorted(os.listdir(os.path.join(DATA, "models"))):
        path, name = os.path.join(DATA, "models", model), os.path.splitext(model)[0]
        files, spread = record(name, path, None, lambda s, values: {values[0].name: images[s:s + 1]}, arguments.sets, folder)
        test, tolerance = ["native", "emulated"], TOLERANCE["f32"]
        index.append({"name": name, "model": "models/" + model, "sets": files, "test": test, "spread": spread, "tolerance": tolerance})
    index += [record_zoo(entry, arguments.cache, arguments.sets) for entry in zoo() if entry["test"]]
    with open(os.path.join(folder, "index.json.part"), "w") as file:
        json.dump(index, file, indent=1)
    os.replace(os.path.join(folder, "index.json.part"), os.path.join(folder, "index.json"))


if __name__ == "__main__":
    main()
