"""A traced graph as lines of Python: ``mul = torch.ops.aten.mul.Tensor(grad, x)``; sizes are written as expressions."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from kernellab.errors import CaptureError
from kernellab.model_integration.task_text import literal, operation_text

#: what a person does about a backward that cannot be written down
REMEDY = "Write the reference with functions of torch on its tensors alone, or leave out GRAD = True."
#: written as reshapes, for a caller's tensor may have other strides than the traced one
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_SIGNS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
    operator.mod: "%", operator.pow: "**", pow: "**",
}  # fmt: skip


class GraphText(NamedTuple):
    """The graph's lines, and the names of its results."""

    lines: list[str]
    results: list[str]


def graph_text(name: str, graph: Graph, arguments: Sequence[str]) -> GraphText:
    """``graph`` as Python, for arguments of these names; ``name`` is the task's, for messages.

    Raises:
        CaptureError: the graph holds a constant tensor, or an operation that cannot be written as text.
    """
    texts: dict[Node, str] = {}
    lines: list[str] = []
    unbound = iter(arguments)
    used = set(arguments)
    results: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            texts[node] = next(unbound)
        elif node.op == "call_function" and _word(node) in ("alias", "detach"):
            texts[node] = texts[node.args[0]]
        elif node.op == "call_function":
            text = _expression(name, node, texts, next(iter(arguments), ""))
            if _is_number(node.meta.get("val")):
                texts[node] = f"({text})" if node.target in _SIGNS else text
                continue
            texts[node] = unused_name(re.sub(r"\W", "_", _word(node)).strip("_"), used)
            lines.append(f"{texts[node]} = {text}")
        elif node.op == "output":
            results = [texts[n] for n in node.args[0]]
        else:
            raise CaptureError(f"The backward of {name!r} holds a constant tensor.", REMEDY)
    return GraphText(lines, results)


def unused_name(word: str, used: set[str]) -> str:
    """``word``, with a number where it is used; it is used from then on."""
    name, count = word, 1
    while name in used:
        count += 1
        name = f"{word}_{count}"
    used.add(name)
    return name


def _expression(task_name: str, node: Node, texts: dict[Node, str], tensor: str) -> str:
    def text_of(value: Any) -> str:
        return literal(value, texts.__getitem__)

    target: Any = node.target
    if target in _SIGNS:
        return f"{text_of(node.args[0])} {_SIGNS[target]} {text_of(node.args[1])}"
    if target is operator.getitem:
        return f"{text_of(node.args[0])}[{node.args[1]!r}]"
    if not hasattr(target, "_schema"):
        if getattr(target, "__name__", "") in ("sym_float", "sym_max", "sym_min"):
            word = target.__name__.removeprefix("sym_")
            return f"{word}({', '.join(map(text_of, node.args))})"
        raise CaptureError(f"The backward of {task_name!r} uses {target}, which cannot be written as text.", REMEDY)
    if target in _VIEWS:
        target = torch.ops.aten.reshape.default
    if _word(node) == "sym_size":
        return f"{text_of(node.args[0])}.shape[{text_of(node.args[1])}]"
    return operation_text(target, node, text_of, tensor)


def _word(node: Node) -> str:
    target: Any = node.target
    return str(target._schema.name.split("::")[1] if hasattr(target, "_schema") else target.__name__)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))
