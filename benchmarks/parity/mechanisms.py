# SPDX-License-Identifier: Apache-2.0
"""The purpose of each mechanism of mixed precision: the same training with it and without it.

Each case trains LeNet on digits through emitted libraries: in FP32, with the mechanism, and without it, which must fail visibly.
A side without a mechanism is a built-in policy with lines of its file changed, or with another flag.
"""
from __future__ import annotations

import functools
import os
import re
import sys
from dataclasses import dataclass, field

import numpy as np

import accumulation
import networks
import policies
import tasks


@dataclass
class Side:
    what: str
    policy: str
    flags: dict = field(default_factory=dict)
    changes: tuple = ()          # (old text, new text) of the policy's file
    # The mechanism is off, and how that must show: True: accuracy at least `gap` points below FP32's; "flushes": at least half of
    # the trained network's gradient is lost; "skips": each run skips 8 steps or more.
    fails: bool | str = False
    edit: object = None          # of the text of the rewritten step, for changes that no policy can state
    spoilt: int = 0              # one batch of this many comes after two with an infinite input

    def file(self, folder: str) -> str:
        return policies.changed(self.policy, self.changes,
                                os.path.join(folder, f"{self.policy} {self.what}.mlir".replace(" ", "-")))


@dataclass
class Case:
    name: str
    rate: float                  # learning rate of SGD with momentum 0.9
    steps: int
    sides: list                  # FP32 first
    weight: float = 1.0          # of the loss, with a learning rate that makes up for it: exact arithmetic does not notice
    gap: float = 3.0
    limit: float = 1.0           # points that the sides with the mechanism may lose to FP32
    seeds: int = 1               # run at least this many, where one run differs from the next by more than `limit`
    network: object = functools.partial(networks.lenet, dropout=0)
    quiet: bool = False          # sides with the mechanism must also flush at most 5 % of the gradient and skip no step


def eight_bit_masters(text: str) -> str:
    """fp8-e5m2 without FP16 masters: parameters are rounded to 1-5-2 where they are rounded to FP16, in the same way."""
    cast = r"( *)%(\d+) = mpt\.cast (%new_param.*?) : (tensor<[0-9x]*)xf32> to tensor<[0-9x]*xf16>$"
    narrow = r"\1%narrow\2 = mpt.cast \3 : \4xf32> to \4xf8E5M2>\n\1%\2 = mpt.cast %narrow\2 : \4xf8E5M2> to \4xf16>"
    return re.sub(cast, narrow, text, flags=re.M)


STOCHASTIC_MASTERS = ('policy.rounding "stochastic" of masters overflow "saturate"', "")
STOCHASTIC_GRADIENTS = ('policy.rounding "stochastic" of gradients', "")
FLOORS = (", floor_steps = array<i64: 0>, floors = array<f64: 1024.0>", "")
CASES = [
    Case("loss scale", 0.1, 300, [Side("fp32", "fp32"), Side("dynamic scale", "amp-f16"),
                                  Side("scale 1", "amp-f16", {"loss_scale": 1}, fails=True)], weight=1e-5),
    # Updates of a small learning rate are below half a unit in the last place of most FP16 parameters.
    Case("masters and stochastic rounding", 3e-4, 2000, [
        Side("fp32", "fp32"), Side("FP32 masters", "amp-f16"), Side("FP16, stochastic", "pure-f16-static"),
        Side("FP16, to nearest", "pure-f16-static", changes=(STOCHASTIC_MASTERS,), fails=True)]),
    # 1-5-2 GEMMs are behind FP32 while the loss still falls, so these runs go on until it hardly does.
    Case("stochastic rounding, 1-5-2 products", 3e-4, 6000, [
        Side("fp32", "fp32"), Side("stochastic", "fp8-e5m2"),
        Side("to nearest", "fp8-e5m2", changes=(STOCHASTIC_MASTERS, STOCHASTIC_GRADIENTS), fails=True)]),
    Case("FP16 masters of 1-5-2 products", 0.1, 300, [
        Side("fp32", "fp32"), Side("FP16, to nearest", "fp8-e5m2", changes=(STOCHASTIC_MASTERS,)),
        Side("1-5-2, to nearest", "fp8-e5m2", changes=(STOCHASTIC_MASTERS,), edit=eight_bit_masters, fails=True)]),
    # Two infinite batches before each good one halve the scale; it comes down to the floor, or to 1, where 1-5-2 flushes.
    Case("floor of the loss scale", 0.1, 300, [
        Side("fp32", "fp32"), Side("floor 1024", "fp8-e5m2", spoilt=1),
        Side("no floor", "fp8-e5m2", changes=(FLOORS,), spoilt=1, fails=True)], weight=1e-4),
    # A deep network and extreme weights of the loss: no scale is set by hand on either side. At twice this rate a run in thirty
    # leaves the range of FP16 or FP32 in one step, whatever the scales do.
    *(Case(f"adaptive scales, loss times {weight:g}", 0.01, 1000, [
        Side("fp32", "fp32"), Side("adaptive", "als-f16"), Side("dynamic scale", "amp-f16", fails=fails)], weight=weight,
        network=networks.deep, seeds=6, quiet=fails is not False)
      for weight, fails in ((1.0, False), (1e-8, "flushes"), (1e4, "skips"), (1e-12, True))),
]


def available(case: Case) -> bool:
    return all((policies.FOLDER / f"{side.policy}.mlir").exists() for side in case.sides)


def run_case(case: Case, folder: str, seed: int):
    """For each side: (side, Run, share of gradient values flushed at the initial weights, and where FP32's training ends)."""
    x, y, _, _ = tasks.digits()
    feeds = {"x": x[:64], "labels": y[:64]}
    network = functools.partial(case.network, loss_weight=case.weight)
    rows, reference = [], None
    for side in case.sides:
        steps = case.steps * (side.spoilt + 2) // side.spoilt if side.spoilt else case.steps
        run = tasks.train_digits(network, case.rate / case.weight, folder, side.file(folder), seed, steps, side.spoilt,
                                 side.edit, optimizer="sgd,momentum=0.9", loss="none", **side.flags)
        reference = reference or run
        rows.append((side, run))
        tasks.progress("")
        print(f"{case.name}, {side.what}, seed {seed}: {run.value:.2f} %", file=sys.stderr, flush=True)
    weights = [tasks.weights_of(tasks.model_for(folder, functools.partial(network, batch=64), seed)),
               reference.trainer.parameters()]
    return [(side, run, *(tasks.flushed(run.trainer, reference.trainer, feeds, at) for at in weights)) for side, run in rows]


@dataclass
class Found:
    """Of one side: means over the seeds, and steps that its runs skipped."""
    value: float
    flushed: tuple               # % at the initial weights, % where FP32's training ends
    skipped: list


def judge(case: Case, side: Side, found: Found, reference: float) -> str:
    behind = reference - found.value
    if side.fails:
        shows = {"flushes": found.flushed[1] >= 50, "skips": min(found.skipped) >= 8, True: behind >= case.gap}[side.fails]
        return ("fails, as it must" if side.fails is True else f"{side.fails}, as it must") if shows else "DOES NOT FAIL"
    if case.quiet and side is not case.sides[0] and (max(found.flushed) > 5 or max(found.skipped)):
        return "DOES FLUSH OR SKIP"
    return "trains" if behind <= case.limit else "DOES NOT TRAIN"


def report(folder: str, seeds: int, names: str, print_table) -> bool:
    """Prints the table of all cases; false when a mechanism did not do its work, or was not missed."""
    rows, fine = [], True
    for case in CASES:
        if names and not any(name.lower() in case.name.lower() for name in names.split(",")) or not available(case):
            continue
        tables = [run_case(case, folder, seed) for seed in range(max(seeds, case.seeds))]
        reference = float(np.mean([table[0][1].value for table in tables]))
        for sides in zip(*tables):
            side, values = sides[0][0], [run.value for _, run, _, _ in sides]
            flushed = tuple(float(np.mean(share)) for share in list(zip(*sides))[2:])
            found = Found(float(np.mean(values)), flushed, [run.skipped for _, run, _, _ in sides])
            verdict = judge(case, side, found, reference)
            fine &= not verdict.startswith("DOES")
            rows.append([case.name, side.what, *(f"{share:.1f} %" for share in flushed),
                         ", ".join(f"{run.loss[-1] / case.weight:.4f}" for _, run, _, _ in sides),
                         ", ".join(f"{value:.2f} %" for value in values), str(sum(found.skipped)), f"{sides[-1][1].scale:g}", verdict])
    tasks.progress("")
    print_table(["mechanism", "run", "flushed at start", "when trained", "last loss", "held out, by seed", "skipped", "last scale", ""], rows)
    if names and "accumulation" not in names:
        return fine
    print()
    return accumulation.report(tasks.digits()[0], folder, print_table) and fine
