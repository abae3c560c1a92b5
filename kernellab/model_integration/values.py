"""The values of a unit's graph when it runs: what a region's inputs were like, and what an operation gives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map_only

from kernellab.model_integration.regions import Region
from kernellab.model_integration.sources import Workload
from kernellab.model_integration.task_text import Seen, seen
from kernellab.model_integration.unit import Unit, nodes_in

#: what each value of a unit was like
_KEPT: weakref.WeakKeyDictionary[Any, dict[Node, Seen]] = weakref.WeakKeyDictionary()


def execute(unit: Unit, inputs: Sequence[Any], on_value: Callable[[Node, Any], None] = lambda *_: None) -> Any:
    """The unit's outputs (in the graph's own nest) on its flattened inputs; a value is let go after its last use."""
    held: dict[Node, Any] = dict(zip(unit.inputs, inputs, strict=True))
    state: dict[str, Any] = dict(unit.module.named_parameters(remove_duplicate=False))
    state |= dict(unit.module.named_buffers(remove_duplicate=False))
    held |= {node: state[name] for node, name in unit.state.items()}
    held |= unit.constants
    for node, value in held.items():
        on_value(node, value)
    left = {node: len(node.users) for node in (*held, *unit.by_node)}
    node_type = type(next(iter(left)))
    for op in unit.ops:
        args, kwargs = tree_map_only(node_type, held.__getitem__, (tuple(op.node.args), dict(op.node.kwargs)))
        held[op.node] = op.node.target(*args, **kwargs)  # type: ignore[operator]
        on_value(op.node, held[op.node])
        for source in set(nodes_in((op.node.args, op.node.kwargs))):
            left[source] -= 1
            if not left[source]:
                del held[source]
    return tree_map_only(node_type, held.__getitem__, unit.outputs)


def flat_call(unit: Unit, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """A call's arguments in the order of the unit's inputs."""
    return tree_leaves((tuple(args), dict(kwargs)))


def stats_of(workload: Workload, region: Region) -> dict[Node, Seen]:
    """What the region's inputs were like in the model's own call."""
    unit = region.unit
    if unit not in _KEPT:
        stats: dict[Node, Seen] = {}

        def look(node: Node, value: Any) -> None:
            if isinstance(value, torch.Tensor) and not value.is_complex():
                stats[node] = seen(value)

        from kernellab.model_integration.measure import kept_state

        args, kwargs = unit.call
        with torch.no_grad(), kept_state(workload.model):
            execute(unit, flat_call(unit, args, kwargs), look)
        _KEPT[unit] = stats
    return {node: _KEPT[unit][node] for node in region.inputs if node in _KEPT[unit]}


def inputs_of(workload: Workload, region: Region) -> list[Any]:
    """The values that go into a region in the model's own call."""
    from kernellab.model_integration.measure import kept_state

    held: dict[Node, Any] = {}
    needed = set(region.inputs)
    args, kwargs = region.unit.call

    def keep(node: Node, value: Any) -> None:
        if node in needed:
            held[node] = value

    with torch.no_grad(), kept_state(workload.model):
        execute(region.unit, flat_call(region.unit, args, kwargs), keep)
    return [held[node] for node in region.inputs]


__all__ = ["execute", "flat_call", "inputs_of", "stats_of"]
