"""What the programs that record figures share: where models are, what this machine is, where results go."""
import json, os, platform, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def cache(*names):
    """A path in the folder of what was fetched or made."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(os.environ.get("MCC_CACHE") or os.path.join(base, "mcc"), *names)


def networks():
    """Names of the networks that make_nets.py makes, and of the trained models that were fetched."""
    trained = os.listdir(cache("zoo")) if os.path.exists(cache("zoo")) else []
    return {f.removesuffix(".gz").removesuffix(".onnx") for f in os.listdir(f"{HERE}/nets") + trained if ".onnx" in f}


def model(name):
    """The file of a model: one of tests/data/models, of the trained ones, or a network that make_nets.py makes."""
    for path in (f"{ROOT}/tests/data/models/{name}.onnx", cache("zoo", f"{name}.onnx")):
        if os.path.exists(path):
            return path
    path = cache("nets", f"{name}.onnx")
    if not os.path.exists(path):
        subprocess.run([sys.executable, f"{HERE}/make_nets.py", os.path.dirname(path), name], check=True)
    return path


def machine():
    """Architecture and vector features; no name of a machine."""
    features = set()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            features = next((set(line.split(":")[1].split()) for line in lines if line.startswith(("flags", "Features"))), set())
    known = ["avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "asimddp", "i8mm", "bf16", "sve"]
    return {"arch": platform.machine(), "features": [f for f in known if f in features]}


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def write(line):
    """Appends a line to the results."""
    with open(f"{HERE}/results.jsonl", "a") as results:
        results.write(json.dumps(line) + "\n")
