#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes of one thread beside one process of two: ranks.py LIBRARY INPUTS.npz [ROUNDS [STEPS]]

LIBRARY is compiled with --replicas=2, and INPUTS has the model's own inputs, which both replicas take. A round trains STEPS steps with each, in
turns, in processes of their own; the last line has the medians over rounds, and the communication that the step hid.
"""
import json
import statistics
import subprocess
import sys
import time

import numpy as np

import mpt

TOKEN, WARM = "ranks of this machine", 2


def train(library, inputs, threads, steps, size, rank, port):
    """Seconds of a step, the median, and the share of communication that nobody waited for."""
    with mpt.init(rank=rank, size=size, address="127.0.0.1", port=port, token=TOKEN) as world, \
            mpt.Trainer(library, threads=threads, world=world) as trainer:
        given = dict(np.load(inputs))
        batch = {name: np.concatenate([given[name]] * (2 // size)) if shape and shape[0] != given[name].shape[0] else given[name]
                 for name, (_, shape) in trainer.inputs().items() if name in given}
        took = []
        for step in range(WARM + steps):
            if step == WARM:
                before = world.statistics()
            start = time.perf_counter()
            trainer.step(batch)
            took.append(time.perf_counter() - start)
        after = world.statistics()
        travelled = after.seconds - before.seconds
        return {"seconds": statistics.median(took[WARM:]), "bytes": (after.bytes_sent - before.bytes_sent) / steps,
                "hidden": (after.hidden_seconds - before.hidden_seconds) / travelled if travelled else None}


def run(library, inputs, processes, threads, steps, port):
    words = [sys.executable, __file__, "--rank", library, inputs, threads, steps, processes]
    ranks = [subprocess.Popen([str(word) for word in (*words, rank, port)], stdout=subprocess.PIPE, text=True)
             for rank in range(processes)]
    return [json.loads(rank.communicate()[0]) for rank in ranks][0]


def main(library, inputs, rounds=5, steps=10):
    found = {1: [], 2: []}
    for i in range(int(rounds)):
        for processes in (2, 1):
            found[processes].append(run(library, inputs, processes, 2 // processes, int(steps), 29700 + i))
    middle = {n: statistics.median(one["seconds"] for one in each) for n, each in found.items()}
    hidden = statistics.median(one["hidden"] for one in found[2])
    print(f"2 processes {middle[2] * 1e3:.2f} ms, 2 threads {middle[1] * 1e3:.2f} ms, ratio {middle[2] / middle[1]:.3f}; "
          f"{found[2][0]['bytes']:.0f} bytes a step, {hidden:.2f} of the communication hidden")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        library, inputs, *numbers = sys.argv[2:]
        print(json.dumps(train(library, inputs, *map(int, numbers))))
    elif len(sys.argv) < 3:
        sys.exit(__doc__)
    else:
        main(*sys.argv[1:])
