"""The backward of a task as a separate task: plain operations from the outputs' gradients to the inputs'.

The reference and torch's autograd are traced as one graph over symbolic sizes (as AOTAutograd does), with what the
backward is made of taken apart into pointwise operations, reductions and products; the forward's values are computed
again from its inputs. The graph is written down as the text of a task, so that the rules design it like any other.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from kernellab.errors import CaptureError
from kernellab.model_integration.gradient.attention import Attention, safe_softmax, softmax
from kernellab.model_integration.gradient.saved import cut, results_alone
from kernellab.model_integration.sources import tensors_in
from kernellab.operations.aten import ATEN
from kernellab.task import Task, TaskForm
from kernellab.task.dims import extent
from kernellab.task.faking import tracing

#: of DOMAIN: values as inputs() gives them
_FIXED = "fixed"
_REMEDY = "Write the reference with functions of torch on its tensors alone, or leave out GRAD = True."
#: distinct sizes for symbols, so that none is taken for another
_PRIMES = (29, 37, 41, 43, 47, 53, 59, 61)
#: taps of a channel's own window up to which a gradient of its weights has a sum for each
_FEW_TAPS = 49
#: written as reshapes, for a caller's tensor may have other strides than the traced one
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_SIGNS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
    operator.mod: "%", operator.pow: "**", pow: "**",
}  # fmt: skip


@dataclass(frozen=True)
class PairTexts:
    """The texts of the tasks of a pair. ``backward``'s arguments are the outputs' gradients, the inputs, then the
    results of ``forward`` at ``saved``. Without a ``forward`` nothing is saved: the backward reads the inputs alone."""

    backward: str
    forward: str = ""
    saved: tuple[int, ...] = ()


def backward_text(task: Task) -> str:
    """The text of the backward of ``task``: ``reference(grad, *inputs)`` gives the gradients of its float inputs.

    Raises:
        CaptureError: the task has a Model, several outputs of which one has no gradient, or cannot be traced.
    """
    _check(task)
    graph, names = _traced(task)
    lines, results = _written(task, graph, names)
    smooth = _differentiable(task)
    leaves = ", ".join(f"{name}.detach().requires_grad_()" for name in smooth)
    of_leaves = [f"leaves[{smooth.index(a.name)}]" if a.name in smooth else a.name for a in task.tensors]
    count = len(task.outputs)
    above = names[0] if count == 1 else f"({', '.join(names[:count])})"
    return (
        f"{_head(task)}"
        f"def reference({', '.join(names)}):\n"
        f'    """The gradients of {", ".join(smooth)}, from those of the outputs, by autograd."""\n'
        f"    with torch.enable_grad():\n"
        f"        leaves = [{leaves}]\n"
        f"        made = _forward({', '.join(of_leaves)})\n"
        f"    return torch.autograd.grad(made, leaves, {above})\n\n\n"
        f"{_function('plain', names, lines, results, 'As the reference, operation by operation: what is designed.')}"
        f"{_inputs(task, f'({_drawn_all(task)}*given[:{len(task.tensors)}])')}"
    )


def pair_texts(task: Task) -> PairTexts:
    """The texts of a forward that saves what its backward needs, and of that backward; only a backward where a saved
    tensor costs more than what it spares. The backward's reference is a function of the saved tensors as well.

    Raises:
        CaptureError: as :func:`backward_text`.
    """
    _check(task)
    graph, names = _traced(task, saving=True)
    count = len(task.outputs)
    parts = cut(task, graph, count, count)
    if parts is None:
        return PairTexts(backward_text(task))
    tensors = names[count:]
    lines, results = _written(task, parts.forward, tensors)
    only, kept = _written(task, results_alone(parts.forward, count), tensors)
    given = ", ".join(tensors)
    saving = _function("_saved", tensors, only, kept, "What the backward reads besides the inputs and the outputs.")
    saving += (
        "def _each(made):\n"
        "    return tuple(made) if isinstance(made, (tuple, list)) else (made,)\n\n\n"
        f"def _results({given}):\n"
        f'    """The outputs, and what the backward reads besides."""\n'
        f"    return (*_each(_forward({given})), *_saved({given}))\n\n\n"
    )
    forward = (
        f"{_head(task)}{saving}"
        f"def reference({given}):\n"
        f'    """The outputs, and what the backward reads besides."""\n'
        f"    return _results({given})\n\n\n"
        f"{_function('plain', tensors, lines, results, 'As the reference, operation by operation: what is designed.')}"
        f"{_inputs(task, f'given[:{len(tensors)}]')}"
    )
    used = set(names)
    saved = [_fresh(f"saved{i + 1}", used) for i in range(len(parts.saved))]
    lines, results = _written(task, parts.backward, [*names, *saved])
    taken = "".join(f"made[{at}], " for at in parts.saved)
    smooth = ", ".join(_differentiable(task))
    backward = (
        f"{_head(task)}{saving}"
        f"def _derived({', '.join(names)}, *_):\n"
        f'    """What the forward saves for these, so that saved tensors belong to the inputs."""\n'
        f"    made = _results({given})\n"
        f"    return {taken.strip()}\n\n\n"
        f"DOMAIN = {{**globals().get('DOMAIN', {{}}), {', '.join(f'{name!r}: {_FIXED!r}' for name in saved)}}}\n\n\n"
        f"{_function('reference', [*names, *saved], lines, results, f'The gradients of {smooth}, with what is saved.')}"
        + _inputs(
            task, "(*given, *_derived(*given))",
            f"    given = ({_drawn_all(task)}*given[:{len(tensors)}])\n",
        )
    )  # fmt: skip
    return PairTexts(backward, forward, parts.saved)


def _check(task: Task) -> None:
    if task.form is not TaskForm.NATIVE or task.framework != "torch":
        raise CaptureError(
            f"The backward of {task.name!r} cannot be taken: it is not a function of torch.",
            "State it with reference(...) and inputs(...); a row of a model's profile is stated so.",
        )


def _head(task: Task) -> str:
    return f"{task.text.rstrip()}\n\n\nGRAD = False\n_forward, _forward_inputs = reference, inputs\n\n\n"


def _function(name: str, names: Sequence[str], lines: Sequence[str], results: Sequence[str], said: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    returned = ", ".join(results) + ("," if name == "_saved" and len(results) == 1 else "")
    return f'def {name}({", ".join(names)}):\n    """{said}"""\n{body}    return {returned}\n\n\n'


def _inputs(task: Task, returned: str, more: str = "") -> str:
    sizes = task.module().default_sizes()
    defaults = ", ".join(f"{name}={size}" for name, size in sizes.items())
    passed = ", ".join(f"{name}={name}" for name in sizes)
    return (
        f"def inputs({defaults}):\n"
        f"    given = _forward_inputs({passed})\n"
        f"    given = tuple(given) if isinstance(given, (tuple, list)) else (given,)\n"
        f"{more}    return {returned}\n"
    )


def _drawn_all(task: Task) -> str:
    return "".join(f"{_drawn(o.shape, o.dtype)}, " for o in task.outputs)


def _differentiable(task: Task) -> list[str]:
    return [a.name for a in task.tensors if "float" in a.dtype]


def _traced(task: Task, saving: bool = False) -> tuple[Graph, list[str]]:
    """The graph from the outputs' gradients and the tensors to the gradients (``saving``: to the outputs and them), and
    its arguments' names."""
    module = task.module()
    sizes = _sizes(task)
    args = list(module.sample(sizes))
    if [a.is_tensor for a in task.args] != sorted((a.is_tensor for a in task.args), reverse=True):
        raise CaptureError(
            f"{task.name!r} takes a number before a tensor.", "Put numbers behind the tensors, with defaults."
        )
    tensors = [a for a, spec in zip(args, task.args, strict=True) if spec.is_tensor]
    rest = args[len(tensors) :]
    floats = [i for i, a in enumerate(tensors) if a.is_floating_point()]
    grads = [torch.randn(tuple(extent(e, sizes) for e in o.shape)).to(_dtype(o.dtype)) for o in task.outputs]

    def joint(*flat: Any) -> tuple[Any, ...]:
        above, values = flat[: len(grads)], list(flat[len(grads) :])
        for i in floats:
            values[i] = values[i].detach().requires_grad_(True)
        with torch.enable_grad():
            outputs = tensors_in(module.call([*values, *rest]))
        gradients = torch.autograd.grad(outputs, [values[i] for i in floats], above, allow_unused=True)
        if any(g is None for g in gradients):
            odd = _differentiable(task)[[g is None for g in gradients].index(True)]
            raise CaptureError(
                f"No output of {task.name!r} depends smoothly on {odd!r}.", "Make it an integer, or drop it."
            )
        return (*(o.detach() for o in outputs), *gradients) if saving else tuple(gradients)

    attention = Attention() if saving else torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    try:
        with tracing(), attention:
            traced = make_fx(
                joint, decomposition_table=_decompositions(saving), tracing_mode="symbolic" if task.dims else "fake"
            )(*grads, *tensors)
    except CaptureError:
        raise
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        message = f"The backward of {task.name!r} cannot be traced: {reason.strip()[:200]}"
        raise CaptureError(message, _REMEDY) from error
    traced.graph.eliminate_dead_code()
    above = ["grad"] if len(grads) == 1 else [f"grad{i + 1}" for i in range(len(grads))]
    used = {a.name for a in task.tensors}
    return traced.graph, [*(f"{n}_" if n in used else n for n in above), *(a.name for a in task.tensors)]


def _sizes(task: Task) -> dict[str, int]:
    """A size for each Dim: a prime that is no other's, and none that the shapes state."""
    shapes = [*(a.shape for a in task.tensors), *(o.shape for o in task.outputs)]
    taken: set[Any] = {extent for shape in shapes for extent in shape}
    sizes: dict[str, int] = {}
    for d in task.dims:
        above = (n for n in itertools.count(_PRIMES[-1] + 2) if all(n % k for k in range(2, math.isqrt(n) + 1)))
        size = next(p for p in itertools.chain(_PRIMES, above) if p >= d.min and p not in taken)
        sizes[d.name] = min(size, d.max)
        taken.add(size)
    return sizes


def _decompositions(saving: bool) -> dict[Any, Any]:
    """What forward and backward are made of, down to pointwise operations, reductions, products and moves."""
    every = torch._decomp.decomposition_table
    table: dict[Any, Any] = {}
    for name in (row.name for row in ATEN.values() if row.apart_in_backward):
        packet = getattr(torch.ops.aten, name, None)
        overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet else []
        table |= {op: every[op] for op in overloads if op in every}
    own = {
        torch.ops.aten.native_layer_norm: _layer_norm, torch.ops.aten.native_group_norm: _group_norm,
        torch.ops.aten.convolution_backward: _convolution_backward,
    }  # fmt: skip
    if saving:
        own |= {torch.ops.aten._softmax: softmax, torch.ops.aten._safe_softmax: safe_softmax}
    return table | {packet.default: rule for packet, rule in own.items()}


def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """torch's own decomposition is of primitives that an export does not take."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    rate = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    normed = centred * rate
    normed = normed * weight if weight is not None else normed
    normed = normed + bias if bias is not None else normed
    return normed.to(x.dtype), mean, rate


def _wide(x: Any) -> Any:
    return x.float() if x.element_size() == 2 else x


def _group_norm(
    x: Any, weight: Any, bias: Any, samples: int, channels: int, positions: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """The same over the channels of a group and all positions."""
    normed, mean, rate = _layer_norm(x.reshape(samples, groups, -1), [channels // groups * positions], None, None, eps)
    normed = normed.reshape(x.shape)
    across = [1, channels, *([1] * (x.dim() - 2))]
    normed = normed * weight.reshape(across) if weight is not None else normed
    normed = normed + bias.reshape(across) if bias is not None else normed
    return normed.to(x.dtype), mean.squeeze(-1), rate.squeeze(-1)


def _convolution_backward(
    grad: Any, x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int, needs_grad: Sequence[bool],
) -> Any:  # fmt: skip
    """A convolution of the gradient for the input's, and one with samples summed as channels for the weight's."""
    convolution = torch.ops.aten.convolution.default
    to_x = to_weight = to_bias = None
    if needs_grad[0] and transposed:
        to_x = convolution(grad, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)
    elif needs_grad[0]:
        sizes = zip(x.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        left = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in sizes]
        to_x = convolution(grad, weight, None, stride, padding, dilation, True, left, groups)
    if needs_grad[1]:
        # windows lie over what is the longer: of a transposed convolution its result
        read, above = (grad, x) if transposed else (x, grad)
        to_weight = _of_windows(read, above, weight.shape, stride, padding, dilation, groups)
    if needs_grad[2]:
        to_bias = grad.sum([0, *range(2, grad.dim())])
    return to_x, to_weight, to_bias


def _of_windows(
    read: Any, above: Any, shape: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int,
) -> Any:  # fmt: skip
    """The sums, over samples and positions, of each element of ``above`` times the elements under its window."""
    kernel, rank = shape[2:], len(stride)
    if groups == read.shape[1] == above.shape[1] and math.prod(kernel) <= _FEW_TAPS:
        # a channel by itself: a sum for each tap, all of one read
        padded = torch.nn.functional.pad(read, [p for p in reversed(padding) for _ in range(2)])
        taps = []
        for tap in itertools.product(*map(range, kernel)):
            under = padded
            for dim, (k, n) in enumerate(zip(tap, above.shape[2:], strict=True)):
                start, step = k * dilation[dim], stride[dim]
                under = torch.ops.aten.slice.Tensor(under, dim + 2, start, start + (n - 1) * step + 1, step)
            taps.append((_wide(under) * _wide(above)).sum([0, *range(2, rank + 2)]))
        return torch.stack(taps, 1).reshape(shape).to(read.dtype)
    samples = read.transpose(0, 1)
    if groups > 1:
        of_groups = read.reshape(read.shape[0], groups, read.shape[1] // groups, *read.shape[2:])
        samples = of_groups.transpose(0, 2).flatten(1, 2)
    convolution = torch.ops.aten.convolution.default
    sums = convolution(samples, above.transpose(0, 1), None, dilation, padding, stride, False, [0] * rank, groups)
    for dim, size in enumerate(kernel, start=2):
        sums = sums.narrow(dim, 0, size)
    return sums.transpose(0, 1)


def _dtype(name: str) -> Any:
    return getattr(torch, name)


def _drawn(shape: Sequence[int | str], dtype: str) -> str:
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    return f"torch.randn({', '.join(map(str, shape)) or '()'}{kind})"


def _written(task: Task, graph: Graph, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The graph's lines and its outputs' names."""
    texts: dict[Node, str] = {}
    lines: list[str] = []
    arguments = iter(names)
    used = set(names)
    outputs: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            texts[node] = next(arguments)
        elif node.op == "call_function" and _word(node) in ("alias", "detach"):
            texts[node] = texts[node.args[0]]
        elif node.op == "call_function":
            text = _expression(task, node, texts)
            if _is_number(node.meta.get("val")):
                texts[node] = f"({text})" if node.target in _SIGNS else text
                continue
            name = _fresh(re.sub(r"\W", "_", _word(node)).strip("_"), used)
            texts[node] = name
            lines.append(f"{name} = {text}")
        elif node.op == "output":
            outputs = [texts[n] for n in node.args[0]]
        else:
            raise CaptureError(f"The backward of {task.name!r} holds a constant tensor.", _REMEDY)
    return lines, outputs


def _fresh(word: str, used: set[str]) -> str:
    name, count = word, 1
    while name in used:
        count += 1
        name = f"{word}_{count}"
    used.add(name)
    return name


def _expression(task: Task, node: Node, texts: dict[Node, str]) -> str:
    from kernellab.model_integration.task_text import literal

    def of(value: Any) -> str:
        return literal(value, texts.__getitem__)

    target: Any = node.target
    if target in _SIGNS:
        return f"{of(node.args[0])} {_SIGNS[target]} {of(node.args[1])}"
    if target is operator.getitem:
        return f"{of(node.args[0])}[{node.args[1]!r}]"
    if not hasattr(target, "_schema"):
        if getattr(target, "__name__", "") in ("sym_float", "sym_max", "sym_min"):
            word = target.__name__.removeprefix("sym_")
            return f"{word}({', '.join(map(of, node.args))})"
        raise CaptureError(f"The backward of {task.name!r} uses {target}, which cannot be written as text.", _REMEDY)
    if target in _VIEWS:
        target = torch.ops.aten.reshape.default
    space, word = target._schema.name.split("::")
    if word == "sym_size":
        return f"{of(node.args[0])}.shape[{of(node.args[1])}]"
    args = [of(a) for a in node.args]
    args += [f"{key}={of(v)}" for key, v in node.kwargs.items() if key not in ("device", "pin_memory")]
    return f"torch.ops.{space}.{word}.{target._overloadname}({', '.join(args)})"


def _word(node: Node) -> str:
    target: Any = node.target
    return str(target._schema.name.split("::")[1] if hasattr(target, "_schema") else target.__name__)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))
