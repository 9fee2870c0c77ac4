# SPDX-License-Identifier: Apache-2.0
"""The benchmark models' training steps in JAX on the CPU, one jitted function with donated state, FP32.

The arithmetic, parameters and batches are as in models.py's torch modules, whose parameters' names are used here.
"""
from __future__ import annotations

import math

import jax
import jax.numpy as jnp

BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01  # torch.optim.AdamW's defaults


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def cross_entropy(logits, y):
    logits = logits.reshape(-1, logits.shape[-1])
    chosen = jnp.take_along_axis(logits, y.reshape(-1, 1), axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen)


def mlp(p, x):
    for i in (0, 2):
        x = jax.nn.relu(linear(p, f"model.{i}", x))
    return linear(p, "model.4", x)


def layer_norm(p, name, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def attention(p, name, x, heads, causal):
    b, t, d = x.shape
    q, k, v = (z.reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3)
               for z in jnp.split(linear(p, name + ".qkv", x), 3, axis=-1))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(d // heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    return linear(p, name + ".out", (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, t, d))


def transformer(p, ids, layers, heads, causal):
    x = p["model.tokens.weight"][ids] + p["model.positions"][: ids.shape[1]]
    for i in range(layers):
        at = f"model.layers.{i}."

        def feed_forward(x):
            return linear(p, at + "down", jax.nn.gelu(linear(p, at + "up", x), approximate=causal))
        if causal:
            x = x + attention(p, at + "attention", layer_norm(p, at + "n1", x), heads, True)
            x = x + feed_forward(layer_norm(p, at + "n2", x))
        else:
            x = layer_norm(p, at + "n1", x + attention(p, at + "attention", x, heads, False))
            x = layer_norm(p, at + "n2", x + feed_forward(x))
    return layer_norm(p, "model.norm", x) @ p["model.tokens.weight"].T


def convolution(p, name, x, stride):
    w = p[name + ".weight"]
    pad = w.shape[-1] // 2
    return jax.lax.conv_general_dilated(x, w, (stride, stride), ((pad, pad), (pad, pad)),
                                        dimension_numbers=("NCHW", "OIHW", "NCHW"))


def batch_norm(p, name, x, running):
    mean, variance, count = x.mean((0, 2, 3)), x.var((0, 2, 3)), x.size // x.shape[1]
    for key, value in (("mean", mean), ("var", variance * count / (count - 1))):
        running[f"{name}.running_{key}"] = 0.9 * p[f"{name}.running_{key}"] + 0.1 * value

    def over(v):
        return v[None, :, None, None]
    return (x - over(mean)) * over(jax.lax.rsqrt(variance + 1e-5) * p[name + ".weight"]) + over(p[name + ".bias"])


def resnet(p, x, module, running):
    x = jax.nn.relu(batch_norm(p, "model.norm", convolution(p, "model.stem", x, 2), running))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for i, block in enumerate(module.blocks):
        at, y = f"model.blocks.{i}.", x
        for j, conv in enumerate(block.convs):
            y = batch_norm(p, f"{at}norms.{j}", convolution(p, f"{at}convs.{j}", y, conv.stride[0]), running)
            if j + 1 < len(block.convs):
                y = jax.nn.relu(y)
        if block.short is not None:
            x = batch_norm(p, at + "short.1", convolution(p, at + "short.0", x, block.short[0].stride[0]), running)
        x = jax.nn.relu(x + y)
    return linear(p, "model.head", x.mean((2, 3)))


def logits_of(model, module, p, x, running):
    if model == "mlp":
        return mlp(p, x)
    if model.startswith("resnet"):
        return resnet(p, x, module, running)
    return transformer(p, x, len(module.layers), module.layers[0].attention.heads, model.startswith("gpt"))


def sgd(settings, parameters, gradients, state):
    momentum = {k: settings["momentum"] * state["momentum"][k] + g for k, g in gradients.items()}
    return {k: parameters[k] - settings["lr"] * momentum[k] for k in gradients}, {"momentum": momentum}


def adamw(settings, parameters, gradients, state):
    t = state["t"] + 1
    first = {k: BETAS[0] * state["first"][k] + (1 - BETAS[0]) * g for k, g in gradients.items()}
    second = {k: BETAS[1] * state["second"][k] + (1 - BETAS[1]) * g * g for k, g in gradients.items()}
    updated = {k: (1 - settings["lr"] * DECAY) * parameters[k] - settings["lr"] / (1 - BETAS[0] ** t) * first[k] /
               (jnp.sqrt(second[k] / (1 - BETAS[1] ** t)) + EPSILON) for k in gradients}
    return updated, {"t": t, "first": first, "second": second}


def step(model: str):
    """One training step on the model's batch; returns the loss."""
    import models
    case = models.build(model)
    name, *pairs = case.optimizer.split(",")
    settings = {k: float(v) for k, v in (s.split("=") for s in pairs)}
    trained = {k for k, _ in case.module.named_parameters()}
    tensors = {k: jnp.asarray(v.numpy()) for k, v in case.module.state_dict().items() if "num_batches" not in k}
    parameters = {k: v for k, v in tensors.items() if k in trained}
    running = {k: v for k, v in tensors.items() if k not in trained}
    zeros = {k: jnp.zeros_like(v) for k, v in parameters.items()}
    state = {"momentum": zeros} if name == "sgd" else \
        {"t": jnp.zeros(()), "first": zeros, "second": {k: jnp.zeros_like(v) for k, v in parameters.items()}}
    x, y = (jnp.asarray(v.numpy().astype("int32") if not v.is_floating_point() else v.numpy()) for v in case.inputs.values())
    update = {"sgd": sgd, "adamw": adamw}[name]

    def loss_of(parameters, running, x, y):
        statistics = {}
        logits = logits_of(model, case.module.model, {**parameters, **running}, x, statistics)
        return cross_entropy(logits, y), statistics

    def whole(parameters, running, state, x, y):
        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, running, x, y)
        return *update(settings, parameters, gradients, state), {**running, **statistics}, loss

    compiled = jax.jit(whole, donate_argnums=(0, 1, 2))

    def run() -> float:
        nonlocal parameters, running, state
        parameters, state, running, loss = compiled(parameters, running, state, x, y)
        return float(loss)

    return run
