# SPDX-License-Identifier: Apache-2.0
"""Gradients of an exported graph beside autograd's: code that capture does not see, such as hooks, is refused and not trained wrong."""
import copy
import warnings

from ._errors import CompileError, CompileWarning
from ._gradients import operations

TOLERANCE = 1e-3  # of the norm: the same kernels run in the same order, and other orders of sums differ by far less


def copied(module):
    """A deep copy. Tensors that an earlier call computed, as torch.nn.utils.weight_norm's hook keeps them, are computed again."""
    import torch
    computed = {id(value): value.detach().clone() for part in module.modules() for value in vars(part).values()
                if isinstance(value, torch.Tensor) and not value.is_leaf}
    return copy.deepcopy(module, computed)


def replayed(program):
    """The program as a module whose stated gradients autograd follows: their part of the graph runs with the gradients that arrive."""
    import torch
    module = program.module()
    if not isinstance(module, torch.fx.GraphModule):
        return module
    nodes = list(module.graph.nodes)
    for node in nodes:
        if node.target is operations().custom_gradient.default:
            values, cotangents, inputs, gradients = node.args
            inside, part = set(cotangents), []
            for other in nodes[min(nodes.index(c) for c in cotangents):nodes.index(node)]:
                if other not in inside and any(used in inside for used in other.all_input_nodes):
                    inside.add(other)
                    part.append(other)
            needed = dict.fromkeys(g for g in gradients if g not in inside)
            for other in part:
                needed.update(dict.fromkeys(used for used in other.all_input_nodes if used not in inside))
            node.target = stated(list(cotangents), part, list(gradients), list(needed))
            node.args = (values, cotangents, inputs, gradients, list(needed))
    module.recompile()
    return module


def stated(cotangents, part, gradients, outside):
    import torch

    class Stated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values, known, *_):
            ctx.known = known
            return tuple(value.clone() for value in values)

        @staticmethod
        def backward(ctx, *arriving):
            found = dict(zip(outside, ctx.known)) | dict(zip(cotangents, arriving))
            for node in part:
                arguments, keywords = torch.fx.map_arg((node.args, node.kwargs), found.__getitem__)
                found[node] = node.target(*arguments, **keywords)
            return (None, None, *(found[gradient] for gradient in gradients))

    def stated_gradient(values, _cotangents, inputs, _gradients, known):
        return list(Stated.apply(values, known, *inputs))

    return stated_gradient


def gradients_of(module, arguments, keywords, seed: int) -> dict:
    """{parameter: gradient or None} of a fixed linear function of the float outputs."""
    import torch
    from torch.utils._pytree import tree_leaves
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        outputs = [o for o in tree_leaves(module(*arguments, **keywords)) if isinstance(o, torch.Tensor) and o.requires_grad]
        torch.manual_seed(1)
        total = sum((o * torch.randn_like(o)).sum() for o in outputs if o.is_floating_point())
        for parameter in parameters.values():
            parameter.grad = None
        if outputs and parameters:
            total.backward()  # blocks with reentrant checkpoints refuse torch.autograd.grad
    return {name: parameter.grad for name, parameter in parameters.items()}


def differing(one: dict, other: dict):
    """The first parameter whose gradients differ, and the cosine between them; nothing where none does."""
    import torch
    for name, a in one.items():
        b = other.get(name)
        a, b = (torch.zeros(1) if g is None else g.detach().double().nan_to_num() for g in (a, b))
        norms = a.norm(), b.norm()
        if (a - b).norm() > TOLERANCE * max(*norms, torch.tensor(1e-12)):
            return name, float((a * b).sum() / (norms[0] * norms[1]).clamp_min(1e-300))
    return None


def compare(module, program, arguments: tuple, keywords: dict) -> None:
    """Raises CompileError where the program's gradients are not the module's. `module` and its program are
    left as they were, running statistics too."""
    same = lambda seed=0: gradients_of(copied(module), arguments, keywords, seed)
    eager = same()
    found = differing(eager, gradients_of(copied(replayed(program)), arguments, keywords, 0))
    if found is None:
        return
    name, cosine = found
    if differing(eager, same(seed=2)) is not None or differing(eager, same()) is not None:
        warnings.warn(f"gradients of {type(module).__name__} were not compared with autograd's: they depend on random numbers that "
                      "the exported graph draws in another order", CompileWarning, stacklevel=5)
        return
    raise CompileError(
        f"expected the gradients of autograd, got others for parameter '{name}' of {type(module).__name__} (cosine {cosine:.4f}): "
        "something changes them that is not in the exported graph, such as a hook (register_hook, register_full_backward_hook) or an "
        "operator with a gradient of its own; write it as torch.autograd.Function, or use detach() and torch.no_grad()")
