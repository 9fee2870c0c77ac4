# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run on the stand-in, for tests: python nccl_training.py SPEC.json RANK

Like world_training.py, whose batches and runs it has; SPEC has "options" of trainers for CUDA too. What the stand-in noted goes to
OUT/RANK.json.
"""
import json
import pathlib
import sys

import mpt
import world_training
from standin import counts, standin, trainer


def main() -> None:
    spec, rank = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])
    library = standin()
    seen = {}
    with mpt.init(**spec["world"], rank=rank) as world:
        for one in spec["runs"]:
            seen[one["name"]] = world_training.run(world, spec, one, make=lambda path: trainer(path, world))
        seen["world"] = {"rank": rank, "size": world.size, "bytes_sent": world.statistics().bytes_sent}
    noted = counts(library)
    seen["standin"] = {"violations": library.standin_violations().decode(), "captures": noted.captures, "graphs": noted.graphs,
                       "live": noted.live, "to_host": noted.to_host}
    (pathlib.Path(spec["out"]) / f"{rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
