# SPDX-License-Identifier: Apache-2.0
"""Random functions (random_functions.py) as kernels and library calls of the processor, against the interpreter.

By hand: test_random_functions.py --first=1000 --count=500 [--operation=NAME] [--target=cpu|gpu-on-cpu]
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
from mpt_run import NAME_OF, TYPE_OF, read_tensors, tool, write_tensors  # noqa: E402
import random_graphs  # noqa: E402, F401 (adds its operation)
import random_layers  # noqa: E402, F401 (adds its operations)
from random_functions import OPERATIONS, Function  # noqa: E402
from random_states import Step  # noqa: E402

for kind in (np.uint8, np.uint16, np.uint32, np.uint64, np.int16):
    name = f"{np.dtype(kind).kind.upper()}{8 * np.dtype(kind).itemsize}"
    NAME_OF[np.dtype(kind).name], TYPE_OF[name] = name, np.dtype(kind)
WORKER = """
import pathlib, sys
sys.path[:0] = [{here!r}, {python!r}]
import numpy as np, mpt
import test_random_functions as t
mpt.use_build({build!r})
folder = pathlib.Path({folder!r})
trainer = mpt.Trainer(str(folder / "library"), threads={threads})
for name in {names!r}:
    (folder / "running").write_text(name)
    outputs = trainer.run(name, t.read_tensors(folder / f"{{name}}.in"))
    t.write_tensors(folder / f"{{name}}.out", {{key: np.asarray(value) for key, value in outputs.items()}})
(folder / "running").write_text("")
"""


def command(*arguments):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    return (result.stderr or f"status {result.returncode}") if result.returncode else ""


def emit(folder, module, target):
    opt = tool().with_name("mpt-opt" if target == "cpu" else "mpt-opt-toy")
    return command(opt, module, "--from=fusion", f"--target={target}", "--emit=library", "-o", folder / "library", "--quiet")


def differs(function, name, got, want):
    """Why a result is not the interpreter's, or nothing. Rounded results are alike within a few units."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{name}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if got.dtype.kind in "iub" and got.dtype != ml_dtypes.bfloat16 or function.exact and got.dtype.kind in "iub":
        bad = got != want
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        finite = b[np.isfinite(b)]
        size = np.abs(finite).max(initial=0)
        unit = float(ml_dtypes.finfo(got.dtype).eps)
        allowed = 0 if function.exact else np.where(np.isfinite(b), np.abs(b), 0) * max(4 * unit, 2e-6) + min(size, 30) * max(2 * unit, 1e-6)
        with np.errstate(invalid="ignore"):
            bad = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed))
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{name}{list(at)}: {got[at]} instead of {want[at]}, and {int(bad.sum())} of {bad.size} in all"


def check(functions, target="cpu", threads=2):
    """{name: error message} of functions by name."""
    problems = {}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        module = folder / "module.mlir"
        module.write_text('module attributes {mpt.name = "case"} {\n'
                          + "".join(f.text.replace("@NAME", f"@{name}") for name, f in functions.items()) + "}\n")
        error = emit(folder, module, target)
        if error:
            if len(functions) == 1:
                return {name: error.strip() for name in functions}
            return {name: problem for one in functions for name, problem in check({one: functions[one]}, target, threads).items()}
        for name, f in functions.items():
            write_tensors(folder / f"{name}.in", f.arguments)
        left = list(functions)
        while left:
            text = WORKER.format(here=str(HERE), python=str(HERE.parents[1] / "python"), build=str(tool().parents[1]), folder=place,
                                 threads=threads, names=left)
            error = command(sys.executable, "-c", text)
            running = (folder / "running").read_text() if (folder / "running").exists() else left[0]
            if not error:
                break
            problems[running or left[0]] = error.strip()[-400:]
            left = left[left.index(running) + 1:] if running in left else []
        for name, f in functions.items():
            if name in problems:
                continue
            error = command(tool(), module, f"--function={name}", f"--inputs={folder / name}.in", f"--outputs={folder / name}.want")
            if error:
                problems[name] = "interpreter: " + error.strip()
                continue
            got, want = read_tensors(folder / f"{name}.out"), read_tensors(folder / f"{name}.want")
            why = [differs(f, key, got[key], want[key]) for key in want]
            if any(why):
                problems[name] = "; ".join(filter(None, why))
    return problems


def functions_of(first, count, operation=None):
    return {f"f{seed}": Function(seed, operation) for seed in range(first, first + count)}


def report(functions, problems):
    return "\n".join(f"{name} ({functions[name].operation}): {problem}\n{functions[name].text}" for name, problem in problems.items())


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_kernels_compute_what_the_interpreter_does(operation):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("build mpt-opt first")
    functions = functions_of(0, 12, operation)
    problems = check(functions)
    assert not problems, report(functions, problems)


def check_step(step, seed, folder, threads=1):
    """Errors of a step's results and new states, line by line."""
    import mpt
    mpt.use_build(tool().parents[1])
    random = np.random.default_rng(seed)
    states = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in step.states.items()}
    module = folder / "module.mlir"
    module.write_text(step.text)
    write_tensors(folder / "states", states)
    write_tensors(folder / "inputs", step.arguments)
    error = emit(folder, module, "cpu") or command(tool(), module, "--function=step", f"--inputs={folder}/inputs", f"--state={folder}/states",
                                                   f"--outputs={folder}/outputs", f"--new-state={folder}/new")
    if error:
        return error
    trainer = mpt.Trainer(folder / "library", threads=threads)
    for name, value in states.items():
        trainer.set_parameter(name, value)
    got = trainer.run("step", step.arguments)
    got.update({name: trainer.parameter(name) for name in states})
    want = {**read_tensors(folder / "outputs"), **read_tensors(folder / "new")}
    return "\n".join(filter(None, (differs(step, name, got[name], want[name]) for name in want)))


@pytest.mark.parametrize("seed", [*range(8), 39])  # 39: an update in front of a reader that a broadcast shows the state to
def test_states_are_replaced_behind_their_readers(seed, tmp_path):
    if not (tool().parent / "mpt-opt").exists():
        pytest.skip("build mpt-opt first")
    step = Step(seed)
    problem = check_step(step, seed, tmp_path)
    assert not problem, f"{problem}\n{step.text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--together", type=int, default=40, help="functions in a module")
    parser.add_argument("--operation", choices=sorted(OPERATIONS))
    parser.add_argument("--target", choices=["cpu", "gpu-on-cpu"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    wrong = 0
    for first in range(options.first, options.first + options.count, options.together):
        functions = functions_of(first, min(options.together, options.first + options.count - first), options.operation)
        problems = check(functions, options.target, options.threads)
        wrong += len(problems)
        if problems:
            print(report(functions, problems), flush=True)
    print(f"{options.count - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
