# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run on the fake driver and NCCL, for tests: python nccl_training.py SPEC.json RANK

Like world_training.py, whose batches and runs it has. With "dies" in SPEC, [rank, step], that rank is killed before that step. The notes
of the fake driver go to OUT/RANK.json, or to standard error where the run fails.
"""
import json
import os
import pathlib
import signal
import sys

import mpt
import world_training
from standin import counts, standin, trainer


def mortal(made: mpt.Trainer, step: int) -> mpt.Trainer:
    """`made`, whose process is killed before step number `step`."""
    run, steps = made.step, iter(range(step))

    def dying(*inputs, **more):
        if next(steps, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*inputs, **more)
    made.step = dying
    return made


def main() -> None:
    spec, rank = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])
    library = standin()
    seen = {}
    dies, last = spec.get("dies") or (None, None)

    def make(path):
        return mortal(trainer(path, world), last) if dies == rank else trainer(path, world)
    with mpt.init(**spec["world"], rank=rank) as world:
        for one in spec["runs"]:
            try:
                seen[one["name"]] = world_training.run(world, spec, one, make)
            except mpt.Error as error:
                sys.exit(f"{type(error).__name__}: {error}; the stand-in: {library.standin_violations().decode()}")
        seen["world"] = {"rank": rank, "size": world.size, "bytes_sent": world.statistics().bytes_sent}
    noted = counts(library)
    seen["standin"] = {"violations": library.standin_violations().decode(), "captures": noted.captures, "graphs": noted.graphs,
                       "live": noted.live, "to_host": noted.to_host}
    (pathlib.Path(spec["out"]) / f"{rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
