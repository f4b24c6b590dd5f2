#!/usr/bin/env python3
"""Times mcc beside other engines and appends a line for each model to results.jsonl.

    record.py [NAME ...] [--mcc target/release/mcc] [--engines ort,openvino] [--rounds N]

Needs onnx and the engines (pip install onnx onnxruntime openvino), and the models that the tests fetch. A line holds the
machine's vector features, versions, and for each engine the median in milliseconds and its time over ours, from one alternating
run on one core (versus.py). Lines of one run may be compared, lines of different machines may not.
"""
import argparse, importlib.metadata, json, os, platform, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DIGITS = ["digits_resnet8", "digits_mobilenet", "digits_vit"]
ZOO = ["ppocr_cls_v2", "orientation_pplcnet", "blazeface_front", "oww_embedding", "mnist_cntk", "magika_v3_3", "mtcnn_onet",
       "espcn_subpixel", "minilm_l3", "yolov8n_nudenet320"]
NETS = ["mobilenet_v2", "resnet18"]


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("MCC_CACHE") or os.path.join(base, "mcc")


def model(name):
    if name in DIGITS:
        return f"{ROOT}/tests/data/models/{name}.onnx"
    if name in ZOO:
        return f"{cache()}/zoo/{name}.onnx"
    path = f"{cache()}/nets/{name}.onnx"
    if not os.path.exists(path):
        subprocess.run([sys.executable, f"{HERE}/make_nets.py", os.path.dirname(path), name], check=True)
    return path


def machine():
    """Architecture and vector features; no name of a machine."""
    features = set()
    if os.path.exists("/proc/cpuinfo"):
        for line in open("/proc/cpuinfo"):
            if line.startswith(("flags", "Features")):
                features = set(line.split(":")[1].split())
                break
    known = ["avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "asimddp", "i8mm", "bf16", "sve"]
    return {"arch": platform.machine(), "features": [f for f in known if f in features]}


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def write(line):
    """Appends a line to the results."""
    with open(f"{HERE}/results.jsonl", "a") as results:
        results.write(json.dumps(line) + "\n")


def version(engine):
    package = {"ort": "onnxruntime", "openvino": "openvino"}[engine]
    return f"{package} {importlib.metadata.version(package)}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", default=DIGITS + ZOO + NETS)
    ap.add_argument("--mcc", default=f"{ROOT}/target/release/mcc")
    ap.add_argument("--engines", default="ort,openvino")
    ap.add_argument("--rounds", default="8")
    a = ap.parse_args()
    ours = f"{a.mcc} bench {{model}} --worker --inputs {{inputs}} --threads {{threads}}"
    for name in a.names:
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [sys.executable, f"{HERE}/versus.py", model(name), "--spec", f"{ROOT}/tests/data/zoo.json", "--engines", a.engines,
                       "--rounds", a.rounds, "--ours", ours, "--json", out.name]
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
                print(f"{name}: no figures", file=sys.stderr)
                continue
            rows = json.load(open(out.name))["rows"]
        if rows[-1]["engine"] != "ours":
            print(f"{name}: mcc did not run", file=sys.stderr)
            continue
        peers = {r["engine"]: {"median_ms": round(r["median_ms"], 4), "time_over_ours": round(r["time_over_ours"], 3)} for r in rows[:-1]}
        line = {"model": name, "commit": commit(), "machine": machine(), "peers": [version(e) for e in peers], "threads": 1,
                "ours_ms": round(rows[-1]["median_ms"], 4), **peers}
        print(json.dumps(line), flush=True)
        write(line)


if __name__ == "__main__":
    main()
