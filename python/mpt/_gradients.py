# SPDX-License-Identifier: Apache-2.0
"""Changes of a torch module to its own gradients (detach, no_grad, autograd.Function), kept in the exported graph as the operators
StopGradient, Cotangent and CustomGradient of domain "mpt" (docs/onnx.md): torch.onnx.export drops all of them."""
import contextlib
import functools
import re
from collections import Counter

from ._errors import CompileError


@functools.cache
def operations():
    """torch operators that stay whole in an exported graph."""
    import torch
    tensors = list[torch.Tensor]

    @torch.library.custom_op("mpt::stop_gradient", mutates_args=())
    def stop_gradient(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @torch.library.custom_op("mpt::cotangent", mutates_args=())
    def cotangent(value: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(value)

    @torch.library.custom_op("mpt::custom_gradient", mutates_args=())
    def custom_gradient(values: tensors, cotangents: tensors, inputs: tensors, gradients: tensors) -> tensors:
        return [value.clone() for value in values]

    stop_gradient.register_fake(lambda x: torch.empty_like(x))
    cotangent.register_fake(lambda value: torch.empty_like(value))
    custom_gradient.register_fake(lambda values, cotangents, inputs, gradients: [torch.empty_like(v) for v in values])
    return torch.ops.mpt


def translations() -> dict:
    """The operators' nodes in ONNX."""
    from onnxscript import ir
    from torch.onnx._internal.exporter import _core

    def node(operator, inputs, count=1):
        made = ir.Node("mpt", operator, inputs=inputs, num_outputs=count, version=1)
        _core.current_tracer.nodes.append(made)
        for result, value in zip(made.outputs, inputs):
            result.dtype = value.dtype
        return made.outputs if count > 1 else made.outputs[0]

    def custom_gradient(values, cotangents, inputs, gradients):
        made = node("CustomGradient", [*values, *cotangents, *inputs, *gradients], len(values))
        return made if len(values) > 1 else [made]

    ops = operations()
    return {ops.stop_gradient.default: lambda x: node("StopGradient", [x]),
            ops.cotangent.default: lambda value: node("Cotangent", [value]),
            ops.custom_gradient.default: custom_gradient}


class Context:
    """The context that an autograd.Function writes to and reads from; every other attribute is its own."""

    def __init__(self, function, arguments):
        import torch
        self._function, self._unused, self.saved_tensors = function, set(), ()
        self.needs_input_grad = tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)

    def save_for_backward(self, *tensors) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors) -> None:
        self._unused = {id(tensor) for tensor in tensors}

    def mark_dirty(self, *_) -> None:
        raise CompileError(f"expected an autograd.Function that leaves its inputs as they are, got {self._function.__qualname__}, "
                           "which marks one as dirty: let its forward return a new tensor")

    def set_materialize_grads(self, _) -> None:
        pass

    save_for_forward = save_for_backward


def like(gradient, argument):
    """As autograd does: the gradient of a value that was broadcast is the sum, in the value's type."""
    if gradient.shape != argument.shape:
        gradient = gradient.sum_to_size(argument.shape)
    return gradient if gradient.dtype == argument.dtype else gradient.to(argument.dtype)


def stated(function, *arguments):
    """The results of function.apply(*arguments), with the backward pass of the function recorded beside it."""
    import torch
    from torch.utils.checkpoint import CheckpointFunction
    if function is CheckpointFunction:  # the gradients of the function that it runs
        return arguments[0](*arguments[2:])
    context = Context(function, arguments)
    inside = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
    if function.setup_context is not torch.autograd.Function.setup_context:
        results = function.forward(*inside)
        function.setup_context(context, tuple(inside), results)
    else:
        results = function.forward(context, *inside)
    several = isinstance(results, (tuple, list))
    results = list(results) if several else [results]
    floats = [i for i, r in enumerate(results)
              if isinstance(r, torch.Tensor) and r.is_floating_point() and id(r) not in context._unused]
    results = [r.detach() if isinstance(r, torch.Tensor) else r for r in results]
    if any(context.needs_input_grad) and torch.is_grad_enabled() and floats:
        values = [results[i] for i in floats]
        cotangents = [operations().cotangent(value) for value in values]
        given = iter(cotangents)
        try:
            gradients = function.backward(context, *(next(given) if i in floats else None for i in range(len(results))))
        except Exception as error:
            raise CompileError(f"cannot keep the gradient of {function.__qualname__}: its backward cannot be recorded: "
                               f"{str(error).splitlines()[0] if str(error) else type(error).__name__}; write it in operations "
                               "on tensors, without values that are known only when it runs") from error
        gradients = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
        pairs = [(a, like(g, a)) for a, g, needed in zip(arguments, gradients, context.needs_input_grad)
                 if needed and g is not None]
        if pairs:
            made = operations().custom_gradient(values, cotangents, [a for a, _ in pairs], [g for _, g in pairs])
            for i, value in zip(floats, made):
                results[i] = value
    return tuple(results) if several else results[0]


@contextlib.contextmanager
def recorded():
    """While it lasts, every autograd.Function is applied by stated(). Function.apply comes by this class, also where a module
    has kept it under another name. Yields the names of the functions that were applied, with how often."""
    from torch.autograd.function import _SingleLevelFunction
    seen = Counter()

    def apply(cls, *arguments):
        if cls.__module__ == "torch._library.autograd":  # of a torch operator as a whole
            return super(_SingleLevelFunction, cls).apply(*arguments)
        seen[cls.__name__.removesuffix("Backward")] += 1
        return stated(cls, *arguments)

    _SingleLevelFunction.apply = classmethod(apply)
    try:
        yield seen
    finally:
        del _SingleLevelFunction.apply


def place(node) -> str:
    """The line of the module that a node comes from."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    if lines:
        return f"{lines[-1][0].rsplit('/', 1)[-1]}:{lines[-1][1]}"
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return modules[-1][0] or node.name if modules else node.name


def hold_padding(graph, node) -> bool:
    """Puts stop_gradient where a look-up reads the row padding_idx, which has no gradient in torch; returns whether it has one."""
    import torch
    aten = torch.ops.aten
    indices, padding = (*node.args, -1)[1:3]
    if padding < 0:
        return False
    made = [node]

    def call(target, *arguments):
        with graph.inserting_after(made[-1]), node.meta["val"].fake_mode:
            new = graph.call_function(target, arguments)
            new.meta = dict(node.meta)
            new.meta["val"] = target(*torch.fx.map_arg(arguments, lambda used: used.meta["val"]))
        made.append(new)
        return new

    held = call(operations().stop_gradient.default, node)
    chosen = call(aten.where.self, call(aten.unsqueeze.default, call(aten.eq.Scalar, indices, padding), -1), held, node)
    node.replace_all_uses_with(chosen, delete_user_cb=lambda user: user not in made)
    return True


def refuse_look_up(node) -> None:
    """Look-ups that scale their gradient, or change their table: no graph of ONNX says so."""
    operator, said = str(node.target), None
    if operator.startswith(("aten.embedding.", "aten.embedding_bag.")) and node.args[3:4] == (True,):
        said = "an embedding whose gradient is the sum over its look-ups", "scale_grad_by_freq=True"
    elif operator.startswith("aten.embedding_renorm"):
        said = "an embedding whose table no look-up changes", "max_norm"
    if said:
        raise CompileError(f"expected {said[0]}, got {said[1]} at {place(node)}: leave it out, or write what it does in operations on tensors")


def mark_stops(program) -> dict:
    """Puts stop_gradient where the program detaches a tensor, computes without gradients, or reads padding; {kind: [places]}."""
    import torch
    stop, found = operations().stop_gradient.default, {}
    without = getattr(torch.ops.higher_order, "wrap_with_set_grad_enabled", None)

    def behind(graph, node):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return False
        with graph.inserting_after(node):
            mark = graph.call_function(stop, (node,))
        mark.meta = dict(node.meta)
        node.replace_all_uses_with(mark, delete_user_cb=lambda user: user is not mark)
        return True

    functions = {place(node) for node in program.graph.nodes if node.target is operations().custom_gradient.default}
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            refuse_look_up(node)
            if node.target in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default) and node.users:
                if behind(part.graph, node) and place(node) not in functions:
                    found.setdefault("detach", []).append(place(node))
            elif node.target is torch.ops.aten.embedding.default and hold_padding(part.graph, node):
                found.setdefault("padding_idx", []).append(place(node))
            elif node.target is without and node.args[0] is False:
                marked = [behind(part.graph, user) for user in list(node.users) if user.users]
                if any(marked):
                    found.setdefault("no_grad", []).append(place(next(iter(node.users))))
        part.graph.lint()
        part.recompile()
    # A result may be behind a mark now.
    output, = (node for node in program.graph.nodes if node.op == "output")
    for spec, value in zip(program.graph_signature.output_specs, output.args[0]):
        if hasattr(spec.arg, "name") and hasattr(value, "name"):
            spec.arg.name = value.name
    return found
