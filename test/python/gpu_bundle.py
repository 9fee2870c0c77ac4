# SPDX-License-Identifier: Apache-2.0
"""Bundles for machines with a GPU, packed small and run against the fake driver and libraries."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import build_folder
from standin import library

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "benchmarks" / "gpu"


def needs_standin() -> None:
    if not (build_folder() / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")


def options() -> list:
    return [f"--option={name}={library(build_folder())}" for name in ("driver", "cublaslt", "cudnn")]


def environment(**variables) -> dict:
    return {**os.environ, "MPT_TORCH_PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **variables}


def pack(folder, *flags, arch="host", check=True):
    """The bundle's packing; no models to be timed unless `flags` name some."""
    models = [] if any(flag.startswith("--models") for flag in flags) else ["--models="]
    return subprocess.run([ROOT / "scripts" / "gpu-bundle.sh", folder, f"--arch={arch}", f"--build={build_folder()}", *models, *flags], env=environment(),
                          check=check, text=True, stdout=subprocess.PIPE, stderr=None if check else subprocess.PIPE)


def command(bundle, *arguments, out=None) -> list:
    return [sys.executable, str(bundle / "run.py"), *map(str, arguments), f"--out={out or bundle / 'results'}", *options()]


def rows_of(folder) -> list:
    path = folder / "results.jsonl"  # none where no item has run yet
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(bundle, *arguments, out=None, **variables):
    done = subprocess.run(command(bundle, *arguments, out=out), env=environment(**variables), capture_output=True, text=True)
    return done, rows_of(out or bundle / "results")


def conform(bundle, *folders, **variables) -> list:
    """Rows of small models by themselves."""
    paths = os.pathsep.join([str(bundle), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, bundle / "conform.py", "--jobs=2", "--limit=600", "--option=cache=", "--option=search=off",
                           *[bundle / "data" / "training" / folder for folder in folders], *options()],
                          env=environment(PYTHONPATH=paths, **variables), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
