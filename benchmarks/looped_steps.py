#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps that ONNX Runtime loops, ours beside onnxsim 0.8.1's (onnxsim.compile_training), on one thread.

    looped_steps.py export FOLDER [MODEL ...]      with torch and mpt-opt on the PATH
    looped_steps.py run FOLDER [MODEL ...]         with onnxsim==0.8.1 and onnxruntime; prints a table

Ten models with a squared error in operators that both take, in FP32 with Adam, exported in training form. Where the peer refuses that, its row
says why, and its time is with norms in inference form. CPU time of a step, the median of interleaved ones; `memory` is the
growth of the process from the session's beginning to the last step (a process each); `losses` the largest relative difference of the first three.
"""
from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np


def modules() -> dict:
    import torch
    import torch.nn as nn
    import models

    def conv(i, o, stride=1, groups=1, kernel=3):
        return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU())

    class Rows(nn.Module):  # the peer has no Flatten
        def __init__(self, features):
            super().__init__()
            self.features = features

        def forward(self, x):
            return x.reshape(-1, self.features)

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.places = nn.Conv2d(3, 192, 8, 8), nn.Parameter(torch.randn(64, 192) * 0.02)
            self.layers = nn.Sequential(*(models.Layer(192, 3, False) for _ in range(4)))
            self.head = nn.Linear(192, 10)

        def forward(self, x):
            return self.head(self.layers(self.cut(x).flatten(2).transpose(1, 2) + self.places).mean(1))

    images = lambda batch, size, channels=3: torch.randn(batch, channels, size, size)
    tokens = lambda: torch.randint(0, 1000, (4, 128))

    class Tokens(nn.Module):
        """The model with its lookup on a vector, as the peer has none on a matrix."""

        def __init__(self, causal):
            super().__init__()
            self.model = models.Transformer(1000, 128, causal, width=256, layers=2, heads=4)

        def forward(self, ids):
            x = self.model.tokens(ids.reshape(-1)).reshape(-1, 128, 256) + self.model.positions
            for layer in self.model.layers:
                x = layer(x)
            return torch.nn.functional.linear(self.model.norm(x), self.model.tokens.weight)

    return {
        "mlp": (lambda: nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)),
                lambda: torch.randn(64, 784)),
        "lenet": (lambda: nn.Sequential(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
                                        Rows(256), nn.Linear(256, 120), nn.Tanh(), nn.Linear(120, 10)), lambda: images(64, 28, 1)),
        "small cnn": (lambda: nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(),
                                            nn.MaxPool2d(2), Rows(4096), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10)),
                      lambda: images(32, 32)),
        "vgg": (lambda: nn.Sequential(conv(3, 64), nn.MaxPool2d(2), conv(64, 128), nn.MaxPool2d(2), conv(128, 256), conv(256, 256),
                                      nn.MaxPool2d(2), Rows(4096), nn.Linear(4096, 10)), lambda: images(8, 32)),
        "resnet18": (lambda: models.ResNet((2, 2, 2, 2), 1, 10), lambda: images(4, 64)),
        "mobilenet": (lambda: nn.Sequential(conv(3, 32, 2), conv(32, 32, 1, 32), conv(32, 64, kernel=1), conv(64, 64, 2, 64), conv(64, 128, kernel=1),
                                            conv(128, 128, 1, 128), conv(128, 128, kernel=1), nn.AdaptiveAvgPool2d(1), Rows(128),
                                            nn.Linear(128, 10)), lambda: images(16, 64)),
        "autoencoder": (lambda: nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(32, 64, 3, 2, 1), nn.LeakyReLU(0.1),
                                              nn.Conv2d(64, 128, 3, 1, 1), nn.PixelShuffle(2), nn.LeakyReLU(0.1), nn.Conv2d(32, 12, 3, 1, 1),
                                              nn.PixelShuffle(2)), lambda: images(8, 64)),
        "vit": (Patches, lambda: images(4, 64)),
        "bert": (lambda: Tokens(False), tokens),
        "gpt2": (lambda: Tokens(True), tokens),
    }


def export(folder: str, wanted: list) -> None:
    import torch

    class Loss(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x, target):
            error = self.model(x) - target
            return (error * error).mean()

    for name, (make, data) in modules().items():
        if wanted and name not in wanted:
            continue
        torch.manual_seed(0)
        module, x = make().train(), data()
        for parameter in module.parameters():  # equal ones would be merged
            parameter.data += 0.01 * torch.randn_like(parameter)
        target = torch.randn_like(module(x).detach())
        path = os.path.join(folder, name.replace(" ", "_"))
        np.savez(path + ".npz", x=x.numpy(), target=target.numpy())
        for form, training in (("train", torch.onnx.TrainingMode.TRAINING), ("eval", torch.onnx.TrainingMode.EVAL)):
            torch.onnx.export(Loss(module).train(form == "train"), (x, target), f"{path}.{form}.onnx", dynamo=False, training=training,
                              do_constant_folding=False, opset_version=17, input_names=["x", "target"], output_names=["loss"])
            with open(f"{path}.{form}.params", "w") as file:
                json.dump(["model." + n for n, _ in module.named_parameters()], file)
            subprocess.run(["mpt-opt", f"{path}.{form}.onnx", "--optimizer=adam,lr=0.001", "--emit=onnx", "--onnx-state=inputs", "--quiet",
                            "-o", f"{path}.{form}.step.onnx"], check=True)


class Ours:
    def __init__(self, path: str, feeds: dict):
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = self.session = ort.InferenceSession(path + ".step.onnx", options, providers=["CPUExecutionProvider"])
        states = json.loads(session.get_modelmeta().custom_metadata_map["mpt.states"])
        self.next = {state.get("initializer", name): state["next"] for name, state in states.items() if "next" in state}
        self.outputs, self.binding = [value.name for value in session.get_outputs()], session.io_binding()
        feeds = {**feeds, "learning_rate": np.array(0.001, np.float32)}
        for value in session.get_inputs():
            if value.name in feeds:
                self.binding.bind_cpu_input(value.name, feeds[value.name])

    def __call__(self) -> float:
        for name in self.outputs:
            self.binding.bind_output(name)
        self.session.run_with_iobinding(self.binding)
        values = dict(zip(self.outputs, self.binding.get_outputs()))
        for name, output in self.next.items():
            self.binding.bind_ortvalue_input(name, values[output])
        return float(values["loss"].numpy())


class Peer:
    def __init__(self, path: str, feeds: dict):
        import onnx
        import onnxruntime as ort
        from onnxsim import compile_training, simplify
        ort.set_default_logger_severity(4)
        model = onnx.load(path + ".onnx")
        with open(path + ".params", encoding="utf-8") as file:
            parameters = json.load(file)
        # Computed shapes become constants, and these initializers. Parameters are inputs meanwhile, so that they stay as they are.
        values = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in parameters}
        for name, tensor in values.items():
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
            model.graph.initializer.remove(tensor)
        model, _ = simplify(model)
        for value in [value for value in model.graph.input if value.name in values]:
            model.graph.input.remove(value)
        model.graph.initializer.extend(values.values())
        for node in [node for node in model.graph.node if node.op_type == "Constant"]:
            tensor = next(a.t for a in node.attribute if a.name == "value")
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
            model.graph.node.remove(node)
        self.loop = compile_training.compile_training_loop(model, "loss", parameters, optimizer="adam")
        self.feeds, make = feeds, ort.SessionOptions

        def single():
            options = make()
            options.intra_op_num_threads = 1
            return options

        ort.SessionOptions = single
        try:
            self.loop._compile()
        finally:
            ort.SessionOptions = make

    def __call__(self) -> float:
        return self.loop(self.feeds, 0.001)


KINDS = {"ours": Ours, "peer": Peer}


def grown(kind: str, path: str, feeds: dict) -> float:
    """MB by which a process grows; one of its own, so that nothing is counted that was there before."""
    import onnxruntime  # noqa: F401
    if kind == "peer":
        from onnxsim import compile_training  # noqa: F401
    def largest():
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

    before = largest()
    step = KINDS[kind](path, feeds)
    for _ in range(5):
        step()
    return largest() - before


def medians(steps: dict) -> dict:
    times = {kind: [] for kind in steps}
    start = time.process_time()
    while len(times["ours"]) < 7 or (time.process_time() - start < 10 and len(times["ours"]) < 60):
        for kind, step in steps.items():
            begin = time.process_time()
            step()
            times[kind].append(time.process_time() - begin)
    return {kind: 1e3 * statistics.median(values) for kind, values in times.items()}


def row(name: str, path: str) -> str:
    said, form = "", "train"
    feeds = dict(np.load(path + ".npz"))
    try:
        steps = {kind: make(f"{path}.train", feeds) for kind, make in KINDS.items()}
    except Exception as problem:  # a refusal of the peer is a result of this table
        said = f" (training form: {' '.join(str(problem).split())[:120]})"
        form = "eval"
        try:
            steps = {kind: make(f"{path}.eval", feeds) for kind, make in KINDS.items()}
        except Exception as more:
            ours = medians({"ours": Ours(f"{path}.train", feeds)})["ours"]
            return f"| {name} | {ours:.1f} | refused: {' '.join(str(more).split())[:160]} | | | |"
    losses = {kind: np.array([step() for _ in range(3)]) for kind, step in steps.items()}
    difference = np.max(np.abs(losses["ours"] - losses["peer"]) / np.abs(losses["peer"]))
    times = medians(steps)
    memory = {kind: float(subprocess.run([sys.executable, __file__, "grown", kind, f"{path}.{form}", path + ".npz"], check=True,
                                         stdout=subprocess.PIPE, text=True).stdout.split()[-1]) for kind in KINDS}
    return (f"| {name} | {times['ours']:.1f} | {times['peer']:.1f}{said} | {times['peer'] / times['ours']:.2f} | "
            f"{memory['ours']:.0f}, {memory['peer']:.0f} | {difference:.0e} |")


def main(command: str, *words: str) -> None:
    if command == "grown":
        print(grown(words[0], words[1], dict(np.load(words[2]))))
    elif command == "export":
        export(words[0], list(words[1:]))
    else:
        print("| model | ours, ms | onnxsim, ms | ratio | memory, MB | losses |\n|---|---|---|---|---|---|")
        for file in sorted(os.listdir(words[0])):
            name = file.removesuffix(".npz")
            if file.endswith(".npz") and (not words[1:] or name in words[1:]):
                print(row(name, os.path.join(words[0], name)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
