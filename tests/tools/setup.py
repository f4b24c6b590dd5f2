#!/usr/bin/env python3
"""Prepares a machine for the tests; what is there already is kept, so a second run takes a moment.

    setup.py        (also run by ./test)

Tools come from apt-get, where that exists and may be used: a C compiler for the host and one for aarch64, qemu's emulation
of programs and of a board, npm, and the build systems that programs use mcc from. All else goes to the cache folder, $MCC_CACHE
or ~/.cache/mcc:

    venv/       Python packages of requirements.txt
    kconfig/    the Python package kconfiglib
    onnx-tests/ the ONNX backend tests, as the onnx package ships them
    onnx-schemas.json  what the onnx package says of operators
    zoo/        trained models, see tests/data/zoo.json
    mnist/      the MNIST test images
    reference/  what ONNX Runtime computes for the models
    operators/  models of one operator, and what ONNX Runtime computes for them
"""
import fcntl, os, shutil, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
REQUIREMENTS = os.path.join(HERE, "requirements.txt")

# command: package that has it (Debian, Ubuntu)
TOOLS = {
    "cc": "build-essential",
    "c++": "build-essential",
    "readelf": "binutils",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "qemu-system-aarch64": "qemu-system-arm",
    "npm": "npm",
    "make": "make",
    "cmake": "cmake",
    "ninja": "ninja-build",
    "meson": "meson",
    "pkg-config": "pkg-config",
}
# what those leave out without recommended packages
LIBRARIES = {"aarch64-linux-gnu-gcc": "libc6-dev-arm64-cross"}


def cache_folder():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("MCC_CACHE") or os.path.join(home, "mcc")


def run(*command, **options):
    print("+ " + " ".join(command), flush=True)
    subprocess.run(command, check=True, **options)


def has_venv():
    return subprocess.run([sys.executable, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL).returncode == 0


def install_tools():
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    packages = {TOOLS[tool] for tool in missing} | {LIBRARIES[tool] for tool in missing if tool in LIBRARIES}
    if not has_venv():
        packages.add("python3-venv")
    if not packages:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *sorted(packages)]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit("set-up: missing: %s\n  as root, on Debian or Ubuntu: %s" % (", ".join(missing) or "venv", " ".join(install)))
    run("apt-get", "update", "-q", stdout=subprocess.DEVNULL)
    run(*install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdout=subprocess.DEVNULL)


def make_venv(cache):
    """Makes the Python environment anew where the requirements changed; returns its interpreter."""
    folder = os.path.join(cache, "venv")
    python, stamp = os.path.join(folder, "bin", "python"), os.path.join(folder, "requirements.txt")
    with open(REQUIREMENTS) as file:
        wanted = file.read()
    if os.path.exists(stamp) and open(stamp).read() == wanted and os.path.exists(python):
        return python
    run(sys.executable, "-m", "venv", "--clear", folder)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS)
    shutil.copyfile(REQUIREMENTS, stamp)
    return python


def install_kconfiglib(cache, python):
    folder = os.path.join(cache, "kconfig")
    if not os.path.exists(os.path.join(folder, "kconfiglib.py")):
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder, "kconfiglib==14.1.0")


def link_onnx_tests(cache, python):
    code = "import onnx.backend.test, os; print(os.path.join(os.path.dirname(onnx.backend.test.__file__), 'data'))"
    target = subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    link = os.path.join(cache, "onnx-tests")
    if not (os.path.islink(link) and os.readlink(link) == target):
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(target, link)
    print("onnx-tests: %d of nodes" % len(os.listdir(os.path.join(target, "node"))))


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    if sys.version_info < (3, 11):
        sys.exit("set-up: needs Python 3.11 or newer; this is %d.%d" % sys.version_info[:2])
    install_tools()
    cache = cache_folder()
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = make_venv(cache)
        install_kconfiglib(cache, python)
        link_onnx_tests(cache, python)
        tools = lambda name, *arguments: run(python, os.path.join(HERE, name), *arguments)
        tools("schemas.py", cache)
        tools("zoo_fetch.py", "--tests", os.path.join(cache, "zoo"))
        tools("mnist_fetch.py", os.path.join(cache, "mnist"))
        tools("reference.py", cache)
        tools("operators.py", cache)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit("set-up: %s failed (status %d)" % (" ".join(error.cmd), error.returncode))
