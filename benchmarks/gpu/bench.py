# SPDX-License-Identifier: Apache-2.0
"""One peer's training step, timed: bench.py PEER MODEL [--tiny] [--wait] [--only-compile], where PEER is mpt:POLICY, eager:TYPE,
compile:TYPE or autotune:TYPE (torch.compile with max-autotune, which uses CUDA graphs). mpt:POLICY+OPTION sets an option of the
trainer: mpt:fp32+tf32 is FP32 with TF32 in GEMMs and convolutions. TYPE fp32 is FP32: PyTorch's TF32 is off; tf32 has it on.

With --wait it warms up, then times a round for each line "run" on standard input, until "end"; then it writes down the kernels of a
step (duel.py). --only-compile ends before anything is timed: PyTorch's caches have its compilations. A peer of ours first holds the
gradients of all parameters against eager PyTorch's of the same type, on this GPU.

Prints one JSON line: milliseconds a step (runs of steps between two waits, after a warm-up), peak memory, the first losses.
Weights and batch are models.py's with its seed, for all peers. The batch lies on the device, but for our integers. Without a GPU PyTorch runs
on the processor, uncompiled; --tiny takes a smaller model of the same kind, for trying the script out.
"""
from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import pathlib
import statistics
import struct
import sys
import tempfile
import time

import gradients
import kernels
import numpy as np
import standin
import trainers
from duel import SOLO

HERE = pathlib.Path(__file__).resolve().parent
TINY = "small"
LOSSES, WARM, ROUNDS, STEPS = 3, 12, 6, 5
ITEM = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "BOOL": 1, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U64": 8}


def narrowed(value, dtype):
    """A tensor's values as the compiler stores weights in fewer bits: values that are finite and not zero stay so."""
    import torch
    value = value.detach()
    result = value.to(dtype)
    if dtype is torch.float32:
        return result
    limits = torch.finfo(dtype)
    least = torch.full((), limits.smallest_normal * limits.eps, dtype=dtype)
    result = torch.where((result == 0) & (value != 0), torch.copysign(least, result), result)
    return torch.where(torch.isinf(result) & torch.isfinite(value), torch.copysign(torch.full((), limits.max, dtype=dtype), result), result)


def write_weights(folder: pathlib.Path, path: str, module) -> list:
    """The initial state of a library whose own did not travel, as weights.json describes it. Returns the tensors whose values are others
    than when it was packed: this PyTorch draws other numbers, for its peers too."""
    import torch
    others = []
    header = json.loads((folder / "weights.json").read_text())
    known = dict([*module.named_parameters(), *module.named_buffers()])
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    plain = json.dumps({name: entry if name == "__metadata__" else {k: entry[k] for k in ("dtype", "shape", "data_offsets")}
                        for name, entry in header.items()}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(plain)) + plain)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + len(plain) + begin)
            if "torch" in entry:
                value = narrowed(known[entry["torch"]], types[entry["dtype"]]).permute(entry["permute"]).contiguous()
                data = value.view(torch.uint8).numpy().tobytes()
                if entry.get("sha256", hash_of(data)) != hash_of(data):
                    others.append(name)
                file.write(data)
            elif "hex" in entry:
                file.write(bytes.fromhex(entry["hex"]))
            else:
                value = bytes.fromhex(entry["fill"])
                if any(value):
                    file.write(value * ((end - begin) // len(value)))
                else:  # a hole
                    file.seek(8 + len(plain) + end - 1)
                    file.write(b"\0")
    return others


def hash_of(data) -> str:
    return hashlib.sha256(data).hexdigest()


def time_round(step, wait) -> float:
    """Milliseconds a step."""
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    wait()
    return (time.perf_counter() - start) / STEPS * 1e3


class Alone:
    """The GPU to oneself, among the peers of a duel: algorithms are chosen by their time, and first rounds are timed, before all are ready."""

    def __init__(self):
        self.file = open(pathlib.Path(tempfile.gettempdir(), "mpt-gpu-alone.lock"), "w")

    def begin(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def end(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)


alone = Alone()


def time_steps(step, wait, row: dict, a) -> list:
    for _ in range(1 if a.tiny else WARM):
        step()
    wait()
    if not a.wait:
        return [time_round(step, wait) for _ in range(2 if a.tiny else ROUNDS)]
    print(json.dumps({**row, "peer": a.peer, "ok": is_sound(row)}), flush=True)  # ready
    times = []
    for line in sys.stdin:
        if line.strip() != "run":
            break
        times.append(time_round(step, wait))
        if len(times) == SOLO:  # duel.py has asked for as many before others are ready
            alone.end()
        print(json.dumps({"times": times[-1:]}), flush=True)
    row.update(kernels.kernels_of(step, wait))
    return times


def is_sound(row: dict) -> bool:
    return (bool(np.isfinite(row["losses"]).all()) or bool(row.get("skipped"))) and not row.get("problem")


def torch_gradients(case, dtype) -> dict:
    """Eager PyTorch's under autocast to `dtype`, or in FP32: {parameter: tensor}. A transformer's batch goes in parts, for the memory that
    peers leave."""
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = case.module.to(device).train()
    isWhole = any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in module.modules())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    scale, rows = 1024.0 if dtype is torch.float16 else 1.0, len(next(iter(case.inputs.values())))
    count = 1 if isWhole or rows % 4 else 4
    module.zero_grad()
    for part in range(count):
        args = [v[part * rows // count:(part + 1) * rows // count].to(device) for v in case.inputs.values()]
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = module(*args) / count
        (loss * scale).backward()
    return {name: value.grad.float() / scale for name, value in module.named_parameters() if value.grad is not None}


def compare_gradients(folder, weights: str, batch: dict, case, policy: str, options: dict) -> dict:
    """Compares gradients of a trainer of its own, whose memory and first run are not measured, with PyTorch's: FP32's are exact, autocast's
    show the errors of its type."""
    import mpt
    import torch
    kind = gradients.kind_of(policy)
    exact = torch_gradients(case, None)
    noise = gradients.noises(torch_gradients(case, torch.float16 if kind == "f16" else torch.bfloat16), exact) if kind not in ("fp32", "tf32") else None
    case.module.zero_grad()
    with mpt.Trainer(folder, weights=weights, options=options) as trainer:
        for _ in range(20):
            loss, found = trainer.gradients(batch)
            if all(np.isfinite(value).all() for value in found.values()) or not trainer.step(batch).skipped:
                break
    share, where, problems = gradients.compare(found, exact, policy, noise)
    row = {"gradient_loss": loss, "gradient_share": share, "gradient_at": where, "gradients": len(found)}
    whole = {name: gradients.norm(value) for name, value in exact.items()}
    row["gradients_off"] = statistics.median(gradients.norm(gradients.like(found[name], exact[name]) - exact[name]) / size
                                             for name, size in whole.items() if name in found and size)
    if noise:  # the same of PyTorch's
        row["gradients_off_torch"] = statistics.median(noise[name][0] / size for name, size in whole.items() if size)
    if problems and not standin.is_dry():
        row["problem"] = f"gradients, beside PyTorch's: {'; '.join(problems[:3])} ({len(problems)} parameters)"
    return row


def mpt_peer(policy: str, model: str, a) -> dict:
    import models
    import mpt
    import torch
    case = models.build(model)
    policy, _, more = policy.partition("+")
    folder = HERE / "data" / "speed" / model / policy
    with tempfile.NamedTemporaryFile(suffix=".safetensors", dir=a.scratch) as weights:
        others = write_weights(folder, weights.name, case.module)
        gpu, row = torch.cuda.is_available(), {}
        # Indices stay on the host, where they are checked: a check on the device would wait for the step before.
        batch = {k: v.cuda() if gpu and v.is_floating_point() else v.numpy() for k, v in case.inputs.items()}
        options = {**trainers.options, **({more: 1} if more else {})}
        alone.begin()
        if gpu or not standin.is_dry():
            row = compare_gradients(folder, weights.name, batch, case, policy, options)
        if others:
            row["drawn_anew"] = others
        del case
        if gpu:
            torch.cuda.empty_cache()
        with mpt.Trainer(folder, weights=weights.name, options=options) as trainer:
            results = [trainer.step(batch) for _ in range(LOSSES)]
            row.update(losses=[r.loss for r in results], skipped=sum(r.skipped for r in results))
            row["times"] = time_steps(lambda: trainer.start(batch), trainer.synchronize, row, a)
            row["memory"] = trainer.memory()
            row["peak_mib"] = row["memory"]["peak_bytes"] / 2**20
            row["last"] = trainer.metrics().loss
            return row


def torch_peer(kind: str, precision: str, model: str, a) -> dict:
    import models
    import torch
    case = models.build(TINY if a.tiny else model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = case.module.to(device).train()
    args = [(v[:2] if a.tiny and model != TINY else v).to(device) for v in case.inputs.values()]
    if "resnet" in model and not a.tiny:
        module = module.to(memory_format=torch.channels_last)
        args[0] = args[0].contiguous(memory_format=torch.channels_last)
    name, *settings = case.optimizer.split(",")
    settings = {k.replace("-", "_"): float(v) for k, v in (s.split("=") for s in settings)}
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name](module.parameters(), fused=True, **settings)
    run = {"eager": lambda: module, "compile": lambda: torch.compile(module),
           "autotune": lambda: torch.compile(module, mode="max-autotune")}[kind if device == "cuda" else "eager"]()
    dtype = {"fp32": None, "tf32": None, "f16": torch.float16, "bf16": torch.bfloat16}[precision]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    scaler = torch.amp.GradScaler(device, enabled=precision == "f16" and device == "cuda")
    torch.backends.cudnn.benchmark = True

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = run(*args)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    row = {"losses": [], "skipped": 0, "device": device, "torch": torch.__version__}
    if not a.only_compile:
        alone.begin()
    for _ in range(LOSSES):
        scale = scaler.get_scale()
        row["losses"].append(step().item())
        row["skipped"] += scaler.get_scale() < scale  # a step without a finite gradient lowers the scale
    if a.only_compile:
        return row
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    row["times"] = time_steps(step, torch.cuda.synchronize if device == "cuda" else lambda: None, row, a)
    if device == "cuda":
        row.update(peak_mib=torch.cuda.max_memory_allocated() / 2**20)
    return row


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("peer")
    parse.add_argument("model")
    parse.add_argument("--tiny", action="store_true")
    parse.add_argument("--only-compile", action="store_true", help="end before anything is timed")
    parse.add_argument("--wait", action="store_true", help="time a round for each line on standard input")
    parse.add_argument("--scratch", default=None, help="folder for weights")
    trainers.add_argument(parse)
    a = parse.parse_args()
    trainers.take(a.option)
    sys.path.insert(0, str(HERE))
    kind, kept = a.peer.split(":")
    row = mpt_peer(kept, a.model, a) if kind == "mpt" else torch_peer(kind, kept, a.model, a)
    row.update(peer=a.peer, model=a.model)
    row["ok"] = is_sound(row)
    if text := standin.violations():
        row.update(ok=False, problem=text)
    if row.get("times"):
        row["ms"] = statistics.median(row["times"])
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
