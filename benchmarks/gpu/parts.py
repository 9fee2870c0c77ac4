# SPDX-License-Identifier: Apache-2.0
"""The bundle's parts in the order in which they tell most, each a list of commands that can run by themselves."""
from __future__ import annotations

import pathlib
import shutil
import sys
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["bert-gpu", "resnet50-gpu", "gpt2-gpu", "gpt4096-gpu"]
PARTS = {
    "probe": "the machine: driver, libraries, bandwidth, GEMMs",
    "smoke": "two small models in FP32 and BF16, from machine code and compiled by the driver",
    "conformance": "every operation and gradient against the interpreter's stored results",
    "training": "small models' losses against the processor's, every policy",
    "speed-bf16": "whole steps in BF16 beside PyTorch eager and compiled",
    "profile": "time and bandwidth of every kernel and library call, BF16",
    "speed-f16": "the same in FP16",
    "speed-fp8": "the 8-bit policies",
    "sanitizer": "compute-sanitizer over part of the conformance suite",
    "speed-fp32": "whole steps in FP32",
    "speed-rest": "als-f16 and fp8-e5m2",
    "ncu": "hardware counters of the kernels of one step",
}


@dataclass
class Item:
    part: str
    name: str
    command: list
    limit: float  # seconds
    options: dict = field(default_factory=dict)  # of trainers
    needs: str = ""  # a program

    @property
    def key(self) -> str:
        return f"{self.part}/{self.name}"


def items(tiny: bool, scratch: str) -> list:
    found = []

    def script(part, name, file, *arguments, limit=180.0, prefix=(), needs="", **options):
        found.append(Item(part, name, [*prefix, sys.executable, str(HERE / file), *map(str, arguments)], limit, options, needs))

    data = HERE / "data"
    libraries = sorted(p for p in data.glob("conformance/*") if p.is_dir())
    training = sorted(p.parent for p in data.glob("training/*/*/expected.json"))
    script("probe", "machine", "probe.py", limit=90)
    smoke = [p for p in training if p.parent.name.startswith("own-") and p.name in ("fp32", "amp-bf16")]
    if smoke:
        script("smoke", "machine-code", "conform.py", *smoke, limit=120, synchronous=1)
        script("smoke", "graph", "conform.py", *smoke, limit=120)
        script("smoke", "ptx", "conform.py", *smoke, limit=120, ptx=1)
        script("smoke", "no-cudnn", "conform.py", *smoke, limit=120, cudnn="none")
    for kind in ("f32", "f16", "bf16"):
        chosen = [p for p in libraries if p.name.endswith("-" + kind)]
        if chosen:
            script("conformance", kind, "conform.py", "--jobs", 4, *chosen, limit=240)
    for policy in dict.fromkeys(p.name for p in training):
        script("training", policy, "conform.py", "--jobs", 4, *[p for p in training if p.name == policy], limit=240)

    def speed(part, peers, models=MODELS):
        for model in models:
            for peer in peers:
                kind, kept = peer.split(":")
                if kind != "mpt" and (data / "speed").is_dir() or (data / "speed" / model / kept).is_dir():
                    script(part, f"{model}/{peer}", "bench.py", peer, model, *(["--tiny"] if tiny else []), "--scratch", scratch,
                           limit=300 if kind == "compile" else 180)

    present = [m for m in MODELS if (data / "speed" / m).is_dir()]
    speed("speed-bf16", ["mpt:amp-bf16", "eager:bf16", "compile:bf16"], present)
    for model in present:
        for policy in ("amp-bf16",):
            if (data / "speed" / model / policy).is_dir():
                script("profile", f"{model}/{policy}", "bench.py", f"mpt:{policy}", model, "--profile", "--scratch", scratch)
    speed("speed-f16", ["mpt:amp-f16", "eager:f16", "compile:f16"], present)
    speed("speed-fp8", ["mpt:fp8-hybrid", "mpt:fp8-current"], sorted(present, key=lambda m: m != "gpt4096-gpu"))
    for tool in ("memcheck", "racecheck"):
        chosen = [p for p in libraries if p.name.endswith("-f32")] if tool == "memcheck" else \
            [p for p in libraries if p.name.split("-")[0] in ("reduce", "norm", "norm_backward", "training", "shape") and p.name.endswith("-f32")]
        if chosen:
            script("sanitizer", tool, "conform.py", "--jobs", 0, *chosen, limit=300, needs="compute-sanitizer",
                   prefix=("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"))
    speed("speed-fp32", ["mpt:fp32", "eager:fp32", "compile:fp32"], present)
    speed("speed-rest", ["mpt:als-f16", "mpt:fp8-e5m2"], present)
    for model in present[:1]:
        script("ncu", f"{model}/amp-bf16", "bench.py", "mpt:amp-bf16", model, "--tiny", "--scratch", scratch, limit=300, needs="ncu",
               prefix=("ncu", "--clock-control", "none", "--launch-skip", "300", "--launch-count", "150", "--csv", "--metrics",
                       "gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,"
                       "sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread"),
               eager=1)
    order = {part: i for i, part in enumerate(PARTS)}
    found.sort(key=lambda item: order[item.part])
    for item in found:
        item.command = [shutil.which(item.command[0]) or item.command[0], *item.command[1:]]
    return found
