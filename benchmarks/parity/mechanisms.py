"""What each mechanism of mixed precision is for: the same training with it and without it.

Every case trains through emitted libraries and names the policy that has the mechanism and the one that has not.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass, field

import accumulation
import networks
import tasks


@dataclass
class Side:
    what: str
    policy: str
    flags: dict = field(default_factory=dict)


@dataclass
class Case:
    name: str
    network: object              # a function from path, batch and seed to a model with its own loss
    weight: float                # what the network multiplies its loss by
    rate: float                  # learning rate
    steps: int
    sides: list                  # FP32, with the mechanism, without it
    gap: float = 30.0            # points of accuracy that the last side must lose to the one before


def loss_scale_case(weight: float) -> Case:
    """A loss of small weight with a learning rate that makes up for it: in exact arithmetic the weight changes nothing."""
    return Case(f"loss scale (loss weight {weight:g})", functools.partial(networks.lenet, loss_weight=weight, dropout=0), weight,
                0.1 / weight, 300, [Side("fp32", "fp32"), Side("dynamic scale", "amp-f16"),
                                    Side("scale 1", "amp-f16", {"loss_scale": 1})])


CASES = [loss_scale_case(1e-5)]


def run_case(case: Case, folder: str, seed: int):
    """[(side, Run, share of gradient values flushed at the initial weights, and at those that FP32 ends with)] for each side."""
    x, y, _, _ = tasks.digits()
    feeds = {"x": x[:64], "labels": y[:64]}
    rows, reference = [], None
    for side in case.sides:
        run = tasks.train_digits(case.network, case.rate, folder, side.policy, seed, case.steps, optimizer="sgd,momentum=0.9",
                                 loss="none", **side.flags)
        reference = reference or run
        rows.append((side, run))
    weights = [tasks.weights_of(tasks.model_for(folder, functools.partial(case.network, batch=64), seed)), reference.trainer.parameters()]
    table = []
    for side, run in rows:
        table.append((side, run, *(tasks.flushed(run.trainer, reference.trainer, feeds, at) for at in weights)))
    return table


def report(folder: str, seeds: int, print_table) -> bool:
    """Prints the table of all cases; false when switching a mechanism off did not show."""
    rows, fine = [], True
    for case in CASES:
        for seed in range(seeds):
            table = run_case(case, folder, seed)
            for side, run, start, trained in table:
                rows.append([case.name, str(seed), side.what, f"{start:.1f} %", f"{trained:.1f} %", f"{run.loss[-1] / case.weight:.4f}",
                             f"{run.value:.2f} %", str(run.skipped)])
            with_it, without = table[-2][1].value, table[-1][1].value
            fine &= with_it - without >= case.gap and table[0][1].value - with_it <= 1.0
    tasks.progress("")
    print_table(["mechanism", "seed", "run", "flushed at start", "flushed when trained", "loss", "held out", "skipped"], rows)
    losses = accumulation.losses(tasks.digits()[0], folder)
    print_table(["accumulators of amp-bf16", "loss on sums of 4,096 terms"], [[k, f"{v:.2e}"] for k, v in losses.items()])
    return fine and losses["bf16"] > 100 * losses["f32"]
