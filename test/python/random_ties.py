# SPDX-License-Identifier: Apache-2.0
"""Random modules whose tensors are tied, merged, transposed, repeated or read in part, and files of them in the forms that tools write."""
import contextlib
import copy
import io

import numpy as np
import onnx
import torch
from onnx import helper
from torch import nn

BATCH, ROWS, WIDTH, WORDS = 3, 4, 6, 20


class Own(nn.Module):
    """A layer, whose bias may be equal to another layer's."""

    def __init__(self, draw):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH, bias=draw.chance(.8))
        if self.fc.bias is not None and draw.chance(.7):
            nn.init.constant_(self.fc.bias, draw.equal)

    def forward(self, h):
        return torch.tanh(self.fc(h))


class Again(nn.Module):
    """A layer that is applied once more, or whose matrix, filter or bias another one reads."""

    def __init__(self, draw, pool):
        super().__init__()
        self.of, self.how = draw.one(pool), draw.one(["same", "weight", "transposed", "bias"])
        if self.how == "same" and self.of.fc.bias is None:  # a file of two layers that begin as copies looks the same
            self.how = "weight"
        self.bias = nn.Parameter(torch.randn(WIDTH) * .3)
        if self.how == "bias" and self.of.fc.bias is not None:  # of equal values nothing tells that they are one
            nn.init.normal_(self.of.fc.bias)

    def forward(self, h):
        fc = self.of.fc
        if self.how == "same":
            return torch.tanh(fc(h) + self.bias)
        if self.how == "bias" and fc.bias is not None:
            return torch.tanh(h * self.bias + fc.bias)
        weight = fc.weight.t() if self.how == "transposed" else fc.weight
        return torch.tanh(nn.functional.linear(h, weight, self.bias))


class Clones(nn.Module):
    """Layers that begin as copies of one another."""

    def __init__(self, draw):
        super().__init__()
        one = Own(draw)
        self.layers = nn.ModuleList(copy.deepcopy(one) for _ in range(draw.one([2, 3])))

    def forward(self, h):
        for layer in self.layers:
            h = layer(h) + .5 * h
        return h


class Norms(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(draw.one([1, 2])))

    def forward(self, h):
        for norm in self.norms:
            h = norm(torch.sin(h) + h)
        return h


class Token(nn.Module):
    """Repeated a row or a batch, as itself or as a scale."""

    def __init__(self, draw):
        super().__init__()
        self.shape, self.scales = draw.one([(1, 1, WIDTH), (1, ROWS, WIDTH), (WIDTH,), (1, ROWS, 1)]), draw.chance(.3)
        self.token, self.fc = nn.Parameter(torch.randn(self.shape)), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, h):
        h = self.fc(h)
        token = self.token.expand(BATCH, ROWS, WIDTH)
        return torch.tanh(h * token if self.scales else torch.cat([token, h], 1)[:, 1:ROWS + 1])


class Positions(nn.Module):
    """Rows of a table, of two lengths."""

    def __init__(self, draw):
        super().__init__()
        self.table, self.start = nn.Parameter(torch.randn(9, WIDTH)), draw.one([0, 0, 2])
        self.a, self.b = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, h):
        h = torch.tanh(self.a(h) + self.table[self.start:self.start + ROWS])
        return torch.cat([torch.tanh(self.b(h[:, :-1]) + self.table[self.start:self.start + ROWS - 1]), h[:, -1:]], 1)


class Relative(nn.Module):
    """Scores with biases of a table, by distance or by indices that the module keeps."""

    def __init__(self, draw):
        super().__init__()
        self.table, self.how = nn.Embedding(7, 2), draw.one(["distance", "kept", "buckets"])
        self.q, self.k = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.shorter, self.last = draw.chance(.4), draw.chance(.3)
        kept = torch.from_numpy(draw.rng.integers(0, 3, (ROWS, ROWS)))
        self.register_buffer("kept", kept)

    def biases(self, rows):
        places = torch.arange(rows)
        distance = places[None] - places[:, None]
        index = {"distance": distance + 3, "buckets": distance.abs().clamp(max=2), "kept": self.kept[:rows, :rows]}[self.how]
        return self.table(index).permute(2, 0, 1).unsqueeze(0)

    def forward(self, h):
        mixed = self.attend(h, ROWS)
        if self.shorter:
            mixed = mixed + self.attend(h[:, 1:], ROWS - 1).sum(1, keepdim=True)
        return torch.tanh(mixed) + h

    def attend(self, h, rows):
        split = lambda t: t.reshape(BATCH, rows, 2, WIDTH // 2).transpose(1, 2)
        scores, biases = split(self.q(h)) @ split(self.k(h)).transpose(2, 3), self.biases(rows)
        if self.last:  # the heads behind, as in the table
            scores = (scores.permute(0, 2, 3, 1) + biases.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        else:
            scores = scores + biases
        return (torch.softmax(scores, -1) @ split(h)).transpose(1, 2).reshape(BATCH, rows, WIDTH)


class Parts(nn.Module):
    """One matrix of several projections, as attentions have."""

    def __init__(self, draw):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3 * WIDTH, WIDTH) * .4), nn.Parameter(torch.randn(3 * WIDTH) * .3)
        self.whole = draw.dynamo and draw.chance(.3)  # the other exporter does not say where it has cut

    def forward(self, h):
        linear = nn.functional.linear
        q = linear(h, self.weight[:WIDTH], self.bias[:WIDTH])
        k, v = linear(torch.sin(h), self.weight[WIDTH:], self.bias[WIDTH:]).chunk(2, -1)
        if self.whole:
            v = v + linear(h, self.weight, self.bias)[..., :WIDTH]
        return torch.tanh(q * k + v)


class Steps(nn.Module):
    """A recurrence of several layers."""

    def __init__(self, draw):
        super().__init__()
        kind = draw.one([nn.RNN, nn.LSTM, nn.GRU])
        self.cells = kind(WIDTH, WIDTH, draw.one([1, 2]), batch_first=draw.chance(.5))
        for name, tensor in self.cells.named_parameters():
            if "bias" in name and not draw.dynamo:  # the second exporter folds the first step, which then says no layer
                nn.init.constant_(tensor, draw.equal)

    def forward(self, h):
        return self.cells(h)[0] + h


class Branch(nn.Module):
    """A residual branch with a scale, gate, temperature, norm or matrix that begins as another branch's does."""

    def __init__(self, how):
        super().__init__()
        self.how, self.fc, self.norm = how, nn.Linear(WIDTH, WIDTH, bias=False), nn.LayerNorm(WIDTH)
        shape = {"numbers": (1,), "gate": (WIDTH // 2, 2), "temperature": (WIDTH, 1)}.get(how, (WIDTH,))
        self.scale, self.shift = (nn.Parameter(torch.full(shape, .75)) for _ in range(2))
        nn.init.zeros_(self.norm.weight)  # and the bias is zero
        if how == "logarithms":
            self.scale = nn.Parameter(torch.log(torch.arange(1, WIDTH + 1.)))
        if how == "sums":
            nn.init.zeros_(self.scale)
        self.second = nn.Linear(WIDTH, WIDTH, bias=False) if how == "parts" else None
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(WIDTH)) for _ in range(3 if how in ("views", "parts") else 0))

    def forward(self, h):
        weight = self.fc.weight
        if self.how == "standardized":
            weight = nn.functional.batch_norm(weight[None], None, None, training=True, eps=.1)[0]
        made = nn.functional.linear(h, weight)
        if self.how == "numbers":
            made = self.scale * torch.relu(made) ** 2 + self.shift
        elif self.how == "gate":
            gate = torch.sigmoid(self.scale.view(1, 1, -1))
            made = gate * made + (1 - gate) * h
        elif self.how == "temperature":
            made = torch.clamp(self.scale.view(1, 1, -1), max=4.).exp() * (.1 * made)
        elif self.how == "logarithms":
            made = torch.exp(-torch.exp(self.scale.double().float()) * torch.nn.functional.softplus(made))
        elif self.how == "sums":
            made = made * torch.rsqrt(made.square().mean(-1, keepdim=True) + .1) * (1 + self.scale)
        elif self.how == "views":  # biases of parts of one product, as an attention adds them
            parts = made.reshape(BATCH, -1, 3, WIDTH // 3).transpose(1, 2)
            made = .2 * sum(torch.sin((k + 1) * parts + bias.reshape(1, 1, 3, WIDTH // 3).transpose(1, 2)) for k, bias in enumerate(self.biases))
            made = made.transpose(1, 2).reshape(BATCH, -1, WIDTH)
        elif self.how == "parts":  # of a bias that is put together
            first, second, third = torch.cat(list(self.biases)).chunk(3)
            made = torch.nn.functional.linear(torch.sin(made + first), self.second.weight, second) * torch.cos(made + third)
        elif self.how == "norm":
            made = self.norm(made)
        elif self.how == "pool":
            made = (nn.functional.avg_pool1d(made.transpose(1, 2), 3, 1, 1).transpose(1, 2) - made) * self.scale.view(1, 1, -1)
        return torch.sin(made)


class Equal(nn.Module):
    """Branches whose tensors begin with equal values, and scales of the block itself."""

    OF_BOTH = ("norm", "pool", "numbers", "scales", "views", "parts", "sums")
    KINDS = OF_BOTH + ("gate", "temperature", "standardized", "logarithms")  # which the second exporter folds

    def __init__(self, draw, how=None):
        super().__init__()
        self.how = how or draw.one(self.OF_BOTH if draw.dynamo else self.KINDS)
        if self.how == "standardized" and draw.form == "constants":  # its scale of ones is one of the exporter's constants
            self.how = "norm"
        self.branches = nn.ModuleList(Branch(self.how) for _ in range(2))
        self.scales = nn.ParameterList(nn.Parameter(torch.full((WIDTH,), .5)) for _ in self.branches)

    def forward(self, h):
        for branch, scale in zip(self.branches, self.scales):
            h = h + (branch(h) * scale if self.how == "scales" else branch(h))
        return h


class Draw:
    def __init__(self, seed, dynamo, form):
        self.rng, self.dynamo, self.form = np.random.default_rng(seed), dynamo, form
        # The second exporter leaves biases of zeros out.
        self.equal = .25 if dynamo or self.chance(.3) else 0.

    def chance(self, p):
        return bool(self.rng.random() < p)

    def one(self, options):
        return options[self.rng.integers(len(options))]


class Model(nn.Module):
    """A table, layers on its rows, and a head that may be the table."""

    def __init__(self, draw, equal=None):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layers, pool = [Equal(draw, equal)] if equal else [], []
        for _ in range(0 if equal else draw.one([2, 3, 4])):
            kind = draw.one([Own, Own, Again, Again, Clones, Norms, Token, Positions, Relative, Parts, Steps, Equal, Equal, Equal])
            layers.append(kind(draw, pool) if kind is Again and pool else Own(draw) if kind is Again else kind(draw))
            pool += [layers[-1]] if isinstance(layers[-1], Own) else []
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(WIDTH, WORDS, bias=draw.chance(.5))
        if draw.chance(.5):
            self.head.weight = self.embedding.weight

    def forward(self, x):
        h = self.embedding(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


FORMS = ("plain", "plain", "constants", "functions", "branch", "listed", "loop")


def make(seed, equal=None):
    """(module, input, whether by the second exporter, form of the file); with `equal`, a module of this kind of Equal alone."""
    dynamo, form = seed % 2 == 1, FORMS[seed // 2 % len(FORMS)]
    torch.manual_seed(seed)
    draw = Draw(seed, dynamo, form)
    return Model(draw, equal).eval(), torch.randint(0, WORDS, (BATCH, ROWS)), dynamo, form


def write(module, x, dynamo, form, path):
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, (x,), path, dynamo=dynamo, input_names=["x"], output_names=["y"], external_data=False)
    model = onnx.load(path)
    globals()[f"as_{form}"](model)
    onnx.checker.check_model(model, full_check=form != "listed")
    onnx.save(model, path)
    return path


def as_plain(model):
    pass


def as_constants(model):
    """Weights as nodes, as other tools write them."""
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in model.graph.initializer]
    nodes += list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(nodes)


def as_listed(model):
    """Initializers among the inputs, as files of old have them."""
    for t in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, t.dims))


def as_functions(model):
    """Layers as calls of functions of the file's own, of which one calls another."""
    own, sets = {}, list(model.opset_import)
    model.opset_import.append(helper.make_opsetid("own", 1))
    for node in model.graph.node:
        if node.op_type not in ("Gemm", "MatMul", "Add", "LayerNormalization", "Gather", "LSTM", "RNN", "GRU"):
            continue
        names, results = [f"a{i}" if n else "" for i, n in enumerate(node.input)], [f"r{i}" if n else "" for i, n in enumerate(node.output)]
        body = helper.make_node(node.op_type, names, results)
        body.attribute.extend(node.attribute)
        names, results = [n for n in names if n], [n for n in results if n]
        name = own.setdefault(body.SerializeToString(), f"F{len(own)}")
        if len(model.functions) < 2 * len(own):
            model.functions.append(helper.make_function("own", "Inner" + name, names, results, [body], sets))
            call = helper.make_node("Inner" + name, names, results, domain="own")
            model.functions.append(helper.make_function("own", name, names, results, [call], list(model.opset_import)))
        call = helper.make_node(name, [n for n in node.input if n], [n for n in node.output if n], name=node.name, domain="own")
        call.metadata_props.extend(node.metadata_props)
        node.CopyFrom(call)


def moved(model, name):
    """The graph's nodes and tensors as a graph of their own."""
    body = helper.make_graph(list(model.graph.node), name, [], list(model.graph.output), list(model.graph.initializer), value_info=list(model.graph.value_info))
    body.output[0].name = "inner"
    for node in body.node:
        node.output[:] = ["inner" if n == "y" else n for n in node.output]
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    return body


def as_branch(model):
    body = moved(model, "yes")
    shape = [d.dim_value for d in body.output[0].type.tensor_type.shape.dim]
    other = helper.make_graph([helper.make_node("Expand", ["off", "shape"], ["off/y"])], "no", [], [helper.make_tensor_value_info("off/y", 1, shape)],
                              [helper.make_tensor("off", 1, [], [0.]), helper.make_tensor("shape", 7, [len(shape)], shape)])
    model.graph.initializer.append(helper.make_tensor("least", 7, [], [0]))
    model.graph.node.extend([helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0), helper.make_node("GreaterOrEqual", ["largest", "least"], ["is"]),
                             helper.make_node("If", ["is"], ["y"], then_branch=body, else_branch=other)])


def as_loop(model):
    body = moved(model, "step")
    body.input.extend([helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])])
    body.node.append(helper.make_node("Identity", ["go"], ["on"]))
    body.output.insert(0, helper.make_tensor_value_info("on", 9, []))
    model.graph.initializer.append(helper.make_tensor("once", 7, [], [1]))
    model.graph.initializer.append(helper.make_tensor("first", 7, [1], [0]))
    model.graph.node.extend([helper.make_node("Loop", ["once", ""], ["all"], body=body), helper.make_node("Squeeze", ["all", "first"], ["y"])])
