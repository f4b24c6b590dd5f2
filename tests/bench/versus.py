#!/usr/bin/env python3
"""Times engines beside each other on one model, in one run: A B C A B C …, pinned, median and ratio.

    versus.py MODEL.onnx [--shape NAME=1,3,224,224 ...] [--spec ../data/zoo.json] [--engines ort,openvino] [--threads 1]
              [--rounds 12] [--slice 0.3] [--ours 'COMMAND with {model} {inputs} {threads}'] [--other NAME='COMMAND …'] [--json OUT]

Each engine is a worker process. A worker (ours too) prints a line `READY {json}` once it has run the model once on the raw inputs
that it is given, then answers each line `run SECONDS` on stdin with one line: a JSON list of the nanoseconds of every run in that time,
and leaves at `quit`. {inputs} in a command is a folder with index.json, a list of {name, shape, dtype, file} for the model's inputs, and those .npy files.
--spec takes shapes and value ranges from a list like tests/data/zoo.json (the entry whose short_name is the file's stem).
Figures of one run may be compared with each other; figures of different runs or machines may not.
The built-in peers and their settings are those of peers.py; others come in by --other with a worker of your own.
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile, time

import peers

HERE = os.path.dirname(os.path.abspath(__file__))

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
    with open(f"{folder}/index.json", "w") as file:
        json.dump(index, file)
    return index


class Worker:
    def __init__(self, name, command, cpus, env=None, quiet=False):
        self.name = name
        pin = ["taskset", "-c", cpus] if cpus else []
        self.p = subprocess.Popen(pin + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL if quiet else None, env={**os.environ, **(env or {})})
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


def compare(model, shapes, spec, engines, others, threads=1, rounds=12, slice_s=0.3, cpus=None, avx2=False):
    """A row for each engine that ran: the built-in `engines`, then `others`, pairs of name and command. With `avx2` the built-in ones are
    held to AVX2. Times are also over those of the last one."""
    with tempfile.TemporaryDirectory() as folder:
        index = inputs(model, shapes, spec, folder)
        workers = []
        for name, command in [(e, None) for e in engines] + others:
            try:
                env = peers.avx2(name) if avx2 and not command else None
                if command:
                    command = [w.format(model=model, threads=threads, inputs=folder) for w in shlex.split(command)]
                else:
                    command = [sys.executable, f"{HERE}/peers.py", name, peers.prepare(name, model, index), folder, str(threads)]
                workers.append(Worker(name, command, cpus, env, quiet=name in peers.ENGINES))
            except Exception as error:
                print(f"{name}: {error}", file=sys.stderr)
        for worker in workers:
            worker.burst(slice_s / 4)
            worker.ns, worker.medians = [], []
        for _ in range(rounds):
            for worker in workers:
                worker.burst(slice_s)
        for worker in workers:
            worker.stop()
    rows = []
    for w in workers:
        pairs = [x / y for x, y in zip(w.medians, workers[-1].medians)]
        w.ns.sort()
        rows.append({"engine": w.name, "median_ms": statistics.median(w.ns) / 1e6, "p10_ms": w.ns[len(w.ns) // 10] / 1e6,
                     "runs": len(w.ns), "start_s": w.start_s, f"time_over_{workers[-1].name}": statistics.median(pairs)})
    return rows


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
    others = ([("ours", a.ours)] if a.ours else []) + [tuple(o.split("=", 1)) for o in a.other]
    rows = compare(a.model, shapes, a.spec, [e for e in a.engines.split(",") if e], others, a.threads, a.rounds, a.slice, cpus)
    if not rows:
        sys.exit("no engine ran")
    for r in rows:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in r.items()))
    if a.json:
        json.dump({"model": os.path.basename(a.model), "threads": a.threads, "rows": rows}, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
