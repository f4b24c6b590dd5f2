#!/usr/bin/env python3
"""Times whole models beside other engines, in one alternating run on one core.

    nets.py [NAME …] [--cpu native] [--mcc target/release/mcc] [--engines ort,openvino,ncnn,mnn] [--rounds N] [--slice S] [--save]

Without a NAME: the f32 networks of make_nets.py and three trained ones. Each line has medians in milliseconds, the best peer and its time over
ours (above 1, ours is faster); at the end stands the geometric mean of these. --cpu x86-64-v3 holds the peers to AVX2 as peers.py
says. --save appends a line for each model to results.jsonl. Lines of one run may be compared, lines of different runs or machines may not.

Needs onnx and the engines: pip install onnx onnxruntime openvino ncnn pnnx MNN (of pnnx only the program is used: --no-deps will do).
"""
import argparse, json, os, statistics, sys

import peers, versus
from common import ROOT, commit, machine, model, write

NETS = ["ae", "dscnn", "kws_lstm", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x1_0", "squeezenet1_1",
        "resnet18", "resnet50", "bert_mini", "vit_tiny", "yolov8n_nudenet320", "ppocrv4_det", "minilm_l3"]


def compare(name, a):
    """The rows of one model: engine, median in milliseconds, time over ours."""
    ours = f"{a.mcc} bench {{model}} --cpu {a.cpu} --worker --inputs {{inputs}} --threads {{threads}}"
    rows = versus.compare(model(name), {}, f"{ROOT}/tests/data/zoo.json", a.engines.split(","), [("ours", ours)], rounds=a.rounds,
                          slice_s=a.slice, cpus=a.cpus, avx2=a.cpu == "x86-64-v3")
    return {r["engine"]: r for r in rows}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", default=NETS)
    ap.add_argument("--cpu", default="native")
    ap.add_argument("--mcc", default=f"{ROOT}/target/release/mcc")
    ap.add_argument("--engines", default="ort,openvino,ncnn,mnn")
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--slice", type=float, default=0.2)
    ap.add_argument("--cpus", default=str(os.cpu_count() - 1), help="cpu to pin to (default: the last one)")
    ap.add_argument("--save", action="store_true")
    a = ap.parse_args()
    engines, ratios = a.engines.split(","), {}
    print(" ".join([f"{'ms':<20}", f"{'ours':>8}"] + [f"{e:>8}" for e in engines] + [f"{'best':>9}", f"{'best/ours':>9}"]))
    for name in a.names:
        rows = compare(name, a)
        ms = {e: r["median_ms"] for e, r in rows.items()}
        cells = [f"{name:<20}"] + [f"{ms[e]:>8.4g}" if e in ms else f"{'–':>8}" for e in ["ours", *engines]]
        others = [e for e in engines if e in rows]
        if "ours" in rows and others:
            best = min(others, key=ms.get)
            ratios[name] = rows[best]["time_over_ours"]
            cells += [f"{best:>9}", f"{ratios[name]:>9.3f}"]
        print(" ".join(cells), flush=True)
        if a.save and name in ratios:
            found = {e: {"median_ms": round(ms[e], 4), "time_over_ours": round(rows[e]["time_over_ours"], 3)} for e in others}
            write({"model": name, "commit": commit(), "machine": machine(), "cpu": a.cpu, "peers": [peers.version(e) for e in others],
                   "threads": 1, "ours_ms": round(ms["ours"], 4), **found})
    if ratios:
        least = min(ratios, key=ratios.get)
        print(f"\ngeometric mean of the best peer's time over ours {statistics.geometric_mean(ratios.values()):.3f}, "
              f"least {ratios[least]:.3f} ({least}), {len(ratios)} models")


if __name__ == "__main__":
    main()
