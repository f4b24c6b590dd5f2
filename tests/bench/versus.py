#!/usr/bin/env python3
"""Times engines beside each other on one model, in one run: A B C A B C …, pinned, median and ratio.

    versus.py MODEL.onnx [--shape NAME=1,3,224,224 ...] [--spec ../data/zoo.json] [--engines ort,openvino] [--threads 1]
              [--rounds 12] [--slice 0.3] [--ours 'COMMAND with {model} {inputs} {threads}'] [--other NAME='COMMAND …'] [--json OUT]

Each engine is a worker process. A worker (ours too) prints a line `READY {json}` once it has run the model once on the raw inputs
that it is given, then answers each line `run SECONDS` on stdin with one line: a JSON list of the nanoseconds of every run in that time,
and leaves at `quit`. {inputs} in a command is a folder with index.json, a list of {name, shape, dtype, file} for the model's inputs, and those .npy files.
--spec takes shapes and value ranges from a list like tests/data/zoo.json (the entry whose short_name is the file's stem).
Figures of one run may be compared with each other; figures of different runs or machines may not.
The built-in peers need their package: onnxruntime, openvino (Python). Other engines (ncnn, MNN, IREE, …) come in by --other with a worker of your own. Their settings: THREADS threads, f32 arithmetic (no bf16 on
CPUs that have it), all optimizations on.
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile, time

WORKER = r'''
import json, sys, time, os, numpy as np
engine, model, folder, threads = sys.argv[1:5]; threads = int(threads)
index = json.load(open(folder + "/index.json")); feeds = {i["name"]: np.load(f"{folder}/{k}.npy") for k, i in enumerate(index)}
if engine == "ort":
    import onnxruntime as ort
    o = ort.SessionOptions(); o.intra_op_num_threads = threads; o.inter_op_num_threads = 1
    s = ort.InferenceSession(model, o, providers=["CPUExecutionProvider"]); names = [x.name for x in s.get_outputs()]
    run = lambda: s.run(names, feeds)
elif engine == "openvino":
    import openvino as ov
    c = ov.Core(); m = c.read_model(model); m.reshape({i.any_name: list(feeds[i.any_name].shape) for i in m.inputs})
    x = c.compile_model(m, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    r = x.create_infer_request(); run = lambda: r.infer(feeds, share_inputs=True)
else:
    sys.exit("unknown engine " + engine)
run(); print("READY {}", flush=True)
for line in sys.stdin:
    w = line.split()
    if not w or w[0] == "quit": break
    end = time.perf_counter_ns() + float(w[1]) * 1e9; out = []
    while True:
        t = time.perf_counter_ns(); run(); u = time.perf_counter_ns(); out.append(u - t)
        if u >= end: break
    print(json.dumps(out), flush=True)
'''


def inputs(model, shapes, spec, folder):
    import numpy as np, onnx
    m = onnx.load(model, load_external_data=False)
    known = {t.name for t in m.graph.initializer}
    rng = np.random.default_rng(0)
    stem = os.path.splitext(os.path.basename(model))[0]
    suggested = next((e["suggested_inputs"] for e in (json.load(open(spec)) if spec else []) if e["short_name"] == stem), {})
    index = []
    for v in m.graph.input:
        if v.name in known:
            continue
        t = v.type.tensor_type
        s = suggested.get(v.name, {})
        shape = shapes.get(v.name, s.get("shape", [d.dim_value or 1 for d in t.shape.dim]))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        real = np.issubdtype(dtype, np.floating)
        if "const" in s:
            a = np.full(shape, s["const"])
        elif "lo" in s:
            a = rng.uniform(s["lo"], s["hi"], shape) if real else rng.integers(s["lo"], s["hi"], shape)
        else:
            a = rng.standard_normal(shape) if real else rng.integers(0, 2 if dtype == bool else 100, shape)
        np.save(f"{folder}/{len(index)}.npy", np.asarray(a).astype(dtype))
        index.append({"name": v.name, "shape": list(shape), "dtype": str(np.dtype(dtype)), "file": f"{len(index)}.npy"})
    json.dump(index, open(f"{folder}/index.json", "w"))


class Worker:
    def __init__(self, name, command, cpus):
        self.name = name
        pin = ["taskset", "-c", cpus] if cpus else []
        self.p = subprocess.Popen(pin + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        t = time.time()
        line = self.p.stdout.readline()
        if not line.startswith("READY"):
            raise RuntimeError(f"{name} did not start: {line.strip()}")
        self.start_s = time.time() - t
        self.ns = []
        self.medians = []

    def burst(self, seconds):
        self.p.stdin.write(f"run {seconds}\n")
        self.p.stdin.flush()
        got = json.loads(self.p.stdout.readline())
        self.ns += got
        self.medians.append(statistics.median(got))

    def stop(self):
        try:
            self.p.stdin.write("quit\n")
            self.p.stdin.flush()
            self.p.wait(5)
        except Exception:
            self.p.kill()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("--shape", action="append", default=[])
    ap.add_argument("--spec")
    ap.add_argument("--engines", default="ort,openvino")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--rounds", type=int, default=12)
    ap.add_argument("--slice", type=float, default=0.3)
    ap.add_argument("--cpus", default=None, help="cpus to pin to (default: the last one, or all for several threads)")
    ap.add_argument("--ours")
    ap.add_argument("--other", action="append", default=[])
    ap.add_argument("--json")
    a = ap.parse_args()
    shapes = {k: [int(x) for x in v.split(",")] for k, v in (s.split("=", 1) for s in a.shape)}
    cpus = a.cpus or (str(os.cpu_count() - 1) if a.threads == 1 else None)
    with tempfile.TemporaryDirectory() as folder:
        inputs(a.model, shapes, a.spec, folder)
        commands = {e: [sys.executable, "-c", WORKER, e, a.model, folder, str(a.threads)] for e in a.engines.split(",") if e}
        extra = ([("ours", a.ours)] if a.ours else []) + [tuple(o.split("=", 1)) for o in a.other]
        for name, text in extra:
            commands[name] = [w.format(model=a.model, threads=a.threads, inputs=folder) for w in shlex.split(text)]
        workers = []
        for name, command in commands.items():
            try:
                workers.append(Worker(name, command, cpus))
            except Exception as e:
                print(f"{name}: {e}", file=sys.stderr)
        for _ in range(a.rounds):
            for w in workers:
                w.burst(a.slice)
        for w in workers:
            w.stop()
    if not workers:
        sys.exit("no engine ran")
    rows = []
    for w in workers:
        pairs = [x / y for x, y in zip(w.medians, workers[-1].medians)]
        w.ns.sort()
        rows.append({"engine": w.name, "median_ms": statistics.median(w.ns) / 1e6, "p10_ms": w.ns[len(w.ns) // 10] / 1e6,
                     "runs": len(w.ns), "start_s": w.start_s, f"time_over_{workers[-1].name}": statistics.median(pairs)})
    for r in rows:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in r.items()))
    if a.json:
        json.dump({"model": os.path.basename(a.model), "threads": a.threads, "rows": rows}, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
