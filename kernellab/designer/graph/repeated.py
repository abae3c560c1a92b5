"""Values that the reference writes several times are computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import Body


def without_repeats(graph: Graph) -> Graph:
    """Return ``graph`` with each value computed once: a later node with the same operation and operands is left out."""
    first_with: dict[Hashable, str] = {}
    renamed: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        node = _with_names(node, renamed)
        key = repr((node.op, node.args, node.kwargs))
        if key in first_with:
            renamed[node.name] = first_with[key]
        else:
            first_with[key] = node.name
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), outputs=_renamed(graph.outputs, renamed))


def _with_names(node: Node, names: dict[str, str]) -> Node:
    return replace(node, args=_renamed(node.args, names), kwargs=_renamed(node.kwargs, names))


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Return arguments of a node with the refs that ``names`` contains under their new names."""
    if isinstance(value, Ref):
        return replace(value, name=names.get(value.name, value.name))
    if isinstance(value, Body):
        stacked = tuple(replace(one, value=_renamed(one.value, names)) for one in value.stacked)
        nodes = tuple(_with_names(node, names) for node in value.nodes)
        return replace(value, nodes=nodes, after=_renamed(value.after, names), stacked=stacked)
    return type(value)(_renamed(v, names) for v in value) if type(value) in (tuple, list) else value
