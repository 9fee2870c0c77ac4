#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory, disk and safety of saving large models as .onnx: one table by one command.

    save_large.py [--gigabytes 3] [--inline 1.75] [--kills 5] [--folder PLACE]

A chain of products is compiled for training, and its weights saved from a trainer in a process of its own: `memory` is how far
anonymous memory (RssAnon) rises above its level before the save, looked at every 2 ms; `disk` the largest sum of blocks of new files,
temporary ones among them, over the model's bytes. Then the command, mpt-opt --state --emit=onnx, by its peak of all memory. Then saves of
other values over that file, killed at random moments: every time it is the old model or the new one, whole.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import onnx

import compile_time
import spawn

SAVER = """
import os, pathlib, sys, threading, time
sys.path[:0] = {path!r}
import mpt
library, target, change = sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3])
trainer = mpt.Trainer(library, threads=1)
if change:
    for name in [t.name.decode() for t in trainer._parameters()]:
        value = trainer.parameter(name)
        value += change
        trainer.set_parameter(name, value)
        del value
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
def disk():
    total = 0
    for entry in os.scandir(target.parent):
        try:
            total += entry.stat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total
memory, blocks, done = [anonymous()], [disk()], False
def look():
    while not done:
        memory.append(anonymous()), blocks.append(disk())
        time.sleep(0.002)
watch = threading.Thread(target=look)
watch.start()
print("ready", flush=True)
start = time.process_time(), time.time()
trainer.save_onnx(target)
seconds = time.process_time() - start[0], time.time() - start[1]
done = True
watch.join()
print(max(memory) - memory[0], max(blocks) - blocks[0], *seconds)
"""


def chain(gigabytes, path, inline):
    compile_time.external(gigabytes, path)
    if inline:
        model = onnx.load(path)
        onnx.save(model, path)
        os.remove(path + ".data")


def samples(path) -> list:
    """Bytes from the beginning, middle and end of each weight."""
    model, found = onnx.load(path, load_external_data=False), []
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data"):
            size, read = len(tensor.raw_data), lambda at, data=tensor.raw_data: data[at:at + 4096]
        else:
            entry = {e.key: e.value for e in tensor.external_data}
            size = int(entry["length"])

            def read(at, entry=entry):
                with open(pathlib.Path(path).parent / entry["location"], "rb") as file:
                    file.seek(int(entry["offset"]) + at)
                    return file.read(4096)
        found += [read(at) for at in (0, size // 2 & ~3, size - 4096)]
    return found


def saver(library, target, change):
    return subprocess.Popen([sys.executable, "-c", SAVER.format(path=sys.path), library, target, str(change)], stdout=subprocess.PIPE, text=True)


def row(label, gigabytes, inline, folder, kills):
    import mpt
    path, library, out = (os.path.join(folder, name) for name in ("in.onnx", "lib", "out"))
    spawn.aside(lambda: chain(gigabytes, path, inline))
    os.mkdir(out)
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.startswith("in.onnx"))
    mpt.compile(path, loss="mse", optimizer="sgd", bind={"N": 1}, out=library, quiet=True)
    template = os.path.getsize(os.path.join(library, "in.template"))
    target = os.path.join(out, "trained.onnx")
    child = saver(library, target, 0)
    _, line = child.stdout.readline(), child.stdout.readline()
    memory, disk, cpu, wall = map(float, line.split())
    if child.wait():
        raise SystemExit(f"{label}: the save failed")
    same = samples(path) == samples(target)
    old, killed, renewed = samples(target), 0, 0
    for _ in range(kills):
        child = saver(library, target, 1)
        child.stdout.readline()
        time.sleep(random.uniform(0, 1.1 * wall))
        child.send_signal(signal.SIGKILL)
        child.wait()
        now = samples(target)
        if now != old:
            if any(a == b for a, b in zip(now, old)):
                raise SystemExit(f"{label}: a killed save left a mixture")
            onnx.checker.check_model(target)
            old, renewed = now, renewed + 1
        killed += 1
    for name in os.listdir(out):
        os.remove(os.path.join(out, name))
    state = os.path.join(library, "in.safetensors")
    status, seconds, peak, said = spawn.measure([mpt._native.find_compiler(), path, f"--state={state}", "--emit=onnx", "--quiet", "-o", target])
    if status:
        raise SystemExit(f"{label}: {said.strip()}")
    same &= samples(path) == samples(target)
    print(f"| {label} | {size / 1e9:.2f} GB | {template / 1e3:.1f} KB | {memory:.1f} | {disk / size:.3f} | {cpu:.1f}, {wall:.1f} | {peak:.0f} | {seconds:.1f} | "
          f"{'yes' if same else '**no**'} | {killed - renewed} old, {renewed} new |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=3)
    parser.add_argument("--inline", type=float, default=1.75)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--folder", help="where the files go")
    options = parser.parse_args()
    print("| weights | model | template | trainer: MB | disk | s of CPU, wall | command: peak MB | s of CPU | same values | killed saves left |\n|" + "---|" * 10)
    for label, gigabytes, inline in (("external data", options.gigabytes, False), ("in the file", options.inline, True)):
        if gigabytes:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                row(label, gigabytes, inline, folder, options.kills)


if __name__ == "__main__":
    main()
