"""Times whole training steps of mpt and PyTorch, interleaved, and prints a table of ratios.

  training_steps.py [--models a,b] [--peers mpt:fp32,mpt:amp-f16,eager:fp32,compile:bf16,...] [--threads N] [--rounds N]

Each configuration is a child process of its own that waits for its turn; a round gives every configuration one chunk of
steps, so that all see the same machine. A chunk counts only if other processes took less than 0.2 CPU meanwhile (--noisy
counts all). Times are medians over the counted chunks; `cpu` is CPU time a step, which stays usable on a busy machine.
Peak memory is the growth of the resident set from before the model is built to the end of the run. Every step includes the
copy of its inputs, forward, backward, loss scaling and optimizer. Needs torch, onnx and onnxscript beside mpt.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
PEERS = "mpt:fp32,mpt:amp-bf16,mpt:amp-f16,eager:fp32,eager:bf16,compile:fp32,compile:bf16"


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def mpt_step(model: str, policy: str, threads: int):
    """Exports the torch module to ONNX in another process (so that torch is not resident), compiles, returns a step."""
    import numpy as np
    import mpt
    folder = os.path.join(tempfile.gettempdir(), "mpt-benchmarks", model)
    if not os.path.exists(os.path.join(folder, "model.onnx")):
        subprocess.run([sys.executable, os.path.join(HERE, "export.py"), model, folder], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "optimizer")) as f:
        optimizer = f.read()
    library = os.path.join(folder, policy)
    start = time.perf_counter()
    mpt.compile(os.path.join(folder, "model.onnx"), loss="none", optimizer=optimizer, policy=policy, out=library)
    seconds = time.perf_counter() - start
    feeds = dict(np.load(os.path.join(folder, "inputs.npz")))
    base = resident()
    trainer = mpt.Trainer(library, threads=threads)
    return (lambda: trainer.step(feeds).loss), base, seconds


def torch_step(kind: str, model: str, precision: str, threads: int):
    import torch
    import models
    torch.set_num_threads(threads)
    base = resident()
    case = models.build(model)
    name, *settings = case.optimizer.split(",")
    settings = {k.replace("-", "_"): float(v) for k, v in (s.split("=") for s in settings)}
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name](case.module.parameters(), **settings)
    args = list(case.inputs.values())
    seconds = 0.0
    module = case.module.train()
    if kind == "compile":
        module = torch.compile(module)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = module(*args)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, base, seconds


def child(peer: str, model: str, threads: int) -> None:
    kind, precision = peer.split(":")
    step, base, seconds = mpt_step(model, precision, threads) if kind == "mpt" else torch_step(kind, model, precision, threads)
    start = time.perf_counter()
    losses = [step()]
    seconds += time.perf_counter() - start
    losses += [step() for _ in range(2)]
    print(json.dumps({"ready": seconds, "losses": losses}), flush=True)
    for line in sys.stdin:
        times, cpu = [], time.process_time()
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        cpu = time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - base
        print(json.dumps({"times": times, "cpu": cpu / len(times), "busy": cpu, "peak": peak}), flush=True)


def machine_busy() -> float:
    """CPU seconds that all processes have taken since boot."""
    with open("/proc/stat") as f:
        fields = [int(v) for v in f.readline().split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Runner:
    def __init__(self, peer: str, model: str, threads: int):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", peer, "--models", model,
                                         "--threads", str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.peer, self.times, self.cpu, self.peak = peer, [], [], 0
        first = self.process.stdout.readline()
        self.failed = not first
        self.start = json.loads(first) if first else {}

    def chunk(self, steps: int, noisy: bool) -> None:
        before, start = machine_busy(), time.perf_counter()
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        result = json.loads(self.process.stdout.readline())
        others = (machine_busy() - before - result["busy"]) / (time.perf_counter() - start)
        self.peak = max(self.peak, result["peak"])
        self.cpu.append(result["cpu"])
        if noisy or others < 0.2:
            self.times += result["times"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,resnet18,resnet50,bert,gpt2")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a chunk lasts")
    parser.add_argument("--noisy", action="store_true", help="count every chunk")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        child(a.child, a.models, a.threads)
        return 0
    records = []
    print("| model | peer | median ms | cpu ms | x eager fp32 | peak MiB | first step s | first losses |\n|---|---|---|---|---|---|---|---|")
    for model in a.models.split(","):
        runners = [Runner(peer, model, a.threads) for peer in a.peers.split(",")]
        live = [r for r in runners if not r.failed]
        for r in live:
            r.chunk(1, True)
        lengths = {r.peer: max(1, int(a.seconds / max(r.times[-1], 1e-4))) for r in live}
        for r in live:
            r.times.clear(), r.cpu.clear()
        for _ in range(a.rounds):
            for r in live:
                r.chunk(lengths[r.peer], a.noisy)
        base = next((statistics.median(r.times) for r in live if r.peer == "eager:fp32" and r.times), None)
        for r in runners:
            if r.failed or not r.times:
                print(f"| {model} | {r.peer} | {'failed' if r.failed else 'no quiet chunk'} | | | | | |", flush=True)
                continue
            median = statistics.median(r.times)
            ratio = f"{median / base:.2f}" if base else ""
            losses = " ".join(f"{v:.4f}" for v in r.start["losses"])
            print(f"| {model} | {r.peer} | {1e3 * median:.1f} | {1e3 * statistics.median(r.cpu):.1f} | {ratio} | "
                  f"{r.peak / 2**20:.0f} | {r.start['ready']:.1f} | {losses} |", flush=True)
            records.append({"model": model, "peer": r.peer, "median_s": median, "cpu_s": statistics.median(r.cpu),
                            "peak_bytes": r.peak, "first_s": r.start["ready"], "losses": r.start["losses"]})
        for r in runners:
            r.close()
    if a.json:
        with open(a.json, "w") as f:
            json.dump(records, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
