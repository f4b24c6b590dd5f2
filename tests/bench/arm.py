#!/usr/bin/env python3
"""Counts what compiled code executes on aarch64, under qemu, and asks llvm-mca about its inner loops. Counts are exact, whatever the host.

    arm.py nets [NAME …] [--ort] [--save]     instructions of a run; of each kernel with --kernels; beside ONNX Runtime's arm64 library with --ort
    arm.py kernels [NAME …]                   the same of single problems of kernels.txt
    arm.py mca [NAME …]                       cycles of the inner loops of nets or problems by llvm-mca, over the bound of their multiply-adds

    options: [--cpu armv8-a] [--mcc target/release/mcc] [--mca-cpu neoverse-n1] [--qemu-cpu max]

`share` is multiply-adds of the model ÷ 4 ÷ instructions executed; `dense` that of the kernels of dense convolutions and matrix products with at least 64
output channels, weighted by their multiply-adds, and `depthwise` that of depthwise convolutions. Multiply-adds are those of the usual formulas for the nodes that a kernel computes.

Needs qemu-user, gcc and gcc-aarch64-linux-gnu; numpy, onnx and onnxruntime; for --ort npm, which fetches the library once; for mca llvm-mca and llvm-mc of LLVM 19
(Debian: llvm-19), as older ones model these cores wrongly.
"""
import argparse, json, math, os, re, shutil, subprocess, sys, tempfile
import numpy as np

import problems
from common import HERE, ROOT, cache, commit, model, networks, write

ORT_PACKAGE, ORT_VERSION = "onnxruntime-node", "1.30.0"
KINDS = ["fma", "dot", "vector", "vector load", "vector store", "load", "store", "branch", "integer"]
NETS = ["dscnn", "mobilenet_v2", "resnet18", "bert_mini"]
MANY_CHANNELS = 64


def tool(name, source, command, libraries=()):
    """A program or library that is built once from a source of arm64/, and again when that changes."""
    path, source = cache("arm64", name), f"{HERE}/arm64/{source}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
        subprocess.run([*command, source, *libraries, "-o", path], check=True)
    return path


def count(program, arguments, root, cpu, env=()):
    """Counts of each function that a program runs, by kind."""
    plugin = tool("insn_count.so", "insn_count.c", ["gcc", "-O2", "-shared", "-fPIC"])
    with tempfile.NamedTemporaryFile(suffix=".counts") as out:
        command = ["qemu-aarch64", "-cpu", cpu, "-L", root, "-plugin", f"{plugin},out={out.name}"]
        for pair in env:
            command += ["-E", pair]
        done = subprocess.run([*command, program, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"{program} ends with {done.returncode}")
        with open(out.name) as lines:
            table = (line.rstrip("\n").split("\t") for line in lines)
            return {name: np.array([int(n) for n in numbers]) for name, *numbers in table}


def per_run(program, arguments, root, cpu, env=()):
    """The counts of one run: those of three less those of one, halved."""
    one, three = (count(program, [a.format(runs=n) for a in arguments], root, cpu, env) for n in (1, 3))
    return {name: (n - one.get(name, 0 * n)) // 2 for name, n in three.items() if (n != one.get(name, 0 * n)).any()}


class Compiled:
    """A model compiled for aarch64: what a run executes, and what its kernels are."""

    def __init__(self, path, a, folder):
        shapes = suggested(path)
        command = [a.mcc, path, "--target", "aarch64", "--cpu", a.cpu, "--name", "net", "-o", f"{folder}/", "-q"]
        for name, shape in shapes.items():
            command += ["--shape", f"{name}={','.join(map(str, shape))}"]
        subprocess.run(command, check=True)
        subprocess.run(["aarch64-linux-gnu-gcc", "-std=c11", "-O1", "-static", "-I", folder, f"{HERE}/arm64/run.c", f"{folder}/net.o", "-o",
                        f"{folder}/run"], check=True)
        counts = per_run(f"{folder}/run", ["{runs}"], "/usr/aarch64-linux-gnu", a.qemu_cpu)
        self.counts = {name: n for name, n in counts.items() if name.startswith("net_")}
        with open(f"{folder}/net.json") as manifest:
            kernels = json.load(manifest)["kernels"]
        # Kernels of equal code are one function.
        self.functions = {}
        for k in kernels:
            self.functions.setdefault(k["symbol"], []).append(k["origins"])

    def executed(self):
        return sum(int(n.sum()) for n in self.counts.values())

    def of_kind(self, kind):
        return sum(int(n[KINDS.index(kind)]) for n in self.counts.values())


def suggested(path):
    stem = os.path.splitext(os.path.basename(path))[0]
    with open(f"{ROOT}/tests/data/zoo.json") as spec:
        entry = next((e for e in json.load(spec) if e["short_name"] == stem), None)
    return {name: i["shape"] for name, i in entry["suggested_inputs"].items()} if entry else {}


def contractions(path):
    """Multiply-adds and output channels of each node that multiplies and adds, with whether it is depthwise; shapes are those of a run."""
    import onnx, onnxruntime

    made = onnx.load(path)
    nodes = [n for n in made.graph.node if n.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
    constants = {t.name: list(t.dims) for t in made.graph.initializer}
    wanted = {v for n in nodes for v in (n.input[0], n.input[1], n.output[0]) if v not in constants}
    wanted -= {o.name for o in made.graph.output} | {i.name for i in made.graph.input}
    outputs = [o.name for o in made.graph.output]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shapes, feeds = suggested(path), {}
    for i in session.get_inputs():
        shape = shapes.get(i.name, [d if isinstance(d, int) else 1 for d in i.shape])
        feeds[i.name] = np.zeros(shape, {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}[i.type])
    names = outputs + sorted(wanted)
    known = {**constants, **{n: list(v.shape) for n, v in feeds.items()}, **{n: list(v.shape) for n, v in zip(names, session.run(names, feeds))}}
    found = {}
    for n in nodes:
        fields = {x.name: onnx.helper.get_attribute_value(x) for x in n.attribute}
        a, b, out = known[n.input[0]], known[n.input[1]], known[n.output[0]]
        if n.op_type == "Conv":
            found[n.name or n.output[0]] = (math.prod(out) * math.prod(b[1:]), b[0], fields.get("group", 1) > 1 and b[1] == 1)
        elif n.op_type == "ConvTranspose":
            found[n.name or n.output[0]] = (math.prod(a) * math.prod(b[1:]), out[1], False)
        else:
            depth = a[0] if fields.get("transA") else a[-1]
            found[n.name or n.output[0]] = (math.prod(out) * depth, out[-1], False)
    return found


def shares(compiled, nodes):
    """Multiply-adds and instructions: of the whole run, of dense functions with many channels, and of depthwise ones. Also the multiply-adds and kind of
    each function. A node counts where most multiply-adds are executed of the functions that have a part in it."""
    held = {}
    for name, node in nodes.items():
        parts = [f for f, kernels in compiled.functions.items() if any(name in origins for origins in kernels) and f in compiled.counts]
        if parts:
            held.setdefault(max(parts, key=lambda f: compiled.counts[f][0]), []).append(node)
    kinds = {f: "depthwise" if all(h[2] for h in hs) else "dense" if all(not h[2] and h[1] >= MANY_CHANNELS for h in hs) else "few" for f, hs in held.items()}
    macs = {f: sum(h[0] for h in hs) for f, hs in held.items()}
    found = {"share": np.array([sum(macs.values()), compiled.executed()])}
    for kind in ("dense", "depthwise"):
        of_kind = [f for f in held if kinds[f] == kind]
        found[kind] = np.array([sum(macs[f] for f in of_kind), sum(int(compiled.counts[f].sum()) for f in of_kind)])
    return found, {f: (macs[f], kinds[f]) for f in held}


def fraction(work):
    """Of the instructions, those that multiply and add four numbers of the model; None where there is no instruction."""
    multiply_adds, executed = work
    return round(float(multiply_adds / 4 / executed), 4) if executed else None


def ort_library():
    """The folder of ONNX Runtime's library for arm64, with a program that runs a model by it."""
    folder = cache("arm64", "ort")
    os.makedirs(f"{folder}/prefix/proc", exist_ok=True)
    library = f"{folder}/libonnxruntime.so.1"
    if not os.path.exists(library):
        package = f"{ORT_PACKAGE}@{ORT_VERSION}"
        subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        archive = f"{ORT_PACKAGE}-{ORT_VERSION}.tgz"
        subprocess.run(["tar", "xzf", archive, "--strip-components=5", "package/bin/napi-v6/linux/arm64/libonnxruntime.so.1"], cwd=folder, check=True)
        os.remove(f"{folder}/{archive}")
    # The library reads the file at its start and does not survive that of another architecture: this one is of a Neoverse N1.
    shutil.copy(f"{HERE}/arm64/cpuinfo.txt", f"{folder}/prefix/proc/cpuinfo")
    if not os.path.exists(f"{folder}/prefix/lib"):
        os.symlink("/usr/aarch64-linux-gnu/lib", f"{folder}/prefix/lib")
    tool("ort/ort_run", "ort_run.c", ["aarch64-linux-gnu-gcc", "-O1"], [library])
    return folder


def ort_counts(path):
    import onnx

    folder, made = ort_library(), onnx.load(path, load_external_data=False)
    known = {t.name for t in made.graph.initializer}
    value, = [i for i in made.graph.input if i.name not in known]
    shape = suggested(path).get(value.name, [d.dim_value or 1 for d in value.type.tensor_type.shape.dim])
    dtype = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.INT64: "i64"}[value.type.tensor_type.elem_type]
    arguments = [path, "{runs}", value.name, dtype, ",".join(map(str, shape))]
    counts = per_run(f"{folder}/ort_run", arguments, f"{folder}/prefix", "neoverse-n1", [f"LD_LIBRARY_PATH={folder}"])
    return sum(int(n.sum()) for n in counts.values()), sum(int(n[KINDS.index("fma")]) for n in counts.values())


def net(name, a):
    path = model(name)
    with tempfile.TemporaryDirectory() as folder:
        compiled = Compiled(path, a, folder)
    parts, held = shares(compiled, contractions(path))
    executed = compiled.executed()
    line = {"net": name, "cpu": a.cpu, "instructions": executed, "fma": round(compiled.of_kind("fma") / executed, 4)}
    line |= {k: fraction(v) for k, v in parts.items()}
    if a.ort:
        theirs, fma = ort_counts(path)
        line |= {"ort_instructions": theirs, "ort_fma": round(fma / theirs, 4), "over_ort": round(executed / theirs, 4)}
    print("  ".join(f"{k} {v / 1e6:.3f} M" if "instructions" in k else f"{k} {v}" for k, v in line.items()), flush=True)
    if a.kernels:
        table(compiled, held)
    if a.save:
        write({"aarch64": name, "commit": commit(), **line})
    return parts


def table(compiled, held):
    print(f"    {'instructions':>13} {'of all':>7} {'fma':>6} {'share':>6}  function, nodes")
    for function, kernels in compiled.functions.items():
        counts = compiled.counts.get(function)
        if counts is None:
            continue
        executed, (macs, kind) = int(counts.sum()), held.get(function, (0, ""))
        nodes = "; ".join(", ".join(origins) for origins in kernels)
        share = f"{macs / 4 / executed:>6.2f}" if macs else " " * 6
        print(f"    {executed:>13} {executed / compiled.executed():>7.1%} {counts[0] / executed:>6.1%} {share}  {function[4:]} {kind}  {nodes:.100}")


def kernel(problem, a):
    w = problems.work(problem)
    with tempfile.TemporaryDirectory() as folder:
        problems.model(problem, f"{folder}/model.onnx")
        compiled = Compiled(f"{folder}/model.onnx", a, folder)
    executed = compiled.executed()
    kinds = ", ".join(f"{kind} {compiled.of_kind(kind)}" for kind in KINDS if compiled.of_kind(kind))
    print(f"{problem.name:<18} {executed:>11} instructions, {w.arithmetic / 4 / executed:>6.3f} of arithmetic in 4 lanes; {kinds}", flush=True)


def llvm(name):
    found = next((p for p in (f"{name}-19", f"/usr/lib/llvm-19/bin/{name}", name) if shutil.which(p)), None)
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    major = re.search(r"version (\d+)", version)
    if not major or int(major[1]) < 19:
        sys.exit(f"{name} of LLVM 19 or later is needed (Debian, Ubuntu: apt-get install llvm-19); found {found or 'none'}{' ' + major[1] if major else ''}")
    return found


def cycles(loop, cpu):
    """Cycles of a round of a loop by llvm-mca, in the long run."""
    hexes = "\n".join(" ".join(f"0x{b[i:i + 2]}" for i in range(0, len(b), 2)) for b in loop["bytes"])
    read = subprocess.run([llvm("llvm-mc"), "--disassemble", "--triple=aarch64", "--mattr=+all"], input=hexes, capture_output=True, text=True)
    rounds = 200
    asked = subprocess.run([llvm("llvm-mca"), "--mtriple=aarch64", f"--mcpu={cpu}", f"--iterations={rounds}"], input=read.stdout, capture_output=True, text=True)
    total = re.search(r"Total Cycles:\s+(\d+)", asked.stdout)
    if not total:
        raise RuntimeError(asked.stderr)
    return int(total[1]) / rounds


def mca(name, path, a):
    shapes = [x for n, s in suggested(path).items() for x in ("--shape", f"{n}={','.join(map(str, s))}")]
    command = [a.mcc, "inspect", path, "--target", "aarch64", "--cpu", a.cpu, "--json", *shapes]
    for kernel in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout):
        for loop in kernel["loops"]:
            fma = loop["counts"].get("fma", 0)
            if not loop["innermost"] or fma < a.least_fma:
                continue
            taken = cycles(loop, a.mca_cpu)
            bound = fma / a.fma_units
            print(f"{name:<18} {taken / bound:>6.3f}  {taken:>7.2f} cycles, {fma} fma of {len(loop['bytes'])} instructions at 0x{loop['begin']:x}  {kernel['name']}", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["nets", "kernels", "mca"])
    ap.add_argument("names", nargs="*")
    ap.add_argument("--cpu", default="armv8-a")
    ap.add_argument("--mcc", default=f"{ROOT}/target/release/mcc")
    ap.add_argument("--qemu-cpu", default="max")
    ap.add_argument("--mca-cpu", default="neoverse-n1")
    ap.add_argument("--fma-units", type=int, default=2, help="units of the core that multiply and add vectors")
    ap.add_argument("--least-fma", type=int, default=8, help="loops with fewer multiply-adds are left out")
    ap.add_argument("--ort", action="store_true")
    ap.add_argument("--kernels", action="store_true", help="of nets, print each kernel")
    ap.add_argument("--save", action="store_true")
    a = ap.parse_args()
    every = problems.read(f"{HERE}/kernels.txt")
    chosen = [p for p in every if not a.names or any(n in p.name or n == p.operator for n in a.names)]
    if a.what == "nets":
        works = [net(name, a) for name in a.names or NETS]
        total = {kind: fraction(sum(parts[kind] for parts in works)) for kind in works[0]}
        print("all nets, weighted by multiply-adds:", "  ".join(f"{k} {v}" for k, v in total.items()))
        if a.save:
            write({"aarch64": "all", "commit": commit(), "nets": a.names or NETS, **total})
    elif a.what == "kernels":
        for problem in chosen:
            kernel(problem, a)
    else:
        for name in a.names or NETS:
            if name in networks():
                mca(name, model(name), a)
                continue
            for problem in (p for p in every if name in p.name):
                with tempfile.TemporaryDirectory() as folder:
                    problems.model(problem, f"{folder}/model.onnx")
                    mca(problem.name, f"{folder}/model.onnx", a)


if __name__ == "__main__":
    main()
