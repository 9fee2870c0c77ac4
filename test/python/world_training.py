# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run, for tests: python world_training.py SPEC.json [RANK]

SPEC has "runs", each with "name", "library" and "below" (input name to the number of its classes), "bad" (whether
some steps have an infinity in a row); "steps", "out", and "world", the arguments of mpt.init(). Each run trains on batches that
depend on the step alone, and saves its state as OUT/NAME.state. A rank writes its results to OUT/RANK.json.
"""
import json
import os
import pathlib
import sys

import numpy as np

import mpt

if os.environ.get("MPT_BUILD"):
    mpt.use_build(os.environ["MPT_BUILD"])
BAD = {3: 5, 17: 0, 40: -1}  # step to the row whose first value is infinite


def global_batch(trainer: mpt.Trainer, ranks: int, below: dict, bad: bool, step: int) -> dict:
    """All rows of a step, of which each of `ranks` takes a part."""
    random, inputs = np.random.default_rng(step), {}
    for name, (kind, shape) in sorted(trainer.inputs("step").items()):
        if name == "learning_rate":
            continue
        shape = (shape[0] * ranks, *shape[1:])  # every input of these models is split
        if name in below:
            inputs[name] = random.integers(0, below[name], shape).astype(kind)
        else:
            inputs[name] = random.standard_normal(shape).astype(kind)
            if bad and step in BAD:
                inputs[name].reshape(shape[0], -1)[BAD[step], 0] = np.inf
    return inputs


def run(world, spec: dict, one: dict, make=None) -> dict:
    trainer = make(one["library"]) if make else mpt.Trainer(one["library"], threads=1, world=world)
    losses, skipped = [], []
    for step in range(spec["steps"]):
        inputs = global_batch(trainer, world.size, one["below"], one["bad"], step)
        mine = {name: np.split(values, world.size)[world.rank] for name, values in inputs.items()}
        result = trainer.step(mine)
        losses.append(result.loss.hex())
        skipped += [step] if result.skipped else []
    trainer.save(pathlib.Path(spec["out"]) / f"{one['name']}.state")
    trainer.close()
    return {"losses": losses, "skipped": skipped}


def main() -> None:
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    place = {"rank": int(sys.argv[2])} if len(sys.argv) > 2 else {}
    with mpt.init(**spec["world"], **place) as world:
        seen = {one["name"]: run(world, spec, one) for one in spec["runs"]}
        seen["world"] = {"rank": world.rank, "size": world.size, "transport": world.transport,
                         "bytes_sent": world.statistics().bytes_sent}
        (pathlib.Path(spec["out"]) / f"{world.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
