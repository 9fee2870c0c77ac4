# SPDX-License-Identifier: Apache-2.0
"""Many cases a process, in few processes: a crash or a hang in one case is a result, not the end of the run."""
import multiprocessing
import time
from multiprocessing.connection import wait

CONTEXT = multiprocessing.get_context("spawn")
RECYCLE = 200  # cases after which a process is replaced, so that the memory that libraries leak stays small


def _serve(pipe, work, shared):
    while (item := pipe.recv()) is not None:
        pipe.send(work(item, shared))


def run_all(items, work, shared, *, jobs: int, limit: float, died, report=None) -> list:
    """[work(item, shared)] in the items' order. A process that dies, or takes longer than `limit` seconds over an item, gives
    died(item, why) for it and is replaced."""
    results, waiting, slots = [None] * len(items), list(range(len(items)))[::-1], {}

    def start():
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_serve, args=(theirs, work, shared), daemon=True)
        process.start()
        theirs.close()
        return {"process": process, "pipe": ours, "item": None, "count": 0}

    def hand(slot):
        slot["item"] = waiting.pop() if waiting else None
        slot["since"] = time.monotonic()
        slot["pipe"].send(items[slot["item"]] if slot["item"] is not None else None)

    def stop(slot):
        slot["process"].kill()
        slot["process"].join()
        slots.pop(slot["pipe"])

    def begin():
        slot = start()
        slots[slot["pipe"]] = slot
        hand(slot)

    def finish(slot, result):
        results[slot["item"]] = result
        if report:
            report(result)

    for _ in range(min(jobs, len(items))):
        begin()
    while any(slot["item"] is not None for slot in slots.values()):
        ready = wait(list(slots), timeout=1)
        for pipe in ready:
            slot = slots[pipe]
            try:
                finish(slot, pipe.recv())
            except (EOFError, OSError):  # closed, or reset
                if slot["item"] is not None:
                    slot["process"].join()
                    finish(slot, died(items[slot["item"]], f"died of signal {-slot['process'].exitcode}"))
                stop(slot)
                if waiting:
                    begin()
                continue
            slot["count"] += 1
            if slot["count"] >= RECYCLE and waiting:
                stop(slot)
                begin()
            else:
                hand(slot)
        for slot in list(slots.values()):
            if slot["item"] is not None and time.monotonic() - slot["since"] > limit:
                finish(slot, died(items[slot["item"]], f"took longer than {limit:g} s"))
                stop(slot)
                if waiting:
                    begin()
    for slot in list(slots.values()):
        stop(slot)
    return results
