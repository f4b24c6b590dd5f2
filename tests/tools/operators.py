#!/usr/bin/env python3
"""Records what ONNX Runtime computes for operators that ONNX's own node tests do not cover.

    operators.py CACHE

Makes one small model for each case of operators_ml.py (domain ai.onnx.ml), operators_microsoft.py (com.microsoft) and
operators_onnx.py (ai.onnx), runs it on seeded inputs without graph optimization, and writes to CACHE/operators NAME.onnx, NAME.npz
(`in_<name>` and `out_<name>`) and
index.json: a list of {name, tolerance, steps}. Floats may differ by `tolerance` of the largest magnitude of a result, integers
by `steps`. What these scripts and this version of ONNX Runtime have written already is kept.
"""
import hashlib, json, os, sys
import numpy as np
import onnx
from onnx import helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("operators.py", "operators_ml.py", "operators_microsoft.py", "operators_onnx.py")


class Recorder:
    """Collects cases: each is a model, its inputs, and what ONNX Runtime makes of them."""

    def __init__(self, folder):
        import onnxruntime

        self.folder, self.runtime, self.index = folder, onnxruntime, []

    def case(self, name, nodes, inputs, outputs, initializers=None, tolerance=1e-5, steps=0, opsets=None, meaning=None, tensor=None):
        """`meaning`: nodes that ONNX Runtime runs in place of those that it lacks. `tensor` makes a tensor of what is none."""
        opsets = {"": 17, "ai.onnx.ml": 3, "com.microsoft": 1, **(opsets or {})}
        nodes = nodes if isinstance(nodes, list) else [nodes]
        values = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()]
        constants = [numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in (initializers or {}).items()]
        results = [helper.make_empty_tensor_value_info(o) for o in outputs]
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]

        def model_of(nodes):
            graph = helper.make_graph(nodes, name, values, results, constants)
            return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()

        payload = model_of(nodes)
        options = self.runtime.SessionOptions()
        options.graph_optimization_level = self.runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            run = model_of(meaning) if meaning else payload
            session = self.runtime.InferenceSession(run, options, providers=["CPUExecutionProvider"])
            found = [x if tensor is None else tensor(x) for x in session.run(outputs, inputs)]
        except Exception as error:
            raise RuntimeError("case %s: %s" % (name, error)) from error
        arrays = {"in_" + k: v for k, v in inputs.items()}
        arrays.update(("out_" + k, v) for k, v in zip(outputs, found))
        with open(os.path.join(self.folder, name + ".onnx"), "wb") as file:
            file.write(payload)
        np.savez(os.path.join(self.folder, name + ".npz"), **arrays)
        if any(entry["name"] == name for entry in self.index):
            raise RuntimeError("two cases have the name " + name)
        self.index.append({"name": name, "tolerance": tolerance, "steps": steps})
        return dict(zip(outputs, found))


def digest(version):
    result = hashlib.sha256(version.encode())
    for source in SOURCES:
        with open(os.path.join(HERE, source), "rb") as file:
            result.update(file.read())
    return result.hexdigest()[:16]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import onnxruntime
    import operators_microsoft, operators_ml, operators_onnx

    folder = os.path.join(sys.argv[1], "operators")
    os.makedirs(folder, exist_ok=True)
    stamp, path = digest(onnxruntime.__version__), os.path.join(folder, "index.json")
    if os.path.exists(path):
        with open(path) as file:
            if json.load(file)["stamp"] == stamp:
                return
    for old in os.listdir(folder):
        os.remove(os.path.join(folder, old))
    recorder = Recorder(folder)
    operators_ml.record(recorder)
    operators_microsoft.record(recorder)
    operators_onnx.record(recorder)
    with open(path + ".part", "w") as file:
        json.dump({"stamp": stamp, "cases": recorder.index}, file, indent=1)
    os.replace(path + ".part", path)
    print("operators: %d cases" % len(recorder.index))


if __name__ == "__main__":
    main()
