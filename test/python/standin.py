# SPDX-License-Identifier: Apache-2.0
"""Trainers in a process of its own whose driver, cuBLASLt, cuDNN and NCCL are fake: `environment` is for who starts it."""
import ctypes
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Counts(ctypes.Structure):
    """StandInCounts of test/cuda/standin/StandIn.h."""
    _fields_ = [(name, ctypes.c_int64) for name in (
        "synchronizations allocations frees live peak launches gemms convolutions to_device to_host on_device fills "
        "enqueued graphs captures violations").split()]


def library(build) -> str:
    return str(pathlib.Path(build) / "lib" / "libcuda_standin.so")


def environment(build, cudnn=True, options=None, **variables) -> dict:
    """Of a process that uses `trainer` and `standin`; `options` are further ones of trainers for CUDA."""
    path = os.pathsep.join([str(ROOT / "python"), str(pathlib.Path(__file__).parent)])
    own = {"driver": library(build), "cublaslt": library(build), "cudnn": library(build) if cudnn else "none",
           "nccl": library(build), "cache": ""}
    return {**os.environ, "PYTHONPATH": path, "MPT_BUILD": str(build), "STANDIN_OPTIONS": json.dumps({**own, **(options or {})}),
            "OMP_NUM_THREADS": "1", **variables}


def standin():
    """The fake driver itself."""
    found = ctypes.CDLL(json.loads(os.environ["STANDIN_OPTIONS"])["driver"])
    found.standin_violations.restype = ctypes.c_char_p
    return found


def counts(found) -> Counts:
    """The counts of events in the fake driver `found` so far."""
    result = Counts()
    found.standin_counts(ctypes.byref(result))
    return result


def trainer(path, world=None):
    """A trainer of a model compiled for either target."""
    import mpt
    mpt.use_build(os.environ["MPT_BUILD"])
    manifest = next(pathlib.Path(path).glob("*.json"))
    target = json.loads(manifest.read_text())["target"]
    return mpt.Trainer(path, threads=1, world=world, options=json.loads(os.environ["STANDIN_OPTIONS"]) if target == "cuda" else None)
