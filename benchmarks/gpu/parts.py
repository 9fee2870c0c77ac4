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
    "digits": "one model trained until it recognizes digits",
    "speed-first": "three models in BF16 beside PyTorch compiled, in turns",
    "training": "small models' losses against the processor's, every policy",
    "speed-bf16": "whole steps in BF16, all searched, beside PyTorch eager, compiled and tuned with CUDA graphs",
    "profile": "time and bandwidth of every kernel and library call, BF16",
    "products": "every GEMM of the 8-bit policy in 16 and in 8 bits: the tables that ,measure takes",
    "speed-f16": "the same in FP16",
    "speed-fp8": "the 8-bit policies",
    "sanitizer": "compute-sanitizer over part of the conformance suite",
    "speed-fp32": "whole steps in FP32 without TF32 on either side, and with it on both",
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
    least: float = 40  # seconds below which it is not started

    @property
    def key(self) -> str:
        return f"{self.part}/{self.name}"


def limit_of(peer: str, limit: float) -> float:
    """Seconds until a peer of duel.py is ready; max-autotune times many kernels of each product."""
    return limit * (2 if peer.startswith("autotune") else 1)


def items(tiny: bool, scratch: str) -> list:
    found = []

    def script(part, name, file, *arguments, limit=180.0, least=40.0, prefix=(), needs="", **options):
        found.append(Item(part, name, [*prefix, sys.executable, str(HERE / file), *map(str, arguments)], limit, options, needs, least))

    data = HERE / "data"
    libraries = sorted(p for p in data.glob("conformance/*") if p.is_dir())
    training = sorted(p.parent for p in data.glob("training/*/*/expected.json"))
    script("probe", "machine", "probe.py", limit=90)
    smoke = [p for p in training if p.parent.name.startswith("own-") and p.name in ("fp32", "amp-bf16")]
    if smoke:
        script("smoke", "machine-code", "conform.py", *smoke, limit=120, synchronous=1, search="off")
        script("smoke", "graph", "conform.py", *smoke, limit=120, search="off")
        script("smoke", "ptx", "conform.py", *smoke, limit=120, ptx=1, search="off")
        script("smoke", "no-cudnn", "conform.py", *smoke, limit=120, cudnn="none", search="off")
    for kind in ("f32", "f16", "bf16"):
        chosen = [p for p in libraries if p.name.endswith("-" + kind)]
        if chosen:
            script("conformance", kind, "conform.py", "--jobs", 4, *chosen, limit=240, search="off")
    for folder in sorted(p.parent for p in data.glob("digits/*/expected.json")):
        script("digits", folder.name, "digits.py", folder, limit=120)
    for policy in dict.fromkeys(p.name for p in training):
        script("training", policy, "conform.py", "--jobs", 4, *[p for p in training if p.name == policy], limit=240)

    def speed(part, groups, models=MODELS, limit=200.0, **options):
        """One item a group of peers and model. Its peers run in turns and hold the GPU's memory at once: three of 16 bits at most, two of FP32."""
        for name, peers in groups.items():
            for model in models:
                there = [peer for peer in peers if not peer.startswith("mpt") or (data / "speed" / model / peer.split(":")[1].split("+")[0]).is_dir()]
                if there and there[0] == peers[0]:  # the one that is looked at
                    script(part, f"{model}/{name}", "duel.py", model, *there, *(["--tiny"] if tiny else []), "--scratch", scratch, "--limit", limit,
                           limit=sum(limit_of(peer, limit) for peer in there) + 150, least=90, **options)

    def beside(own, kind):
        return {way: [own, f"{way}:{kind}"] for way in ("compile", "eager", "autotune")}

    present = [m for m in MODELS if (data / "speed" / m).is_dir()]
    speed("speed-first", {"compile": ["mpt:amp-bf16", "compile:bf16"]}, [m for m in present if m != "gpt4096-gpu"], search="quick")
    speed("speed-bf16", beside("mpt:amp-bf16", "bf16"), present, search="full")
    for model in present:
        for policy in ("amp-bf16",):
            if (data / "speed" / model / policy).is_dir():
                script("profile", f"{model}/{policy}", "bench.py", f"mpt:{policy}", model, "--profile", "--scratch", scratch)
    for folder in sorted(p for p in data.glob("products/*/*") if p.is_dir()):
        script("products", f"{folder.parent.name}/{folder.name}", "products.py", folder, *(["--tiny"] if tiny else []), limit=300, search="full")
    speed("speed-f16", beside("mpt:amp-f16", "f16"), present, search="full")
    eight = ["mpt:fp8-hybrid", "mpt:fp8-hybrid+fast-sums", "mpt:fp8-current"]
    speed("speed-fp8", {peer.split(":")[1]: [peer, "mpt:amp-bf16", "eager:bf16"] for peer in eight}, sorted(present, key=lambda m: m != "gpt4096-gpu"), search="full")
    for tool in ("memcheck", "racecheck"):
        chosen = [p for p in libraries if p.name.endswith("-f32")] if tool == "memcheck" else \
            [p for p in libraries if p.name.split("-")[0] in ("reduce", "norm", "norm_backward", "training", "shape") and p.name.endswith("-f32")]
        if chosen:
            script("sanitizer", tool, "conform.py", "--jobs", 0, *chosen, limit=300, needs="compute-sanitizer",
                   prefix=("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"), search="off")
    # Own kernels of convolutions, which run where cuDNN is not used; small ones, each in the types it has.
    own = [p for p in libraries if p.name.startswith(("conv", "contractions"))] + [p for p in smoke if p.parent.name == "own-cnn"]
    for way in ("implicit", "columns"):
        if own:
            script("sanitizer", f"racecheck-convolutions-{way}", "conform.py", "--jobs", 0, *own, limit=300, needs="compute-sanitizer",
                   prefix=("compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9", "--print-limit", "20"), search="off", cudnn="none",
                   convolutions=way)
    fp32 = {"fp32": "mpt:fp32", "tf32": "mpt:fp32+tf32"}
    speed("speed-fp32", {f"{kind}-{way}": [own, f"{way}:{kind}"] for way in ("compile", "eager") for kind, own in fp32.items()}, present, search="full")
    speed("speed-rest", {"als-f16": ["mpt:als-f16", "eager:f16"], "fp8-e5m2": ["mpt:fp8-e5m2", "mpt:amp-bf16", "eager:bf16"]}, present, search="full")
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
