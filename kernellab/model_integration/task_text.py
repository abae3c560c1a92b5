"""A region as a task's text: its operations as plain torch calls, its inputs drawn as the model saw them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from kernellab.errors import ProfileError
from kernellab.model_integration.regions import Region

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_DTYPES_OF_RAND = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True)
class Seen:
    """What a value was like when the model ran: extremes, mean and standard deviation."""

    low: float
    high: float
    mean: float
    spread: float


def seen(value: torch.Tensor) -> Seen:
    if not value.numel():
        return Seen(0, 0, 0, 1)
    wide = value.detach().double()
    spread = float(wide.std()) if wide.numel() > 1 else 0.0
    return Seen(float(wide.min()), float(wide.max()), float(wide.mean()), spread)


def reference_text(region: Region) -> str:
    """``def reference(...)``: equal text for regions that do the same at the same shapes.

    Raises:
        ProfileError: an argument of an operation cannot be written down.
    """
    names = argument_names(region)
    body: dict[Node, str] = {}
    used: dict[str, int] = {}
    lines = []
    for op in region.ops:
        word = re.sub(r"\W", "_", op.word).strip("_") or "value"
        used[word] = used.get(word, 0) + 1
        body[op.node] = f"{word}_{used[word]}"
        lines.append(f"    {body[op.node]} = {_call(op.node, {**names, **body})}")
    outputs = ", ".join(body[node] for node in region.outputs)
    return "\n".join([f"def reference({', '.join(names.values())}):", *lines, f"    return {outputs}"])


def task_text(region: Region, stats: Mapping[Node, Seen]) -> str:
    """The whole task: reference and inputs, of exactly this region's shapes, dtypes and layouts."""
    drawn = ",\n        ".join(_drawn(node.meta["val"], stats.get(node)) for node in region.inputs)
    where = region.path or "the model"
    return (
        f'"""{region.words}, from {where}."""\n\nimport torch\n\n\n{reference_text(region)}\n\n\n'
        f"def inputs():\n    return [\n        {drawn},\n    ]\n"
    )


def argument_names(region: Region) -> dict[Node, str]:
    """The kernel's arguments: x, x2 for values, and a parameter's own last word for the model's state."""
    names: dict[Node, str] = {}
    count: dict[str, int] = {}
    for node in region.inputs:
        wish = region.unit.state.get(node, "x").rpartition(".")[2] if node in region.unit.state else "x"
        wish = re.sub(r"\W", "_", wish).strip("_") or "x"
        wish = wish if not wish[0].isdigit() else f"p{wish}"
        count[wish] = count.get(wish, 0) + 1
        names[node] = wish if count[wish] == 1 else f"{wish}{count[wish]}"
    return names


def _call(node: Node, names: Mapping[Node, str]) -> str:
    target: Any = node.target
    if not hasattr(target, "_schema"):
        source, item = node.args
        return f"{_written(source, names)}[{item!r}]"
    word = target._schema.name.partition("::")[2]
    plain = not node.kwargs and len(node.args) == 2
    if word in _SIGNS and plain and target._overloadname in ("Tensor", "Scalar"):
        left, right = (_written(a, names) for a in node.args)
        return f"{left} {_SIGNS[word]} {right}"
    return operation_text(target, node, lambda value: _written(value, names), next(iter(names.values()), ""))


def operation_text(target: Any, node: Node, text_of: Callable[[Any], str], tensor: str) -> str:
    """``torch.ops.aten.mul.Tensor(x, y)``: an operation with the node's arguments, which ``text_of`` writes.

    One that makes a tensor from none makes it on the device of ``tensor``, the name of one: a GPU's reference is called
    with ``torch.device``, which does not reach an operation of ATen.
    """
    arguments = [text_of(a) for a in node.args]
    arguments += [f"{key}={text_of(v)}" for key, v in node.kwargs.items() if key not in ("device", "pin_memory")]
    types = {argument.name: str(argument.type) for argument in target._schema.arguments}
    if tensor and "device" in types and not any("Tensor" in kind for kind in types.values()):
        arguments.append(f"device={tensor}.device")
    return f"torch.ops.{target._schema.name.replace('::', '.')}.{target._overloadname}({', '.join(arguments)})"


def _written(value: Any, names: Mapping[Node, str]) -> str:
    return literal(value, names.__getitem__)


def literal(value: Any, name: Callable[[Any], str]) -> str:
    """An argument of an operation as Python's text; ``name`` gives a node's.

    Raises:
        ProfileError: it is of a kind that a text cannot hold.
    """
    if isinstance(value, Node):
        return name(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(literal(v, name) for v in value)}]"
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, float) and value - value != 0:
        return f'float("{value}")'
    if isinstance(value, (bool, int, float, str)) or value is None:
        return repr(value)
    if isinstance(value, torch.device):
        return "None"
    raise ProfileError(
        f"An argument of the region is a {type(value).__name__}, which cannot be written in a task's text.",
        "Open a smaller row of the profile, or state the task yourself.",
    )


def _drawn(value: torch.Tensor, stat: Seen | None) -> str:
    """An expression that draws a value of this shape, dtype and layout, about as the model saw it."""
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda d: (-strides[d], d))
    dense = _dense(value, order)
    shape = [int(value.shape[d]) for d in order] if dense else [int(e) for e in value.shape]
    text = _values(shape, str(value.dtype).removeprefix("torch."), stat or Seen(-1, 1, 0, 1))
    if dense and order != list(range(value.dim())):
        back = [order.index(d) for d in range(value.dim())]
        return f"({text}).permute({', '.join(map(str, back))})"
    return text


def _dense(value: torch.Tensor, order: list[int]) -> bool:
    expected = 1
    for d in reversed(order):
        if value.shape[d] != 1 and value.stride(d) != expected:
            return False
        expected *= int(value.shape[d])
    return True


def _values(shape: list[int], dtype: str, stat: Seen) -> str:
    if dtype == "bool":
        return f"torch.rand({shape}) < {max(0.02, min(0.98, stat.mean)):.2g}"
    if dtype not in _DTYPES_OF_RAND:
        return f"torch.randint({int(stat.low)}, {int(stat.high) + 1}, {shape}, dtype=torch.{dtype})"
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if stat.low >= 0:
        # a scale or a variance: constant ones would not tell a kernel that forgets it
        low, high = stat.low, max(stat.high, stat.low + 0.5)
        return f"torch.rand({shape}{kind}) * {high - low:.3g} + {low:.3g}"
    spread = max(stat.spread, 0.02)
    mean = stat.mean if abs(stat.mean) > 0.05 * spread else 0.0
    scaled = f"torch.randn({shape}{kind})" + (f" * {spread:.3g}" if abs(spread - 1) > 0.05 else "")
    return f"{scaled} + {mean:.3g}" if mean else scaled


__all__ = ["Seen", "argument_names", "literal", "reference_text", "seen", "task_text"]
