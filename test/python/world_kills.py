# SPDX-License-Identifier: Apache-2.0
"""Kills random ranks at random moments of start-up and training, with collectives of all sizes under way.

    python world_kills.py COUNT [FIRST_SEED]    prints how many worlds ended as they should, and how long survivors took
"""
import random
import sys
import time

from world_processes import TOLD, Ranks

TIMEOUT = 2  # seconds, the stated time in tests of faults
START = 10   # and the stated time of a start
ENDLESS = {"steps": 10**9, "elements": 20000, "timeout_seconds": TIMEOUT}
LOST = 11  # MPT_PEER_LOST


def kill_once(seed: int) -> tuple[float, bool]:
    """Starts a world and kills one rank. The seconds that the survivors took to return, and whether training had begun."""
    choice = random.Random(seed)
    size, early = choice.choice([2, 3, 4]), choice.random() < 0.25
    victim = choice.randrange(size)
    keys = ENDLESS | {"replicas": 12, "elements": choice.choice([1, 50, 5000, 500000]), "start_seconds": START}
    with Ranks("train", size, **keys) as ranks:
        if not early:
            ranks.wait_for_training()
        time.sleep(choice.random() * 0.3)
        ranks.processes[victim].kill()
        killed = time.monotonic()
        others = [rank for rank in range(size) if rank != victim]
        # A rank that never came is waited for as long as a start may take; one that came is missed at once.
        results = ranks.results(others, (START if early else 0) + TIMEOUT + TOLD)
        for status, _, errors in results:
            assert status == LOST and (f"rank {victim} " in errors or early), (seed, status, errors)
    return time.monotonic() - killed, not early


def main():
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wrong, times = [], []
    for seed in range(first, first + count):
        try:
            seconds, trained = kill_once(seed)
            if trained:
                times.append(seconds)
        except Exception as error:  # of one world; the others go on
            wrong.append(seed)
            print(f"seed {seed}: {error}", flush=True)
    times.sort()
    print(f"{count - len(wrong)} of {count} worlds ended as they should; survivors of kills in training returned after "
          f"{times[len(times) // 2]:.3f} s (median), {times[-1]:.3f} s (longest)")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
