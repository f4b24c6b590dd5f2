#!/usr/bin/env python3
"""Times single kernels, the problems of kernels.txt, against the least time that each can take.

    kernels.py [NAME …] [--cpu native] [--mcc target/release/mcc] [--ort] [--rounds N] [--save] [--list]

A NAME is a part of a problem's name, or an operator; without one, all problems run. For each, in turn and pinned to one core: the machine's rates, then runs of
ours, then, with --ort, of ONNX Runtime (on images in its own order of elements). problems.py has the bound; `share` is the bound over our time, the median of the rounds, and
`aim` what it should be. --save appends a line for each to results.jsonl. Needs numpy and onnx, and onnxruntime for --ort.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
import numpy as np

import problems
from common import HERE, ROOT, commit, machine, write
from versus import Worker

PEER = r'''
import json, sys, time, numpy as np, onnxruntime as ort
print("READY {}", flush=True)
for line in sys.stdin:
    w = line.split()
    if not w or w[0] == "quit": break
    if w[0] == "load":
        o = ort.SessionOptions(); o.intra_op_num_threads = o.inter_op_num_threads = 1
        s = ort.InferenceSession(w[1], o, providers=["CPUExecutionProvider"]); b = s.io_binding(); shapes = json.loads(w[2])
        for n, d in shapes: b.bind_ortvalue_input(n, ort.OrtValue.ortvalue_from_numpy(np.random.default_rng(0).standard_normal(d, dtype=np.float32)))
        b.bind_output("y"); s.run_with_iobinding(b); print("loaded", flush=True); continue
    end = time.perf_counter_ns() + float(w[1]) * 1e9; out = []
    while True:
        t = time.perf_counter_ns(); s.run_with_iobinding(b); u = time.perf_counter_ns(); out.append(u - t)
        if u >= end: break
    print(json.dumps(out), flush=True)
'''
COLUMNS = ("name", "GFLOP/s", "us", "bound", "by", "share", "aim", "ort_us", "ort/ours")


def ask(worker, line):
    worker.p.stdin.write(line + "\n")
    worker.p.stdin.flush()
    return worker.p.stdout.readline()


def levels(problem, rates):
    """The levels to measure again with a problem."""
    return problems.level(rates, problems.work(problem).footprint_bytes())["name"]


def measure(problem, a, folder, peer):
    inputs = problems.model(problem, f"{folder}/{problem.name}.onnx")
    index = []
    for k, (name, shape) in enumerate(inputs):
        np.save(f"{folder}/{k}.npy", np.random.default_rng(k).standard_normal(shape, dtype=np.float32))
        index.append({"name": name, "shape": shape, "dtype": "float32", "file": f"{k}.npy"})
    with open(f"{folder}/index.json", "w") as file:
        json.dump(index, file)
    command = [a.mcc, "bench", f"{folder}/{problem.name}.onnx", "--cpu", a.cpu, "--worker", "--inputs", folder]
    ours = Worker(problem.name, command, a.cpus)
    if peer:
        plain = problems.model(problem, f"{folder}/plain.onnx", plain=True)
        ask(peer, f"load {folder}/plain.onnx {json.dumps(plain, separators=(',', ':'))}")
        peer.medians.clear()
    level, times, shares, by = a.levels and levels(problem, a.levels), [], [], None
    ours.burst(a.slice / 4)
    ours.medians.clear()
    for _ in range(a.rounds):
        rates = json.loads(ask(ours, f"rates {level}"))
        bound, by = problems.bound(problem, rates)
        ours.burst(a.slice)
        times.append(bound * 1e6)
        shares.append(bound * 1e9 / ours.medians[-1])
        if peer:
            peer.burst(a.slice)
    row = {"name": problem.name, "us": statistics.median(ours.medians) / 1e3, "bound": statistics.median(times), "by": by,
           "share": statistics.median(shares), "aim": problems.aim(problem, a.levels)}
    row["GFLOP/s"] = 2e-3 * problems.work(problem).arithmetic / row["us"]
    if peer:
        row["ort_us"] = statistics.median(peer.medians) / 1e3
        row["ort/ours"] = statistics.median(x / y for x, y in zip(peer.medians, ours.medians))
    ours.stop()
    return row


def text(row):
    cells = [f"{row['name']:<18}"]
    cells += [f"{row[c]:>8.3g}" if isinstance(row.get(c), float) else f"{row.get(c, ''):>8}" for c in COLUMNS[1:]]
    return " ".join(cells) + ("" if row["share"] >= row["aim"] else "  <")


def summary(rows):
    reached = sum(r["share"] >= r["aim"] for r in rows)
    print(f"\n{reached} of {len(rows)} reach their aim; geometric mean of the shares {statistics.geometric_mean(r['share'] for r in rows):.3f}")
    worst = sorted(rows, key=lambda r: r["share"] / r["aim"])[:5]
    print("worst: " + ", ".join(f"{r['name']} {r['share']:.2f}" for r in worst))
    if "ort/ours" in rows[0]:
        print(f"geometric mean of ONNX Runtime's time over ours {statistics.geometric_mean(r['ort/ours'] for r in rows):.3f}")


def chosen(names):
    known = problems.read(f"{HERE}/kernels.txt")
    return [p for p in known if not names or any(n in p.name or n == p.operator for n in names)]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    ap.add_argument("--cpu", default="native")
    ap.add_argument("--mcc", default=f"{ROOT}/target/release/mcc")
    ap.add_argument("--ort", action="store_true")
    ap.add_argument("--rounds", type=int, default=6)
    ap.add_argument("--slice", type=float, default=0.03)
    ap.add_argument("--cpus", default=str(os.cpu_count() - 1), help="cpu to pin to (default: the last one)")
    ap.add_argument("--save", action="store_true")
    ap.add_argument("--list", action="store_true", help="print the problems and what they need, and end")
    a = ap.parse_args()
    found = chosen(a.names)
    if not found:
        sys.exit("no problem of kernels.txt has such a name")
    if a.list:
        for p in found:
            w = problems.work(p)
            print(f"{p.name:<18} {p.operator:<11} {w.arithmetic / 1e6:>9.3f} M operations  {w.footprint_bytes() / 1024:>9.0f} KiB  #{p.nets.rstrip()}")
        return
    peer = Worker("ort", [sys.executable, "-c", PEER], a.cpus) if a.ort else None
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        probe = f"{folder}/probe.onnx"
        problems.model(problems.Problem("probe gemm m=1 k=8 n=8"), probe)
        worker = Worker("rates", [a.mcc, "bench", probe, "--cpu", a.cpu, "--worker"], a.cpus)
        a.levels = json.loads(ask(worker, "rates"))
        worker.stop()
        print(f"{a.cpu}: {a.levels['lanes']} lanes, {2e-9 * a.levels['fma_per_s']:.0f} GFLOP/s; GB/s read, written, copied: " + "; ".join(
            f"{l['name']} " + ", ".join(f"{1e-9 * l[k + '_bytes_per_s']:.0f}" for k in ("read", "write", "copy")) for l in a.levels["levels"]))
        print(" ".join([f"{COLUMNS[0]:<18}"] + [f"{c:>8}" for c in COLUMNS[1:]]))
        for problem in found:
            try:
                rows.append(measure(problem, a, folder, peer))
            except Exception as error:
                print(f"{problem.name}: {error}", file=sys.stderr)
                continue
            print(text(rows[-1]), flush=True)
            if a.save:
                figures = {k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items() if k != "name"}
                write({"kernel": problem.name, "commit": commit(), "machine": machine(), "cpu": a.cpu, **figures})
    if peer:
        peer.stop()
    if rows:
        summary(rows)


if __name__ == "__main__":
    main()
