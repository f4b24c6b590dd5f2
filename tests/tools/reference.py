#!/usr/bin/env python3
"""Records what ONNX Runtime computes for the models that tests run.

    reference.py CACHE [--sets N]

Reads CACHE/zoo (models and ranges of tests/data/zoo.json) and tests/data/models. Writes to CACHE/reference, for each model and
set of seeded inputs, NAME-HASH-VERSION.SET.npz with `in_<name>` and `out_<name>`, and index.json: a list of {name, model
(models/NAME.onnx in tests/data, or zoo/NAME.onnx in CACHE), sets (file names), test}. What was recorded for the same model,
ranges, version of ONNX Runtime and of this script is kept.
"""
import argparse, hashlib, json, os
import numpy as np

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")


def seeded(rng, name, value, suggested):
    """An input in the range that the zoo's list gives, else standard normal or 0 … 99."""
    given = suggested.get(name, {})
    shape = given.get("shape", [d if isinstance(d, int) else 1 for d in value.shape])
    dtype = np.dtype({"tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2", "tensor(bool)": "?"}.get(
        value.type, value.type[len("tensor("):-1]))
    real = dtype.kind == "f"
    if "const" in given:
        data = np.full(shape, given["const"])
    elif "lo" in given:
        data = rng.uniform(given["lo"], given["hi"], shape) if real else rng.integers(given["lo"], given["hi"], shape)
    else:
        data = rng.standard_normal(shape) if real else rng.integers(0, 2 if dtype == bool else 100, shape)
    return np.asarray(data).astype(dtype)


def record(name, path, ranges, inputs_of_set, sets, folder):
    """Runs one model on each set of inputs, unless that was recorded; returns the file names."""
    import onnxruntime

    digest = hashlib.sha256(json.dumps(ranges, sort_keys=True).encode())
    for source in (path, os.path.abspath(__file__)):
        with open(source, "rb") as file:
            digest.update(file.read())
    digest = digest.hexdigest()[:12]
    files = ["%s-%s-%s.%d.npz" % (name, digest, onnxruntime.__version__, s) for s in range(sets)]
    if all(os.path.exists(os.path.join(folder, f)) for f in files):
        return files
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    for s, file in enumerate(files):
        feeds = inputs_of_set(s, session.get_inputs())
        arrays = {"in_" + k: v for k, v in feeds.items()}
        arrays.update(("out_" + k, v) for k, v in zip(outputs, session.run(outputs, feeds)))
        part = os.path.join(folder, "part.npz")
        np.savez(part, **arrays)
        os.replace(part, os.path.join(folder, file))
    print("recorded " + name, flush=True)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache")
    parser.add_argument("--sets", type=int, default=2, help="sets of inputs per model (default 2)")
    arguments = parser.parse_args()
    folder = os.path.join(arguments.cache, "reference")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(DATA, "zoo.json")) as file:
        zoo = [m for m in json.load(file) if m["test"]]
    images = np.load(os.path.join(DATA, "digits", "images.npy")).astype(np.float32)[:, None] / 255
    index = []
    for model in sorted(os.listdir(os.path.join(DATA, "models"))):
        path, name = os.path.join(DATA, "models", model), os.path.splitext(model)[0]
        files = record(name, path, None, lambda s, values: {values[0].name: images[s:s + 1]}, arguments.sets, folder)
        index.append({"name": name, "model": "models/" + model, "sets": files, "test": ["native", "emulated"]})
    for entry in zoo:
        name = entry["short_name"]
        path = os.path.join(arguments.cache, "zoo", name + ".onnx")

        def inputs_of_set(s, values, suggested=entry["suggested_inputs"]):
            rng = np.random.Generator(np.random.PCG64(s))
            return {v.name: seeded(rng, v.name, v, suggested) for v in values}

        files = record(name, path, entry["suggested_inputs"], inputs_of_set, arguments.sets, folder)
        index.append({"name": name, "model": "zoo/%s.onnx" % name, "sets": files, "test": entry["test"]})
    with open(os.path.join(folder, "index.json.part"), "w") as file:
        json.dump(index, file, indent=1)
    os.replace(os.path.join(folder, "index.json.part"), os.path.join(folder, "index.json"))


if __name__ == "__main__":
    main()
