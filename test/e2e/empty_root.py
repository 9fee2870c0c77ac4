#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a wheel where nothing is but Python and the C library, and trains README's first example: empty_root.py WHEEL

The root is of unpacked Debian packages, without a shell, a compiler and a linker. Needs root's rights and apt's lists.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# python3.11 as Debian 12 has it, and the libraries that its modules open.
DEBIAN = """libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 libssl3 libsqlite3-0 libuuid1 libcrypt1
python3.11-minimal libpython3.11-minimal libpython3.11-stdlib python3.11""".split()
PYTHON = ["pip", "numpy", "onnx", "scikit-learn", "onnxruntime", "tqdm"]


def run(*command, **keywords) -> str:
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **keywords)
    if done.returncode:
        sys.exit(f"empty_root: '{' '.join(map(str, command))}' failed:\n{done.stdout}")
    return done.stdout


def inside(root, *command) -> str:
    """Runs a command whose root is `root`, in its folder /work, with the devices and processes of this machine."""
    mounts = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec unshare --root="$0" --wd=/work "$@"'
    return run("unshare", "--mount", "sh", "-c", mounts, root, *command, env={"LANG": "C.UTF-8", "HOME": "/work", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


def readme_example() -> tuple:
    """README's first example: the script that writes the model, the words of the compiler, the script that trains."""
    readme = (ROOT / "README.md").read_text()
    model, train = re.findall(r"```python\n(.*?)```", readme, re.S)[:2]
    return model, re.search(r"^mpt-opt digits\.onnx .*$", readme, re.M).group(0).split(), train


def make_root(root) -> None:
    packages = root / "packages"
    for folder in (packages, root / "proc", root / "dev", root / "tmp", root / "work"):
        folder.mkdir(parents=True)
    run("apt-get", "download", *DEBIAN, cwd=packages)
    for package in packages.iterdir():
        run("dpkg-deb", "-x", package, root)
    run("rm", "-r", packages)


def main():
    wheel = pathlib.Path(sys.argv[1]).resolve()
    model, command, train = readme_example()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make_root(root)
        (root / "work/make_model.py").write_text(model)
        (root / "work/train.py").write_text(train)
        run(sys.executable, "-m", "pip", "download", "-q", "--python-version=3.11", "--only-binary=:all:", "-d", root / "wheels",
            wheel, *PYTHON)
        inside(root, "/usr/bin/python3.11", "-m", "venv", "--without-pip", "/env")
        pip = next((root / "wheels").glob("pip-*.whl"))
        inside(root, "/usr/bin/python3.11", f"/wheels/{pip.name}/pip", "--python=/env/bin/python", "install", "-q", "--no-index",
               "--find-links=/wheels", "mpt-compiler", *PYTHON[1:])
        inside(root, "/env/bin/python", "make_model.py")
        inside(root, f"/env/bin/{command[0]}", *command[1:])
        text = inside(root, "/env/bin/python", "train.py")
        inside(root, "/env/bin/mpt-run", "--version")
        inside(root, "/env/bin/python", "-c", "import ctypes, mpt.backend as b; ctypes.CDLL(b._native.PACKAGE / 'lib/libmpt_compiler.so')")
    print(text, end="")
    if float(re.search(r"has not seen: ([0-9.]+)", text).group(1)) < 0.9:
        sys.exit("empty_root: expected an accuracy above 0.9")


if __name__ == "__main__":
    main()
