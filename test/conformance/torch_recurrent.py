# SPDX-License-Identifier: Apache-2.0
"""RNN, LSTM and GRU by PyTorch's own modules, a direction at a time; forms that these do not have are refused."""
import torch
from torch_ops import refuse, rule

# Where each of PyTorch's gates is among ONNX's: i, f, g, o of i, o, f, c; r, z, n of z, r, h.
ORDER = {"RNN": [0], "LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}
USUAL = {"RNN": ["tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


def gates(x, op, size):
    return torch.cat([x.split(size)[i] for i in ORDER[op]])


def one_direction(op, x, w, r, bias, start, cell, reverse):
    """(outputs [T, N, H], last state, last cell) of a sequence [T, N, I]."""
    size = r.shape[1]
    module = getattr(torch.nn, op)(x.shape[2], size)
    parameters = {"weight_ih_l0": gates(w, op, size), "weight_hh_l0": gates(r, op, size),
                  "bias_ih_l0": gates(bias[:len(w)], op, size), "bias_hh_l0": gates(bias[len(w):], op, size)}
    state = (start[None], cell[None]) if op == "LSTM" else start[None]
    y, last = torch.func.functional_call(module, parameters, (x.flip(0) if reverse else x, state))
    last, cell = last if op == "LSTM" else (last, last)
    return y.flip(0) if reverse else y, last[0], cell[0]


def recurrent(op):
    def run(x, a, v):
        x = [*x, *[None] * (8 - len(x))]
        data, w, r, bias, lengths, start, cell, peepholes = x if op == "LSTM" else (*x[:6], None, x[6])
        batch_first, directions = a.get("layout", 0), w.shape[0]
        if peepholes is not None or "clip" in a or a.get("input_forget", 0):
            refuse("peepholes, clip and coupled gates")
        names = [getattr(name, "decode", lambda name=name: name)().lower() for name in a.get("activations", USUAL[op] * directions)]
        if names != USUAL[op] * directions:
            refuse("other activations")
        if op == "GRU" and not a.get("linear_before_reset", 0):
            refuse("GRU whose reset gate is applied before the product")
        if batch_first:
            data = data.transpose(0, 1)
            start, cell = (None if value is None else value.transpose(0, 1) for value in (start, cell))
        if lengths is not None and (lengths != data.shape[0]).any():
            refuse("sequences of different lengths in both directions")
        zeros = data.new_zeros(directions, data.shape[1], r.shape[2])
        bias = bias if bias is not None else data.new_zeros(directions, 2 * w.shape[1])
        start, cell = (zeros if value is None else value for value in (start, cell))
        found = [one_direction(op, data, w[i], r[i], bias[i], start[i], cell[i], i == 1 or a.get("direction") == "reverse")
                 for i in range(directions)]
        y, last, cells = (torch.stack(values, axis) for values, axis in zip(zip(*found), (1, 0, 0)))
        if batch_first:  # [N, T, directions, H], [N, directions, H]
            y, last, cells = y.permute(2, 0, 1, 3), last.transpose(0, 1), cells.transpose(0, 1)
        return (y, last, cells) if op == "LSTM" else (y, last)
    rule(op, "activations activation_alpha activation_beta clip direction hidden_size input_forget layout linear_before_reset")(run)


for _op in ORDER:
    recurrent(_op)
