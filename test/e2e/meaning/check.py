# SPDX-License-Identifier: Apache-2.0
"""Holds a case under a policy, compiled and rewritten, against float64, within the error that the policy's roundings explain."""
import collections
import ctypes
import os
import pathlib
import re
import shutil

import numpy as np
import onnx

import mpt

from . import evaluate

ROOT = pathlib.Path(__file__).resolve().parents[3]
DRAWS, FACTOR, SETTLE = (4, 32), 4, 80  # draws at first, and before a result is said to be wrong; steps: more than a trainer skips before it says that it stalls
OVERFLOW = re.compile(r"warning: at node .*(finite|range|overflow|65504|beyond)")
# Half a unit in the last place at 1, and half the smallest subnormal, which matters where no scale brings values to the range.
TYPES = {"f32": (2.0**-24, 0.0), "f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 0.0), "f8E4M3FN": (2.0**-4, 2.0**-10), "f8E5M2": (2.0**-3, 2.0**-17)}
FLOORS = {"f8E4M3FN": 2.0**-17, "f8E5M2": 2.0**-31}  # of types whose tensors have scales: of the largest value

# storage, operand, gradient  units of stored values, of operands of products, of gradients; the others: absolute errors
Rounding = collections.namedtuple("Rounding", "storage operand gradient smallest operand_floor gradient_smallest")
Result = collections.namedtuple("Result", "form policy status what error allowed text")


def policies():
    return sorted(path.stem for path in (ROOT / "lib/Precision/policies").glob("*.mlir"))


def policy_text(policy):
    return (ROOT / f"lib/Precision/policies/{policy}.mlir").read_text()


def rounding_of(policy, form="compiled", loss_scale=1.0):
    """The roundings that the policy's file allows, and how far; a rewritten file has no 8-bit types and no gradients."""
    text = policy_text(policy)
    types = dict(re.findall(r"(storage|compute|gradients|parameter_gradients|master|saved) = (\w+)", text))
    storage, compute, gradients = (types[key] for key in ("storage", "compute", "gradients"))
    if form == "rewritten":
        compute = storage
    gradients = max((gradients, types.get("parameter_gradients", "f32"), storage, compute), key=lambda kind: TYPES[kind][0])
    stored = max((storage, types.get("saved", "f32")), key=lambda kind: TYPES[kind][0])
    scaled = "tensor_scaling" in text
    smallest = max(TYPES[stored][1], 0.0 if scaled else TYPES[compute][1])
    return Rounding(TYPES[stored][0], TYPES[compute][0], TYPES[gradients][0], smallest, FLOORS.get(compute, 0.0) if scaled else 0.0,
                    0.0 if scaled else TYPES[gradients][1] / loss_scale)


class Compiler:
    """The compiler, in this process."""

    def __init__(self, build):
        mpt.use_build(build)
        self.library = ctypes.CDLL(str(pathlib.Path(build) / "lib" / "libmpt_compiler.so"))

    def run(self, *words):
        """(status, diagnostics)"""
        text = ctypes.c_char_p()
        status = self.library.mpt_compiler_run(len(words), (ctypes.c_char_p * len(words))(*[os.fsencode(w) for w in words]), ctypes.byref(text))
        diagnostics = (text.value or b"").decode(errors="replace")
        self.library.mpt_compiler_free_text(text)
        return status, diagnostics


def distance(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.linalg.norm(got - want)) if got.shape == want.shape and np.isfinite(got).all() else float("inf")


class Judge:
    """A case with its float64 values, and how far roundings move them."""

    def __init__(self, case, compiler, folder):
        self.case, self.compiler, self.folder = case, compiler, pathlib.Path(folder)
        self.graph = evaluate.Graph(case.model)
        self.values, _ = self.graph.run(case.feeds, case.exact, kinks=True)
        self.result = self.values["y"].numpy()
        self.target = (self.result + case.target * max(np.abs(self.result).mean(), 1e-3)).astype(np.float32)
        self.model = self.folder / "model.onnx"
        onnx.save(case.model, self.model)

    def true(self):
        return self.graph.run(self.case.feeds, self.case.exact, gradients=self.case.weights, target=self.target)

    def moved(self, rounding, gradients, draws):
        """Largest distances of results, the loss and gradients from float64's over the draws."""
        values, wanted = self.true() if gradients else (self.values, {})
        apart = collections.defaultdict(float)
        for seed in range(draws):
            run, found = self.graph.run(self.case.feeds, self.case.exact, rounding, seed, self.case.weights if gradients else (), self.target if gradients else None)
            apart["y"] = max(apart["y"], distance(run["y"].detach().numpy(), self.result))
            if gradients:
                apart["loss"] = max(apart["loss"], abs(float(run["loss"]) - float(values["loss"])))
            for name, gradient in found.items():
                apart[name] = max(apart[name], distance(gradient, wanted[name]))
        return apart, values, wanted

    def rewritten(self, policy, flags=()):
        out = self.folder / "out.onnx"
        status, text = self.compiler.run(self.model, f"--policy={policy}", "--emit=onnx", "-o", out, *flags)
        if status:
            return Result("rewritten", policy, "refused", "", 0, 0, text)
        made = onnx.load(out)
        try:
            onnx.checker.check_model(made, full_check=True)
        except Exception as problem:
            return Result("rewritten", policy, "invalid", "", 0, 0, str(problem))
        values, _ = evaluate.typed(made, self.case.feeds)
        for draws in DRAWS:
            apart, _, _ = self.moved(rounding_of(policy, "rewritten"), False, draws)
            result = self.judged("rewritten", policy, "y", distance(values["y"].numpy(), self.result), apart["y"], self.result, text)
            if result.status == "right":
                return result
        # Sums that cancel lose more than the bound in FP32 already, in the file as it came.
        own = distance(evaluate.typed(self.case.model, self.case.feeds)[0]["y"].numpy(), self.result)
        return self.judged("rewritten", policy, "y", result.error, apart["y"] + own, self.result, text)

    def judged(self, form, policy, what, error, apart, wanted, text):
        allowed = FACTOR * apart + 16 * evaluate.FP32 * float(np.linalg.norm(wanted))
        warned = not np.isfinite(error) and OVERFLOW.search(text)
        return Result(form, policy, "right" if error <= allowed else "warned" if warned else "wrong", what, error, allowed, text)

    def compiled(self, policy, flags=()):
        """The loss, and the gradients of all weights, of a step whose loss scale has settled."""
        out = self.folder / "library"
        shutil.rmtree(out, ignore_errors=True)
        freeze = [f"--freeze={'|'.join(map(re.escape, self.case.tables))}"] if self.case.tables else []
        status, text = self.compiler.run(self.model, "--loss=mse", "--optimizer=sgd,lr=0.01", f"--policy={policy}", "-o", out, *freeze, *flags)
        if status:
            return Result("compiled", policy, "refused", "", 0, 0, text)
        with mpt.Trainer(out, threads=1) as trainer:
            feed = {n: self.case.feeds[n] if n in self.case.feeds else self.target for n in trainer.inputs("step") if n != "learning_rate"}
            try:
                step = next((s for s in (trainer.step(feed, learning_rate=0.0) for _ in range(SETTLE)) if not s.skipped), None)
            except mpt.Stalled as problem:
                return self.stalled(policy, str(problem), text)
            if step is None:
                return Result("compiled", policy, "skips", "", float("inf"), 0, text)
            for _ in range(2 if "tensor_scaling" in policy_text(policy) else 0):  # whose scales follow earlier steps' values
                trainer.step(feed, learning_rate=0.0)
            loss, gradients = trainer.gradients(feed)
            for _ in range(SETTLE):  # gradients are drawn anew: where they round to infinity, the next step that does so lowers the scale
                if all(np.isfinite(g).all() for g in gradients.values()):
                    break
                step = trainer.step(feed, learning_rate=0.0)
                loss, gradients = trainer.gradients(feed)
        rounding = rounding_of(policy, "compiled", step.loss_scale if step.loss_scale and step.loss_scale > 0 else 1.0)
        for draws in DRAWS:
            result = self.worst(policy, rounding, draws, loss, gradients, text)
            if result.status == "right":
                break
        return result

    def worst(self, policy, rounding, draws, loss, gradients, text):
        """The result of the loss or the weight whose error is the largest part of its limit."""
        apart, values, wanted = self.moved(rounding, True, draws)
        results = [self.judged("compiled", policy, "loss", abs(loss - float(values["loss"])), apart["loss"], values["loss"], text)]
        missing = [name for name in self.case.weights if name not in gradients]
        if missing:
            results.append(Result("compiled", policy, "untrained", ",".join(missing), 0, 0, text))
        largest = max(float(np.linalg.norm(g)) for g in wanted.values())
        for name in (n for n in self.case.weights if n in gradients):
            results.append(self.judged("compiled", policy, name, distance(gradients[name], wanted[name]),
                                       apart[name] + 4 * evaluate.FP32 * largest, wanted[name], text))
        return max(results, key=lambda r: (r.status != "right", r.error / max(r.allowed, 1e-300)))

    def stalled(self, policy, problem, text):
        """A constant scale may lie beyond the range for a gradient that float64 has; else it is an error."""
        told, found = re.search(r"a loss scale of ([0-9.e+]+)", problem), {}
        self.graph.run(self.case.feeds, self.case.exact, gradients=self.case.weights, target=self.target, cotangents=found)
        if told and float(told[1]) * max(found.values()) > 65504:
            return Result("compiled", policy, "range", "", 0, 0, problem)
        return Result("compiled", policy, "skips", "", float("inf"), 0, problem + text)
