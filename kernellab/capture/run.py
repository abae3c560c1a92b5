"""Execution of a captured graph with torch's own operations, in its dtypes or entirely in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernellab.capture.decompositions.products import rows_of_groups
from kernellab.capture.graph import BITS, LOOP, Body, Graph, Node, Ref, Sym
from kernellab.task.dtypes import parts
from kernellab.task.formula import Term, sizes_from


def execute(graph: Graph, args: Sequence[Any], f64: bool) -> tuple[Any, ...]:
    """Return the outputs of ``graph`` for flattened ``args``; with ``f64``, every float is computed in float64."""

    def upcast(value: Any) -> Any:
        return value.double() if f64 and isinstance(value, torch.Tensor) and value.is_floating_point() else value

    values: dict[str, Any] = {}
    extents: list[tuple[int, Term]] = []
    for argument in graph.inputs:
        constant = graph.constants.get(argument.name)
        tensor = parts(args[argument.position]) if constant is None else constant
        values[argument.name] = upcast(tensor)
        extents += [(int(n), extent) for extent, n in zip(argument.shape, tensor.shape, strict=True)]
    sizes: dict[str, Any] = sizes_from(extents)
    for name, position in graph.scalars.items():
        sizes[name] = args[position]
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == LOOP:
                results = _steps(node, values, sizes, f64)
            else:
                results = _bits(graph, node, values) if node.op == BITS else _call(node, values, sizes, f64)
            values[node.name] = upcast(results) if node.op == BITS else results
    return tuple(_pick(values, ref) for ref in graph.outputs)


def _pick(values: Mapping[str, Any], ref: Ref) -> Any:
    value = values[ref.name]
    return value if ref.item is None else value[ref.item]


def _bits(graph: Graph, node: Node, values: Mapping[str, Any]) -> Any:
    """Reinterpret the bits of a value in its declared dtype, which is restored in float64 mode, as another dtype."""
    declared = graph.dtype(node.args[0])
    return _pick(values, node.args[0]).to(getattr(torch, declared)).view(getattr(torch, node.dtype))


def _steps(node: Node, values: Mapping[str, Any], sizes: Mapping[str, Any], f64: bool) -> list[Any]:
    """Return the results of a loop: its last values, and the tensors that all steps write."""
    body: Body = node.keyword("body")
    count = node.args[0].expr.value(sizes) if isinstance(node.args[0], Sym) else node.args[0]
    state = dict(values)
    carried = [_pick(values, ref) for ref in node.args[1]]
    stacked = node.results[len(carried) :]
    shapes = [[e if isinstance(e, int) else e.value(sizes) for e in shape] for shape, _ in stacked]
    written: list[torch.Tensor] = []
    for step in range(count):
        at = {**sizes, body.step: step}
        state.update(zip(body.before, carried, strict=True))
        for inner in body.nodes:
            state[inner.name] = _call(inner, state, at, f64)
        carried = [_pick(state, ref) for ref in body.after]
        for k, stack in enumerate(body.stacked):
            value = _pick(state, stack.value)
            if step == 0:
                written.append(value.new_zeros(shapes[k]))
            place = stack.place if isinstance(stack.place, int) else stack.place.value(at)
            written[k].select(stack.dim, place).copy_(value)
    if not count:  # no step has created a value whose dtype they would have
        written = [
            torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, (_, dtype) in zip(shapes, stacked, strict=True)
        ]
    return [*carried, *written]


def _call(node: Node, values: Mapping[str, Any], sizes: Mapping[str, Any], f64: bool) -> Any:
    def fill(value: Any) -> Any:
        if isinstance(value, Ref):
            return _pick(values, value)
        if isinstance(value, Sym):
            return value.expr.value(sizes)
        if isinstance(value, (tuple, list)):
            return [fill(v) for v in value]
        if isinstance(value, str) and value.startswith("torch."):
            return _attribute(value, f64)
        return value

    kwargs = {k: fill(v) for k, v in node.kwargs}
    kwargs.pop("device", None)
    kwargs.pop("pin_memory", None)
    kwargs.pop("layout", None)
    if f64 and node.dtype.startswith("float") and not kwargs.get("dtype") and not any(map(_is_given, node.args)):
        kwargs["dtype"] = _attribute("torch.float64", True)  # a tensor created here has the default dtype
    args = [fill(a) for a in node.args]
    function = _function(node.op)
    if not f64 or not node.dtype.startswith("float"):
        return function(*args, **kwargs)
    return _wide(function, args, kwargs)


def _wide(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return a float result in float64, also where torch would compute the default dtype from integers."""

    def double(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and not value.is_complex() else value

    result = function(*args, **kwargs)
    if any(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in tree_leaves(result)):
        # operands that must be positions or conditions give an exact result anyway
        with suppress(RuntimeError):
            result = function(*tree_map(double, args), **kwargs)
    return tree_map(lambda t: double(t) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, result)


def _is_given(value: Any) -> bool:
    """Return whether the argument holds a tensor."""
    return isinstance(value, Ref) or (isinstance(value, (tuple, list)) and any(map(_is_given, value)))


def _attribute(name: str, f64: bool) -> Any:
    value = getattr(torch, name.removeprefix("torch."))
    if f64 and isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value


@lru_cache(maxsize=512)
def _function(op: str) -> Any:
    if op == "aten.view.default":
        op = "aten.reshape.default"  # a viewed tensor may have another memory layout here than in the trace
    if op == "aten._grouped_mm.default":
        return rows_of_groups  # torch has no wide version
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)
