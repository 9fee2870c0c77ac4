# SPDX-License-Identifier: Apache-2.0
"""The bundle's items: commands that can run by themselves, each with the seconds it is expected to take, in parts; and two plans of
items across parts, `first`, and `second`, which follows from its results."""
from __future__ import annotations

import json
import pathlib
import shutil
import sys
from dataclasses import dataclass, field

import kernels

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["gpt2-gpu", "bert-gpu", "resnet50-gpu", "gpt4096-gpu"]
PLANS = {
    "first": "what one command of eight minutes tells most by",
    "second": "what follows from the results of `first`: why something failed, or more rows",
}
PARTS = {
    "smoke": "three small models in FP32 and BF16, waited for call by call",
    "gradients": "gradients and losses of small models against the processor's, every policy",
    "conformance": "every operation and gradient against the interpreter's stored results",
    "digits": "one model trained until it recognizes digits",
    "probe": "the machine: driver, libraries, bandwidth, GEMMs",
    "speed-first": "four models beside PyTorch, in turns, with the kernels of both; gradients against PyTorch's",
    "ncu": "hardware counters of the longest own kernels of GPT-2's step",
    "sanitizer": "compute-sanitizer over part of the conformance suite and attention in tiles",
    "ways": "small models compiled by the driver, with full searches, without cuDNN, by either own way of convolutions",
    "products": "every GEMM of the 8-bit policy in 16 and in 8 bits: the tables that ,measure takes",
    "speed-bf16": "whole steps in BF16, all searched, beside PyTorch eager and tuned with CUDA graphs",
    "speed-f16": "the same in FP16",
    "speed-fp8": "the 8-bit policies",
    "speed-fp32": "whole steps in FP32 without TF32 on either side, and with it on both",
    "speed-rest": "als-f16 and fp8-e5m2",
    "diagnose": "what failed, again: call by call, without cuDNN, under compute-sanitizer",
}
# By key, in this order; a prefix stands for all items that begin with it.
FIRST = ("smoke/", "gradients/amp-bf16", "gradients/tiles", "conformance/", "gradients/", "digits/", "probe/", "ways/", "speed-first/gpt2", "speed-first/bert", "speed-first/resnet50", "speed-first/")
MORE = ("ncu/", "sanitizer/tiles", "speed-f16/gpt2-gpu/eager", "speed-f16/bert-gpu/eager", "speed-f16/resnet50-gpu/eager", "speed-fp8/gpt4096-gpu/fp8-hybrid+fast-sums",
        "gradients/", "sanitizer/")
# Seconds that an item takes on a machine with 16 cores and one H200: measured, but for the ones from "speed-first/gpt4096" on.
SECONDS = {"smoke": 5, "gradients": 10, "conformance": 5, "digits": 10, "probe": 8, "ways": 6, "ways/searched": 26, "speed-first/gpt2": 40,
           "speed-first/bert": 31, "speed-first/resnet50": 161, "speed-first/gpt4096": 85, "ncu": 25, "sanitizer/tiles": 25, "sanitizer": 120,
           "products": 60, "diagnose": 30, "speed": 110}
COMPILED_BY = 125  # seconds from the start by which PyTorch has compiled all models in the background
RACES = ("compute-sanitizer", "--error-exitcode", "9", "--print-limit", "20", "--tool")


@dataclass
class Item:
    part: str
    name: str
    command: list
    limit: float  # seconds
    options: dict = field(default_factory=dict)  # of trainers
    needs: str = ""  # a program
    late: bool = False  # its command follows from results: make it again when it is run

    @property
    def key(self) -> str:
        return f"{self.part}/{self.name}"

    @property
    def seconds(self) -> float:
        """The estimate of the longest prefix."""
        return SECONDS[max((known for known in SECONDS if self.key.startswith(known)), key=len)]

    @property
    def least(self) -> float:
        """Seconds below which it is not started."""
        return min(self.limit, self.seconds / 2)

    @property
    def compiled(self) -> list:
        """(peer, model) of each compilation by PyTorch for it."""
        return [(word, self.command[2]) for word in self.command[3:] if word.startswith("compile:")] if self.part.startswith("speed") else []


def limit_of(peer: str, limit: float) -> float:
    """Seconds until a peer of duel.py is ready; max-autotune times many kernels of each product."""
    return limit * (2 if peer.startswith("autotune") else 1)


class Items:
    """All items of the contents of `data`; `rows` are results so far."""

    def __init__(self, tiny: bool, scratch: str, rows=()):
        self.found, self.data, self.tiny, self.scratch, self.rows = [], HERE / "data", tiny, scratch, list(rows)
        self.libraries = sorted(p for p in self.data.glob("conformance/*") if p.is_dir())
        self.training = sorted(p.parent for p in self.data.glob("training/*/*/expected.json"))
        there = [p.name for p in sorted(self.data.glob("speed/*"))]
        self.present = [m for m in MODELS if m in there] + [m for m in there if m not in MODELS]
        self.add_checks()
        self.add_speed()
        self.add_tools()
        self.add_diagnosis()
        order = list(PARTS)
        self.found.sort(key=lambda item: order.index(item.part))
        for item in self.found:
            item.command = [shutil.which(item.command[0]) or item.command[0], *item.command[1:]]

    def script(self, part, name, file, *arguments, limit=180.0, prefix=(), needs="", late=False, **options):
        self.found.append(Item(part, name, [*prefix, sys.executable, str(HERE / file), *map(str, arguments)], limit, options, needs, late))

    def small(self, names=None, policies=None) -> list:
        return [p for p in self.training if (not names or p.parent.name.removeprefix("own-") in names) and (not policies or p.name in policies)]

    def add_checks(self) -> None:
        few = self.small(("mlp", "cnn", "attention"), ("fp32", "amp-bf16"))
        if few:
            self.script("smoke", "machine-code", "conform.py", "--jobs", 4, *few, limit=120, synchronous=1, search="off")
        for policy in dict.fromkeys(p.name for p in self.training):
            self.script("gradients", policy, "conform.py", "--jobs", 8, *self.small(policies=(policy,)), limit=120, search="off")
        if tiles := self.small(("shared", "shared-wgmma"), ("amp-bf16", "amp-f16")):  # without dropout: where there is no cuDNN
            self.script("gradients", "tiles", "conform.py", "--jobs", 8, *tiles, limit=120, cudnn="none", search="off")
        for kind in ("f32", "f16", "bf16"):
            chosen = [p for p in self.libraries if p.name.endswith("-" + kind)]
            if chosen:
                self.script("conformance", kind, "conform.py", "--jobs", 8, *chosen, limit=240, search="off")
        for folder in sorted(p.parent for p in self.data.glob("digits/*/expected.json")):
            self.script("digits", folder.name, "digits.py", folder, limit=120)
        self.script("probe", "machine", "probe.py", limit=90)
        for folder in sorted(p for p in self.data.glob("products/*/*") if p.is_dir()):
            self.script("products", f"{folder.parent.name}/{folder.name}", "products.py", folder, *self.words(), limit=300, search="full")
        if few:
            self.script("ways", "ptx", "conform.py", "--jobs", 8, *few, ptx=1, search="off")
        searched = self.small(("feedforward", "gpt", "block", "convolutions", "depthwise"), ("amp-bf16", "amp-f16"))
        if searched:  # which tries epilogues apart, and other plans
            self.script("ways", "searched", "conform.py", "--jobs", 8, *searched, search="full")
        convolving = self.small(("cnn", "block", "convolutions", "depthwise"), ("fp32", "amp-bf16", "amp-f16"))
        attending = self.small(("attention", "gpt", "dropped-odd"), ("amp-bf16", "amp-f16"))
        for way in ("any", "implicit", "columns"):
            chosen = convolving + (attending if way == "any" else [])
            if chosen:
                self.script("ways", f"no-cudnn-{way}", "conform.py", "--jobs", 8, *chosen, cudnn="none", convolutions=way, search="off")

    def words(self) -> list:
        return ["--tiny"] if self.tiny else []

    def speed(self, part, groups, models, limit=200.0, **options):
        """One item a group of peers and model. Its peers run in turns and hold the GPU's memory at once: three of 16 bits at most, two of FP32."""
        for name, peers in groups.items():
            for model in models:
                there = [p for p in peers if not p.startswith("mpt") or (self.data / "speed" / model / p.split(":")[1].split("+")[0]).is_dir()]
                if there and there[0] == peers[0]:  # the one that is looked at
                    self.script(part, f"{model}/{name}", "duel.py", model, *there, *self.words(), "--scratch", self.scratch, "--limit", limit,
                                limit=max(limit_of(peer, limit) for peer in there) + 150, **options)

    def add_speed(self) -> None:
        bf16 = "mpt:amp-bf16"
        like = [bf16, "mpt:autocast-cuda-bf16", "compile:bf16"]  # the second does the arithmetic of PyTorch's autocast
        self.speed("speed-first", {"compile": like}, [m for m in self.present if m not in ("resnet50-gpu", "gpt4096-gpu")], search="quick")
        self.speed("speed-first", {"compile": [bf16, "compile:bf16"]}, [m for m in self.present if m == "resnet50-gpu"], search="full")
        self.speed("speed-first", {"fp8-hybrid": ["mpt:fp8-hybrid", bf16, "eager:bf16"]}, [m for m in self.present if m == "gpt4096-gpu"], search="quick")

        def beside(own, kind):
            return {way: [own, f"{way}:{kind}"] for way in ("compile", "eager", "autotune")}

        self.speed("speed-bf16", beside(bf16, "bf16"), self.present, search="full")
        self.speed("speed-f16", beside("mpt:amp-f16", "f16"), self.present, search="full")
        eight = ["mpt:fp8-hybrid", "mpt:fp8-hybrid+fast-sums", "mpt:fp8-current"]
        self.speed("speed-fp8", {p.split(":")[1]: [p, bf16, "eager:bf16"] for p in eight}, sorted(self.present, key=lambda m: m != "gpt4096-gpu"), search="full")
        fp32 = {"fp32": "mpt:fp32", "tf32": "mpt:fp32+tf32"}
        self.speed("speed-fp32", {f"{kind}-{way}": [own, f"{way}:{kind}"] for way in ("compile", "eager") for kind, own in fp32.items()}, self.present,
                   search="full")
        self.speed("speed-rest", {"als-f16": ["mpt:als-f16", "eager:f16"], "fp8-e5m2": ["mpt:fp8-e5m2", bf16, "eager:bf16"]}, self.present, search="full")

    def add_tools(self) -> None:
        sanitize = lambda name, tool, folders, limit=300, **options: folders and self.script(  # noqa: E731
            "sanitizer", name, "conform.py", "--jobs", 0, *folders, limit=limit, needs="compute-sanitizer", prefix=(*RACES, tool), search="off", **options)
        sanitize("tiles-racecheck", "racecheck", self.small(("dropped", "dropped-wgmma", "shared-wgmma"), ("amp-bf16",)), 120)
        sanitize("memcheck", "memcheck", [p for p in self.libraries if p.name.endswith("-f32")])
        files = ("reduce", "norm", "norm_backward", "training", "shape")
        sanitize("racecheck", "racecheck", [p for p in self.libraries if p.name.split("-")[0] in files and p.name.endswith("-f32")])
        # Own kernels of convolutions, which run where cuDNN is not used; small ones, each in the types it has.
        own = [p for p in self.libraries if p.name.startswith(("conv", "contractions"))] + self.small(("cnn", "block"), ("fp32", "amp-bf16"))
        for way in ("implicit", "columns"):
            sanitize(f"racecheck-convolutions-{way}", "racecheck", own, cudnn="none", convolutions=way)
        if "gpt2-gpu" in self.present:
            timed = next((row for row in self.rows if row.get("peer") == "mpt:amp-bf16" and "gpt2" in row.get("model", "") and kernels.own(row)), {})
            names = "|".join(kernels.own(timed)[:12]) or r"kernel\d+"
            metrics = "dram__bytes.sum,smsp__warps_active.avg.per_cycle_active,smsp__inst_executed.sum,launch__registers_per_thread"
            self.script("ncu", "gpt2-gpu/amp-bf16", "bench.py", "mpt:amp-bf16", "gpt2-gpu", "--tiny", "--scratch", self.scratch, limit=120, needs="ncu", late=True,
                        prefix=("ncu", "--clock-control", "none", "--kernel-name", f"regex:^({names})$", "--launch-skip-before-match", "0", "--launch-count", "24",
                                "--kill", "yes", "--csv", "--set", "basic", "--metrics", metrics), eager=1, search="off")

    def add_diagnosis(self) -> None:
        """Of failed items: each small library a few ways, each whole model call by call."""
        bad = [row for row in self.rows if row.get("ok") is False and row["part"] != "diagnose"]
        folders = list(dict.fromkeys(row["folder"] for row in bad if row.get("folder")))[:3]
        for folder in map(pathlib.Path, folders):
            name = "-".join(folder.parts[-2:])
            self.script("diagnose", f"{name}/synchronous", "conform.py", folder, limit=60, synchronous=1, eager=1, search="off")
            self.script("diagnose", f"{name}/no-cudnn", "conform.py", folder, limit=60, cudnn="none", search="off")
            for tool in ("memcheck", "racecheck"):
                self.script("diagnose", f"{name}/{tool}", "conform.py", "--jobs", 0, folder, limit=90, needs="compute-sanitizer", prefix=(*RACES, tool),
                            search="off")
        for peer, model in list(dict.fromkeys((row["peer"], row["model"]) for row in bad if row.get("peer", "").startswith("mpt:")))[:3]:
            self.script("diagnose", f"{model}/{peer[4:]}", "bench.py", peer, model, *self.words(), "--scratch", self.scratch, limit=120, synchronous=1, search="off")


def items(tiny: bool, scratch: str, rows=()) -> list:
    return Items(tiny, scratch, rows).found


def planned(found: list, prefixes) -> list:
    chosen = []
    for prefix in prefixes:
        chosen += [item for item in found if item.key.startswith(prefix) and item not in chosen]
    return chosen


def choose(found: list, words: list, done: set) -> list:
    """The items of parts and plans, in the order in which they were asked for; all parts without a word."""
    chosen = []
    for word in words or [*PLANS, *PARTS]:
        if word == "first":
            more = planned(found, FIRST)
        elif word == "second":  # items that the first left, why something failed, and where nothing did, more rows
            why = [item for item in found if item.part == "diagnose"]
            left = [item for item in planned(found, FIRST) if item.key not in done]
            more = why + left + planned(found, MORE)
        else:
            more = [item for item in found if item.part == word]
        chosen += [item for item in more if item not in chosen]
    return chosen


def clock(chosen: list) -> list:
    """(item, when it begins, when it ends) in seconds from a call's start, as estimated."""
    at, times = 3.0, []  # extraction
    for item in chosen:
        at = max(at, COMPILED_BY) if item.compiled and any(item.part != one.part for one, _, _ in times) and at < COMPILED_BY - 60 else at
        times.append((item, at, at + item.seconds))
        at += item.seconds
    return times


def described(model: str, policy: str) -> dict:
    """Bytes that each own kernel of a packed model moves in a launch, as the compiler counted them."""
    try:
        report = json.loads((HERE / "data" / "speed" / model / policy.split("+")[0] / "report.json").read_text())["kernels"]
    except (OSError, ValueError, KeyError):
        return {}
    return {kernel["kernel"]: kernel["bytes"] / kernel["launches"] for kernel in report["step"]["kernel_code"]}
