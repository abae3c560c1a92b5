"""The decompositions of an export: torch's own, those of this package, and which operations stay whole."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from kernellab.capture.decompositions.tables import APART, SIGNAL_WINDOWS, WITH_PLACES
from kernellab.capture.writes import select_scatter
from kernellab.operations.aten import ATEN, Capture
from kernellab.operations.sketch import OPS

#: the operation that writes one place of a tensor
WRITE_OF_A_PLACE = torch.ops.aten.select_scatter.default


@lru_cache(maxsize=1)
def decompositions() -> dict[Any, Any]:
    """Return the decompositions as a plain dict: torch's own table queries the dispatcher for every operator at each
    use."""
    table: dict[Any, Any] = {
        op: decomposition
        for op, decomposition in torch.export.default_decompositions().decomp_table.items()
        if not _has_capture(op, Capture.WHOLE)
    }
    all_decompositions = torch._decomp.decomposition_table
    table |= {op: decomposition for op, decomposition in all_decompositions.items() if _has_capture(op, Capture.APART)}
    pooling = torch.ops.aten._adaptive_avg_pool2d.default
    table[pooling] = partial(_unless_even, all_decompositions[pooling])
    table |= {op: APART[name] for name, op in _operators(APART).items()}
    table[WRITE_OF_A_PLACE] = select_scatter(all_decompositions[WRITE_OF_A_PLACE])
    return {**{op: SIGNAL_WINDOWS[name] for name, op in _operators(SIGNAL_WINDOWS).items()}, **table}


def _has_capture(op: Any, capture: Capture) -> bool:
    """Return whether the table of operations has ``capture`` for this overload. For an operation of a sketch, the
    overload must have that operation's operands, all tensors: numbers have a dtype that torch's decomposition
    settles."""
    schema: Any = getattr(op, "_schema", None)
    space, _, name = schema.name.partition("::") if schema else ("", "", "")
    row = ATEN.get(name) if space == "aten" else None
    if row is None or row.capture is not capture:
        return False
    operands = [str(a.type) for a in schema.arguments if not a.kwarg_only]
    if row.direct and operands != ["Tensor"] * OPS[row.sketch[0]].arity:
        return False
    return not row.overloads or (op._overloadname or "default") in row.overloads


def pooling_decompositions(program: Any) -> dict[Any, Any]:
    """Return decompositions of the poolings whose positions are used; a pooling without positions stays whole."""
    pooling_names = {
        str(n.args[0].target).removeprefix("aten.") for n in program.graph.nodes if _is_used_second_result(n)
    }
    if "max_pool1d_with_indices.default" in pooling_names:
        pooling_names.add("max_pool2d_with_indices.default")
    return {op: WITH_PLACES[name] for name, op in _operators(WITH_PLACES).items() if name in pooling_names}


def _is_used_second_result(node: Any) -> bool:
    """Return whether the node selects an operation's second result, and is used."""
    return node.target is operator.getitem and node.args[1] == 1 and bool(node.users)


def _operators(names: Iterable[str]) -> dict[str, Any]:
    """Return the operators of these names that this version of torch has."""
    operators = {}
    for name in names:
        base, overload = name.split(".")
        operator = getattr(getattr(torch.ops.aten, base, None), overload, None)
        if operator is not None:
            operators[name] = operator
    return operators


def _unless_even(decomposition: Callable[..., Any], x: Any, size: Sequence[int]) -> Any:
    """Apply ``decomposition`` to a pooling whose windows differ in size; others are plain windows, and stay whole."""
    is_even = all(isinstance(n, int) and n % length == 0 for n, length in zip(x.shape[-2:], size, strict=True))
    return NotImplemented if is_even else decomposition(x, size)
