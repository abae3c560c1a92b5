"""The backward of a task as a separate task: plain operations from the outputs' gradients to the inputs'.

The reference and torch's autograd are traced as one graph over symbolic sizes (as AOTAutograd does), with what the
backward is made of taken apart into pointwise operations, reductions and products; the forward's values are computed
again from its inputs, or saved by a second forward. The graph is written down as the text of a task, so that the rules
design it like any other: ``reference`` states the backward by autograd, ``plain`` operation by operation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx

from kernellab.errors import CaptureError
from kernellab.model_integration.gradient.attention import Attention
from kernellab.model_integration.gradient.decompositions import decompositions
from kernellab.model_integration.gradient.graph_text import REMEDY, graph_text, unused_name
from kernellab.model_integration.gradient.saved import Cut, cut, results_alone
from kernellab.model_integration.sources import tensors_in
from kernellab.task import Task, TaskForm
from kernellab.task.dims import extent
from kernellab.task.faking import tracing

#: of DOMAIN: values as inputs() gives them
_FIXED = "fixed"
#: distinct sizes for symbols, so that none is taken for another
_PRIMES = (29, 37, 41, 43, 47, 53, 59, 61)


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
    differentiable = _differentiable(task)
    leaves = ", ".join(f"{name}.detach().requires_grad_()" for name in differentiable)
    passed = [f"leaves[{differentiable.index(a.name)}]" if a.name in differentiable else a.name for a in task.tensors]
    count = len(task.outputs)
    output_gradients = names[0] if count == 1 else f"({', '.join(names[:count])})"
    return (
        f"{_head(task)}"
        f"def reference({', '.join(names)}):\n"
        f'    """The gradients of {", ".join(differentiable)}, from those of the outputs, by autograd."""\n'
        f"    with torch.enable_grad():\n"
        f"        leaves = [{leaves}]\n"
        f"        made = _forward({', '.join(passed)})\n"
        f"    return torch.autograd.grad(made, leaves, {output_gradients})\n\n\n"
        f"{_plain(task, graph, names)}"
        f"{_inputs(task, f'({_drawn_gradients(task)}*given[:{len(task.tensors)}])')}"
    )


def pair_texts(task: Task) -> PairTexts:
    """The texts of a forward that saves what its backward needs, and of that backward; only a backward where a saved
    tensor costs more than what it spares. The backward's reference is a function of the saved tensors as well.

    Raises:
        CaptureError: as :func:`backward_text`.
    """
    _check(task)
    graph, names = _traced(task, saves=True)
    parts = cut(task, graph, len(task.outputs))
    if parts is None:
        return PairTexts(backward_text(task))
    tensors = names[len(task.outputs) :]
    results = _results_functions(task, parts.forward, tensors)
    return PairTexts(
        backward=_saved_backward(task, parts, names, results),
        forward=_saving_forward(task, parts.forward, tensors, results),
        saved=parts.saved,
    )


def _results_functions(task: Task, forward: Graph, tensors: Sequence[str]) -> str:
    """``_saved`` and ``_results``, which the texts of both tasks have: what a forward saves, and all that it gives."""
    lines, saved = graph_text(task.name, results_alone(forward, len(task.outputs)), tensors)
    arguments = ", ".join(tensors)
    return (
        _function("_saved", tensors, lines, saved, "What the backward reads besides the inputs and the outputs.")
        + "def _each(made):\n"
        "    return tuple(made) if isinstance(made, (tuple, list)) else (made,)\n\n\n"
        f"def _results({arguments}):\n"
        f'    """The outputs, and what the backward reads besides."""\n'
        f"    return (*_each(_forward({arguments})), *_saved({arguments}))\n\n\n"
    )


def _saving_forward(task: Task, forward: Graph, tensors: Sequence[str], results: str) -> str:
    arguments = ", ".join(tensors)
    return (
        f"{_head(task)}{results}"
        f"def reference({arguments}):\n"
        f'    """The outputs, and what the backward reads besides."""\n'
        f"    return _results({arguments})\n\n\n"
        f"{_plain(task, forward, tensors)}"
        f"{_inputs(task, f'given[:{len(tensors)}]')}"
    )


def _saved_backward(task: Task, parts: Cut, names: Sequence[str], results: str) -> str:
    """The backward's arguments are ``names``, then the saved tensors, which are derived from the inputs."""
    tensors = names[len(task.outputs) :]
    used = set(names)
    saved = [unused_name(f"saved{i + 1}", used) for i in range(len(parts.saved))]
    lines, gradients = graph_text(task.name, parts.backward, [*names, *saved])
    taken = "".join(f"made[{at}], " for at in parts.saved)
    told = f"The gradients of {', '.join(_differentiable(task))}, with what is saved."
    return (
        f"{_head(task)}{results}"
        f"def _derived({', '.join(names)}, *_):\n"
        f'    """What the forward saves for these, so that saved tensors belong to the inputs."""\n'
        f"    made = _results({', '.join(tensors)})\n"
        f"    return {taken.strip()}\n\n\n"
        f"DOMAIN = {{**globals().get('DOMAIN', {{}}), {', '.join(f'{name!r}: {_FIXED!r}' for name in saved)}}}\n\n\n"
        f"{_function('reference', [*names, *saved], lines, gradients, told)}"
        + _inputs(
            task, "(*given, *_derived(*given))",
            f"    given = ({_drawn_gradients(task)}*given[:{len(tensors)}])\n",
        )
    )  # fmt: skip


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


def _plain(task: Task, graph: Graph, names: Sequence[str]) -> str:
    lines, results = graph_text(task.name, graph, names)
    return _function("plain", names, lines, results, "As the reference, operation by operation: what is designed.")


def _inputs(task: Task, returned: str, more: str = "") -> str:
    """The text of ``inputs``: as the task's own, ``given``; ``more`` lines of it, and what it gives."""
    sizes = task.module().default_sizes()
    defaults = ", ".join(f"{name}={size}" for name, size in sizes.items())
    passed = ", ".join(f"{name}={name}" for name in sizes)
    return (
        f"def inputs({defaults}):\n"
        f"    given = _forward_inputs({passed})\n"
        f"    given = tuple(given) if isinstance(given, (tuple, list)) else (given,)\n"
        f"{more}    return {returned}\n"
    )


def _drawn_gradients(task: Task) -> str:
    """The text of random gradients of the outputs, each with a comma after it."""
    return "".join(f"{_drawn(o.shape, o.dtype)}, " for o in task.outputs)


def _differentiable(task: Task) -> list[str]:
    return [a.name for a in task.tensors if "float" in a.dtype]


def _traced(task: Task, saves: bool = False) -> tuple[Graph, list[str]]:
    """The graph from the outputs' gradients and the tensors to the gradients (``saves``: to the outputs and them), and
    its arguments' names."""
    if [a.is_tensor for a in task.args] != sorted((a.is_tensor for a in task.args), reverse=True):
        raise CaptureError(
            f"{task.name!r} takes a number before a tensor.", "Put numbers behind the tensors, with defaults."
        )
    module, sizes = task.module(), _sizes(task)
    args = list(module.sample(sizes))
    count = len(task.tensors)
    tensors, numbers = args[:count], args[count:]
    grads = [torch.randn(tuple(extent(e, sizes) for e in o.shape)).to(getattr(torch, o.dtype)) for o in task.outputs]

    def joint(*flat: Any) -> tuple[Any, ...]:
        output_gradients, values = flat[: len(grads)], list(flat[len(grads) :])
        floats = [i for i, value in enumerate(values) if value.is_floating_point()]
        for i in floats:
            values[i] = values[i].detach().requires_grad_(True)
        with torch.enable_grad():
            outputs = tensors_in(module.call([*values, *numbers]))
        gradients = torch.autograd.grad(outputs, [values[i] for i in floats], output_gradients, allow_unused=True)
        if any(g is None for g in gradients):
            without = _differentiable(task)[[g is None for g in gradients].index(True)]
            raise CaptureError(
                f"No output of {task.name!r} depends smoothly on {without!r}.", "Make it an integer, or drop it."
            )
        return (*(o.detach() for o in outputs), *gradients) if saves else tuple(gradients)

    attention = Attention() if saves else torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    try:
        with tracing(), attention:
            traced = make_fx(
                joint, decomposition_table=decompositions(saves), tracing_mode="symbolic" if task.dims else "fake"
            )(*grads, *tensors)
    except CaptureError:
        raise
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        message = f"The backward of {task.name!r} cannot be traced: {reason.strip()[:200]}"
        raise CaptureError(message, REMEDY) from error
    traced.graph.eliminate_dead_code()
    words = ["grad"] if len(grads) == 1 else [f"grad{i + 1}" for i in range(len(grads))]
    used = {a.name for a in task.tensors}
    return traced.graph, [*(f"{word}_" if word in used else word for word in words), *(a.name for a in task.tensors)]


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


def _drawn(shape: Sequence[int | str], dtype: str) -> str:
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    return f"torch.randn({', '.join(map(str, shape)) or '()'}{kind})"
