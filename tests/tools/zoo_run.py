#!/usr/bin/env python3
"""Compiles the models of the zoo, runs them and compares with ONNX Runtime.

    zoo_run.py MCC CACHE [--only NAME ...] [--sets N]

MCC is the command (of a release build), CACHE the folder of setup.py; run it with CACHE/venv/bin/python after
`zoo_fetch.py CACHE/zoo`. Prints a row for each model: seconds of the processor and peak MB of the compile, KiB of code, packed weights and
arena, the largest error as a part of the largest magnitude of an output, the spread of ONNX Runtime's own results, whether the
largest element along the last axis is the same wherever it leads by a thousandth of the range, and the verdict by the model's
tolerance (reference.py).
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np
import reference

LEAD = 1e-3
# Seconds of a compile or a run.
LIMIT = 300
COLUMNS = ["model", "nodes", "compile s", "peak MB", "code KiB", "weights KiB", "arena KiB", "largest error", "spread", "same choice", "verdict"]


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "fault:")) or "panicked" in line]
    return (errors or lines or ["no message"])[0].strip()


# A process is charged with what its parent held at the fork, so a small one starts the command.
LAUNCHER = """import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)"""


def measured(command):
    """Runs a command; returns its status, seconds of the processor, peak in MB and what it said."""
    launch = [sys.executable, "-S", "-c", LAUNCHER, "timeout", str(LIMIT), *command]
    process = subprocess.run(launch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    *said, last = process.stdout.decode(errors="replace").strip().splitlines()
    status, seconds, peak = map(float, last.split())
    return status, seconds, peak, "error: more than %d s" % LIMIT if status == 124 else "\n".join(said)


def file_name(output):
    """The file in which `mcc run` writes an output."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in output) + ".npy"


def same_choice(got, want):
    """Whether the choice along the last axis is the same wherever it is clear."""
    if want.dtype.kind != "f" or want.ndim == 0 or want.shape[-1] < 2 or got.shape != want.shape:
        return True
    want = want.astype(np.float64).reshape(-1, want.shape[-1])
    got = got.reshape(want.shape)
    ordered = np.sort(want, axis=-1)
    clear = ordered[:, -1] - ordered[:, -2] > LEAD * np.ptp(want)
    return bool((got.argmax(-1) == want.argmax(-1))[clear].all())


def judge(entry, mcc, cache, folder):
    """The row of one recorded model: its columns after the number of nodes."""
    model = os.path.join(cache, entry["model"])
    examples = [dict(np.load(os.path.join(cache, "reference", file))) for file in entry["sets"]]
    inputs = [{k[3:]: v for k, v in example.items() if k.startswith("in_")} for example in examples]
    shapes = [x for name, v in inputs[0].items() for x in ("--shape", "%s=%s" % (name, ",".join(map(str, v.shape))))]
    status, seconds, peak, said = measured([mcc, model, "-o", folder + "/", "--name", "model", *shapes])
    row = ["%.2f" % seconds, "%.0f" % peak]
    if status != 0:
        return row + [""] * 6 + [last_line(said)]
    with open(os.path.join(folder, "model.json")) as file:
        sizes = json.load(file)
    row += ["%.1f" % (sizes[k] / 1024) for k in ("code_bytes", "weights_bytes", "arena_bytes")]
    worst, same = 0.0, True
    for at, example in enumerate(examples):
        given, out = os.path.join(folder, "in%d.npz" % at), os.path.join(folder, "out%d" % at)
        np.savez(given, **inputs[at])
        status, _, _, said = measured([mcc, "run", model, "-i", given, "-o", out, "-q"])
        if status != 0:
            return row + ["", "", "", last_line(said)]
        for name, want in example.items():
            if not name.startswith("out_"):
                continue
            got = np.load(os.path.join(out, file_name(name[4:])))
            worst, same = max(worst, reference.error_of(got, want)), same and same_choice(got, want)
    right = worst <= entry["tolerance"] and same
    return row + ["%.1e" % worst, "%.1e" % entry["spread"], "yes" if same else "no", "right" if right else "WRONG (%.0e)" % entry["tolerance"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mcc")
    parser.add_argument("cache")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--sets", type=int, default=2, help="sets of inputs per model (default 2)")
    arguments = parser.parse_args()
    os.makedirs(os.path.join(arguments.cache, "reference"), exist_ok=True)
    models = [entry for entry in reference.zoo() if entry["short_name"] in (arguments.only or [entry["short_name"]])]
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    right = 0
    for entry in models:
        recorded = reference.record_zoo(entry, arguments.cache, arguments.sets)
        with tempfile.TemporaryDirectory() as folder:
            row = [entry["short_name"], str(entry["nodes"]), *judge(recorded, arguments.mcc, arguments.cache, folder)]
        print("| " + " | ".join(row) + " |", flush=True)
        right += row[-1] == "right"
    print("\n%d of %d are right" % (right, len(models)))
    return 0 if right == len(models) else 1


if __name__ == "__main__":
    sys.exit(main())
