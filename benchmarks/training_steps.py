# SPDX-License-Identifier: Apache-2.0
"""Times whole training steps of mpt and PyTorch, interleaved, and prints tables of times, ratios and shares of the limit.

  training_steps.py [--models a,b] [--peers mpt:fp32,mpt:amp-f16,eager:fp32,compile:bf16,...] [--threads N] [--rounds N]

Each configuration is a child process of its own that waits for its turn; a round gives every configuration one chunk of
steps, so that all see the same machine. A round waits for a quiet second (at most --wait seconds), and a chunk counts only if
other processes took less than 0.2 CPU meanwhile and GEMMs just before and after it ran at --rate of the best rate of them all;
rounds are repeated, up to five times as many, until every configuration has --rounds chunks that count (--noisy waits for
nothing and counts all). The rate shows slowness that /proc does not: on a virtual machine whose two processors are for some seconds the
two threads of one core, steps are bound by half the arithmetic and no other process is seen. Configurations whose step takes longer than --slow
seconds (PyTorch in BF16 on processors without such instructions takes minutes) are timed once, and given up after --patience
seconds. Times are medians over the counted chunks; `cpu` is CPU time a step, which stays usable on a busy
machine. Peak memory is the growth of the resident set from before the model is built to the end of the run. Every step
includes the copy of its inputs, forward, backward, loss scaling and optimizer.

`x best PyTorch` is the ratio to the faster of PyTorch's two (eager and compile) in the same precision, with mpt's FP16 held
against PyTorch's BF16; `x own fp32` is the ratio to mpt's own FP32 step; both of median times, with ratios of CPU times after
the slash. `of limit` is the share of the least possible time that benchmarks/limits.py derives from the machine's GEMMs and
bandwidth, measured before the models. Needs torch, onnx and onnxscript beside mpt, and a C++ compiler for torch.compile.
The peer ort:fp32 is ONNX Runtime Training and runs in the Python that --ort-python names, with onnxruntime-training==1.19.2,
onnx==1.17.0, numpy<2, torch and onnxscript; jax:fp32 in the one of --jax-python, with jax and torch. The ratios of the others do
not count these two.
"""
from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import limits  # noqa: E402
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


def ort_step(model: str, precision: str, threads: int):
    import ort_training
    base, start = resident(), time.perf_counter()
    step = ort_training.step(model, os.path.join(tempfile.gettempdir(), "mpt-benchmarks", "ort", model), threads)
    return step, base, time.perf_counter() - start


def jax_step(model: str, precision: str, threads: int):
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax_training
    base, start = resident(), time.perf_counter()
    return jax_training.step(model), base, time.perf_counter() - start


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
    build = {"mpt": mpt_step, "ort": ort_step, "jax": jax_step}.get(kind, functools.partial(torch_step, kind))
    step, base, seconds = build(model, precision, threads)
    start = time.perf_counter()
    losses = [step()]
    first = time.perf_counter() - start
    seconds += first
    if first < 30:
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


def wait_for_quiet(seconds: float) -> None:
    """Returns after a second in which the machine did next to nothing, or after `seconds`."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before, start = machine_busy(), time.perf_counter()
        time.sleep(1)
        if (machine_busy() - before) / (time.perf_counter() - start) < 0.2:
            return


class Rate:
    """How fast GEMMs are now, asked of a child of its own that is idle otherwise."""

    def __init__(self, threads: int):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", "rate"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
        self.best = max(self.now() for _ in range(5))

    def now(self) -> float:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve_rates() -> None:
    """Answers each line with the GFLOP/s of the runtime's FP32 GEMMs, over about 60 ms."""
    run = limits.own_product(limits.FLOAT32)
    run()
    for _ in sys.stdin:
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < 0.06:
            run()
            count += 1
        print(2e-9 * limits.EXTENT**3 * count / (time.perf_counter() - start), flush=True)


class Runner:
    def __init__(self, peer: str, model: str, threads: int, a):
        env = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ, "OMP_NUM_THREADS": str(threads)}
        python = {"ort": a.ort_python, "jax": a.jax_python}.get(peer.split(":")[0], sys.executable)
        self.process = subprocess.Popen([python, os.path.abspath(__file__), "--child", peer, "--models", model,
                                         "--threads", str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.peer, self.times, self.cpu, self.peak, self.counted = peer, [], [], 0, 0
        self.failed = ""
        self.start = self.reply(a.patience)

    def reply(self, patience: float) -> dict:
        """The child's next reply; nothing when it ends or takes too long, and then it is gone."""
        ready, _, _ = select.select([self.process.stdout], [], [], patience)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.failed = "failed" if ready else f"over {patience:.0f} s"
        self.process.kill()
        return {}

    @property
    def precision(self) -> str:
        return "fp32" if self.peer.endswith("fp32") else "bf16"

    @property
    def median(self) -> float:
        return statistics.median(self.times) if self.times else 0.0

    @property
    def cpu_median(self) -> float:
        return statistics.median(self.cpu) if self.cpu else 0.0

    def chunk(self, steps: int, patience: float, rate=None, least: float = 0.0) -> None:
        """Runs so many steps; without a `rate`, or with one of `least` of its best on both sides, they count."""
        rates = [rate.now()] if rate else []
        before, start = machine_busy(), time.perf_counter()
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        result = self.reply(patience)
        if not result:
            return
        others = (machine_busy() - before - result["busy"]) / (time.perf_counter() - start)
        self.peak = max(self.peak, result["peak"])
        self.cpu.append(result["cpu"])
        rates += [rate.now()] if rate else []
        if not rate or others < 0.2 and self.is_even(rate, rates, least):
            self.times += result["times"]
            self.counted += 1

    @staticmethod
    def is_even(rate, rates: list, least: float) -> bool:
        rate.best = max(rate.best, *rates)
        return min(rates) >= least * rate.best

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def run_rounds(runners: list, a, rate) -> None:
    """A first chunk of one step says how many steps make a chunk; it counts only where the step is slow."""
    lengths, live = {}, []
    for r in runners:
        if not r.failed:
            r.chunk(1, a.patience)
        if r.failed or r.times[-1] > a.slow:
            continue
        lengths[r] = max(1, int(a.seconds / max(r.times[-1], 1e-4)))
        r.times.clear(), r.cpu.clear()
        r.counted = 0
        live.append(r)
    for _ in range(5 * a.rounds if rate else a.rounds):
        due = [r for r in live if r.counted < a.rounds and not r.failed]
        if not due:
            return
        if rate:
            wait_for_quiet(a.wait)
        for r in due:
            r.chunk(lengths[r], a.patience, rate, a.rate)


def ratio(r: Runner, others: list) -> str:
    """Of median and of CPU time to the fastest of `others`."""
    times, cpus = [o.median for o in others if o.median], [o.cpu_median for o in others if o.cpu_median]
    return " / ".join(f"{value / min(known):.2f}" if value and known else "-"
                      for value, known in ((r.median, times), (r.cpu_median, cpus)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,resnet18,resnet50,bert,gpt2")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a chunk lasts")
    parser.add_argument("--slow", type=float, default=10.0, help="seconds a step from which one is enough")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which a configuration is given up")
    parser.add_argument("--wait", type=float, default=30.0, help="seconds to wait for a quiet second before a round")
    parser.add_argument("--rate", type=float, default=0.85, help="share of the best rate of GEMMs from which a chunk counts")
    parser.add_argument("--noisy", action="store_true", help="count every chunk")
    parser.add_argument("--ort-python", default=sys.executable, help="the Python with ONNX Runtime Training, for ort:fp32")
    parser.add_argument("--jax-python", default=sys.executable, help="the Python with JAX, for jax:fp32")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child == "limits":
        found = limits.measure(a.threads)
        work = {model: vars(limits.work_of(model)) for model in a.models.split(",")}
        print(json.dumps({"limits": vars(found), "work": work}))
        return 0
    if a.child == "rate":
        serve_rates()
        return 0
    if a.child:
        child(a.child, a.models, a.threads)
        return 0
    if not a.noisy:
        wait_for_quiet(a.wait)
    facts = json.loads(subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", "limits", "--models", a.models, "--threads", str(a.threads)],
        env=dict(os.environ, OMP_NUM_THREADS=str(a.threads)), check=True, stdout=subprocess.PIPE, text=True).stdout)
    machine = limits.Limits(**facts["limits"])
    print(f"{a.threads} threads; GEMMs at {machine.f32 * 1e-9:.0f} GFLOP/s in FP32, {machine.narrow * 1e-9:.0f} at best; "
          f"memory at {machine.bandwidth * 1e-9:.1f} GB/s\n")
    print("| model | peer | median ms | cpu ms | x best PyTorch | x own fp32 | of limit | peak MiB | first step s | first losses | chunks |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|")
    records, rate = [], None if a.noisy else Rate(a.threads)
    for model in a.models.split(","):
        runners = [Runner(peer, model, a.threads, a) for peer in a.peers.split(",")]
        run_rounds(runners, a, rate)
        live = [r for r in runners if not r.failed]
        for r in runners:
            if r.failed:
                print(f"| {model} | {r.peer} | {r.failed} |" + " |" * 8, flush=True)
                continue
            torch_peers = [o for o in live if o.peer.startswith(("eager:", "compile:")) and o.precision == r.precision]
            own = [o for o in live if o.peer == "mpt:fp32"]
            least = machine.seconds(limits.Work(**facts["work"][model]), r.precision)
            median = f"{1e3 * r.median:.1f}" if r.times else "no quiet chunk"
            share = f"{100 * least / r.median:.0f} %" if r.times else ""
            losses = " ".join(f"{v:.4f}" for v in r.start["losses"])
            print(f"| {model} | {r.peer} | {median} | {1e3 * r.cpu_median:.1f} | {ratio(r, torch_peers)} | "
                  f"{ratio(r, own) if r.peer.startswith('mpt:') else ''} | {share} | {r.peak / 2**20:.0f} | {r.start['ready']:.1f} | "
                  f"{losses} | {r.counted} |", flush=True)
            records.append({"model": model, "peer": r.peer, "median_s": r.median, "cpu_s": r.cpu_median, "limit_s": least,
                            "peak_bytes": r.peak, "first_s": r.start["ready"], "losses": r.start["losses"], "chunks": r.counted})
        for r in runners:
            r.close()
    if rate:
        print(f"\nGEMMs beside counted chunks: {rate.best:.0f} GFLOP/s at best, at least {a.rate:.2f} of it")
        rate.close()
    if a.json:
        with open(a.json, "w") as f:
            json.dump({**facts, "records": records}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
