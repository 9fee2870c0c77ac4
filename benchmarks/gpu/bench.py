"""One peer's training step on a GPU, timed: bench.py PEER MODEL, where PEER is mpt:POLICY, eager:TYPE or compile:TYPE.

Prints one JSON line: median milliseconds a step (events around runs of steps, after a warm-up), peak memory, first losses.
"""
from __future__ import annotations

import json
import pathlib
import statistics
import struct
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
WARM, ROUNDS, STEPS = 5, 9, 10


def write_weights(folder: pathlib.Path) -> None:
    """Values for a library whose own did not travel: small normal ones, ones and zeros where a name says so."""
    header = json.loads((folder / "weights.json").read_text())
    name = next(folder.glob("lib*.so")).stem.removeprefix("lib")
    random = np.random.default_rng(0)
    with open(folder / f"{name}.safetensors", "wb") as file:
        text = (folder / "weights.json").read_bytes()
        file.write(struct.pack("<Q", len(text)) + text)
        for key, entry in header.items():
            if key == "__metadata__":
                continue
            count = int(np.prod(entry["shape"], dtype=np.int64))
            size = (entry["data_offsets"][1] - entry["data_offsets"][0]) // max(count, 1)
            if entry["dtype"] in ("F32", "F16", "BF16"):
                flat = len(entry["shape"]) == 1
                scale = 0.02 if not flat else 0.0
                values = random.normal(0, 1, count).astype(np.float32) * scale
                if flat and ("norm" in key or "n1" in key or "n2" in key or "var" in key) and "bias" not in key and "mean" not in key:
                    values[:] = 1
                if entry["dtype"] == "F16":
                    values = values.astype(np.float16)
                elif entry["dtype"] == "BF16":
                    values = (values.view(np.uint32) >> 16).astype(np.uint16)
                file.write(values.tobytes())
            else:
                file.write(bytes(count * size))


def time_steps(step, wait) -> list:
    for _ in range(WARM):
        step()
    wait()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        wait()
        times.append((time.perf_counter() - start) / STEPS * 1e3)
    return times


def mpt_peer(policy: str, model: str) -> dict:
    import models
    import mpt
    folder = HERE / "speed" / model / policy
    if not list(folder.glob("*.safetensors")):
        write_weights(folder)
    batch = {k: v.numpy() for k, v in models.build(model).inputs.items()}
    with mpt.Trainer(folder) as trainer:
        losses = [trainer.step(batch).loss for _ in range(3)]
        times = time_steps(lambda: trainer.start(batch), trainer.synchronize)
        return {"times": times, "losses": losses, "peak_mib": trainer.memory()["peak_bytes"] / 2**20}


def torch_peer(kind: str, precision: str, model: str) -> dict:
    import models
    import torch
    case = models.build(model)
    module = case.module.cuda().train()
    images = "resnet" in model
    if images:
        module = module.to(memory_format=torch.channels_last)
    args = [v.cuda() for v in case.inputs.values()]
    if images:
        args[0] = args[0].contiguous(memory_format=torch.channels_last)
    name, *settings = case.optimizer.split(",")
    settings = {k.replace("-", "_"): float(v) for k, v in (s.split("=") for s in settings)}
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name](module.parameters(), fused=True, **settings)
    run = torch.compile(module) if kind == "compile" else module
    dtype = {"fp32": None, "f16": torch.float16, "bf16": torch.bfloat16}[precision]
    scaler = torch.amp.GradScaler(enabled=precision == "f16")
    torch.backends.cudnn.benchmark = True

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype or torch.float16, enabled=dtype is not None):
            loss = run(*args)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    losses = [step().item() for _ in range(3)]
    torch.cuda.reset_peak_memory_stats()
    times = time_steps(step, torch.cuda.synchronize)
    return {"times": times, "losses": losses, "peak_mib": torch.cuda.max_memory_allocated() / 2**20}


def main(peer: str, model: str) -> None:
    kind, kept = peer.split(":")
    result = mpt_peer(kept, model) if kind == "mpt" else torch_peer(kind, kept, model)
    result.update(peer=peer, model=model, ms=statistics.median(result["times"]))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
