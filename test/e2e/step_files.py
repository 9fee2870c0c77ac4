# SPDX-License-Identifier: Apache-2.0
"""Training steps as .onnx: export, the reference interpreter before and after, ONNX Runtime or ONNX's own evaluator."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "python"))
import mpt_run  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
POLICIES = ("fp32", "amp-f16", "amp-bf16", "pure-f16-static", "als-f16", "als-f16-product", "fp8-e5m2", "fp8-hybrid", "fp8-current")


class Failed(AssertionError):
    pass


def call(tool, *words, limit=600):
    words = [str(word) for word in words]
    result = subprocess.run([str(BUILD / "bin" / tool), *words], capture_output=True, text=True, timeout=limit)
    if result.returncode != 0:
        raise Failed(f"{tool} {' '.join(words)}: " + (result.stderr.strip() or f"status {result.returncode}")[-600:])
    return result


def export(model, flags, path, form="joint", *more):
    call("mpt-opt", model, *flags, "--emit=onnx", f"--onnx-form={form}", *more, "--quiet", "-o", path)
    return path


def states_of(model):
    """The description of each state in the file's metadata."""
    for entry in model.metadata_props:
        if entry.key == "mpt.states":
            return json.loads(entry.value)
    raise Failed("no metadata 'mpt.states'")


def check(path):
    """The full checker on the file, and the entries of mpt.states against the graphs."""
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path, load_external_data=False)
    graphs = [model.graph] + [info.algorithm for info in model.training_info]
    outputs = {value.name for graph in graphs for value in graph.output}
    initializers = {tensor.name for graph in graphs for tensor in graph.initializer}
    for name, state in states_of(model).items():
        assert state.get("initializer", name) in initializers, name
        assert state.get("next", next(iter(outputs))) in outputs, name
    domains = {node.domain for graph in graphs for node in graph.node} - {""}
    assert domains <= {function.domain for function in model.functions}, domains
    return model


def steps(source, flags, feeds, folder, name, count=2, state=None):
    """Results and states after `count` steps of `source` in the reference interpreter."""
    folder = pathlib.Path(folder)
    mpt_run.write_tensors(folder / "feeds.safetensors", feeds)
    words = [source, *flags, "--function=step", f"--inputs={folder}/feeds.safetensors", f"--outputs={folder}/{name}.out",
             f"--new-state={folder}/{name}.state", f"--steps={count}"]
    if state is not None:
        mpt_run.write_tensors(folder / "before.safetensors", state)
        words.append(f"--state={folder}/before.safetensors")
    call("mpt-run", *words)
    return mpt_run.read_tensors(folder / f"{name}.out"), mpt_run.read_tensors(folder / f"{name}.state")


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


def is_same(a, b):
    """Bitwise identical; any NaN is a NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if np.array_equal(bits(a), bits(b)):
        return True
    if a.dtype.kind in "iub":
        return False
    wide = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(wide[0]) & np.isnan(wide[1])
    return bool(np.all(nan | ((wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1])))))


def differences(before, after):
    """Names whose values differ; every value of the second must be in the first."""
    return [name for name, value in after.items() if name not in before or not is_same(before[name], value)]


def overflowing(states):
    """States with which a step cannot stay finite: float tensors times a large power of two."""
    with np.errstate(over="ignore"):
        return {name: (value.astype(np.float64) * 2.0**60).astype(value.dtype) if value.dtype.kind not in "iub" else value
                for name, value in states.items()}


def compare(model, flags, feeds, folder, form="joint", *more):
    """The exported step, checked; fails where re-import changes a bit of a result or a state of three steps and of one from
    states that overflow. Returns (protobuf, results, states) of the first three steps."""
    folder = pathlib.Path(folder)
    path = export(model, flags, folder / f"step-{form}.onnx", form, *more)
    proto = check(path)
    states = None
    for what, count in (("steps", 3), ("overflow", 1)):
        state = overflowing(first[1]) if what == "overflow" else None
        before = steps(model, flags, feeds, folder, "before", count, state)
        after = steps(path, [], feeds, folder, "after", count, state)
        first = before if state is None else first
        # A result that is called like an output of the model's own graph is numbered.
        results = {name.removesuffix("_1"): value for name, value in after[0].items() if name.removesuffix("_1") in before[0]}
        if not results:
            raise Failed("the re-imported step has none of the results")
        # Large constants are states without a name of their own.
        named = {name: value for name, value in after[1].items() if name in states_of(proto)}
        wrong = differences(before[0], results) + differences(before[1], named)
        if wrong:
            raise Failed(f"{what}: {len(wrong)} of {len(results) + len(named)} differ after re-import: " + ", ".join(wrong[:6]))
        written = {name for name, entry in states_of(proto).items() if "next" in entry}
        if not written <= set(named):
            raise Failed("states lost: " + ", ".join(sorted(written - set(named))[:6]))
    return proto, first
