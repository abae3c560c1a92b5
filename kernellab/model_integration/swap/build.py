"""A unit's call with kernels in the place of regions, as Python that runs on the module itself.

The generated function reads parameters from the module when it is called, so that loading weights, moving the model
and saving its state go on as before.
"""

from __future__ import annotations

import heapq
import itertools
import linecache
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import TopologicalSorter
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_unflatten

from kernellab.model_integration.regions import Region
from kernellab.model_integration.unit import Unit, nodes_in

_NUMBER = itertools.count(1)


class PlacedCall(NamedTuple):
    """A region, and what is called in its place: a function of its inputs that gives its outputs as a tuple."""

    region: Region
    function: Callable[..., Any]


def build(unit: Unit, calls: Sequence[PlacedCall]) -> Callable[..., Any]:
    """``forward(module, *flattened inputs)`` of ``unit`` with each call in its region's place; it gives the outputs in
    the graph's own nest."""
    call_of: dict[Node, int] = {op.node: i for i, call in enumerate(calls) for op in call.region.ops}
    graph = torch.fx.Graph()
    built: dict[Node, Any] = {node: graph.placeholder(node.name) for node in unit.inputs}
    for node, path in unit.state.items():
        if node.users:
            built[node] = graph.get_attr(path)
    for node, value in unit.constants.items():
        built[node] = graph.call_function(_held(value))
    for step in _ordered(unit, call_of):
        if isinstance(step, int):
            region, function = calls[step]
            call = graph.call_function(function, tuple(built[n] for n in region.inputs))
            for i, output in enumerate(region.outputs):
                built[output] = graph.call_function(_item(i), (call,))
        else:
            built[step] = graph.node_copy(step, lambda n: built[n])
            built[step].meta = {}
    graph.output(torch.fx.node.map_arg(unit.outputs, lambda n: built[n]))
    code = graph.python_code("self", verbose=False)
    name = f"<kernellab swapped {unit.path or 'model'} {next(_NUMBER)}>"
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(keepends=True), name)
    space = dict(code.globals)
    exec(compile(code.src, name, "exec"), space)  # what torch.fx has just written
    forward: Callable[..., Any] = space["forward"]
    return forward


def guarded(unit: Unit, rewritten: Callable[..., Any]) -> Callable[..., Any]:
    """A module's forward: ``rewritten`` for calls like the captured one, else the module's own.

    It is a method of the module: a deep copy of a model calls it with the copy's own parameters, and a pickled model
    has its own forward again where it is loaded.
    """
    module = unit.module
    args, kwargs = unit.call
    guards = [_guard(leaf) for leaf in tree_leaves((tuple(args), dict(kwargs)))]
    is_flat = not kwargs and all(isinstance(a, torch.Tensor) for a in args)
    outputs_spec, form, training = unit.out_spec, unit.form, module.training
    single = len(unit.outputs) == 1 and outputs_spec.is_leaf()
    own_forward = type(module).forward
    has_warned = False

    def forward(module: Any, *values: Any, **named: Any) -> Any:
        nonlocal has_warned
        leaves = list(values) if is_flat and not named else tree_leaves((values, named))
        fits = module.training == training and len(leaves) == len(guards)
        if not fits or [_guard(leaf) for leaf in leaves] != guards:
            if not has_warned and not torch.compiler.is_compiling():
                has_warned = True
                warnings.warn(
                    f"{type(module).__name__} was called otherwise than its kernels were made for (shape, dtype, "
                    "layout, device or mode): its own forward runs. Profile such a call to have kernels for it.",
                    stacklevel=3,
                )
            return own_forward(module, *values, **named)
        outputs = rewritten(module, *leaves)
        if form is not None:
            return form.made(iter(outputs))
        return outputs[0] if single else tree_unflatten(list(outputs), outputs_spec)

    forward.__dict__["of_kernels"] = True
    return MethodType(forward, module)


def swapped(model: Any) -> list[Any]:
    """The modules of a model whose call holds kernels, also where the model is a copy of one with kernels in it."""
    calls = ((module, module.__dict__.get("forward")) for module in model.modules())
    return [module for module, call in calls if getattr(getattr(call, "__func__", None), "of_kernels", False)]


def _guard(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), tuple(value.stride()), value.dtype, value.device
    return value


@contextmanager
def calling(forwards: Mapping[Any, Callable[..., Any] | None]) -> Iterator[None]:
    """These calls of these modules (None: the module's own), for as long as this lasts."""

    def put(replacements: Mapping[Any, Callable[..., Any] | None]) -> None:
        for module, forward in replacements.items():
            if forward is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = forward

    held = {module: module.__dict__.get("forward") for module in forwards}
    put(forwards)
    try:
        yield
    finally:
        put(held)


def _held(value: Any) -> Callable[[], Any]:
    def constant() -> Any:
        return value

    return constant


def _item(i: int) -> Callable[[Any], Any]:
    def item(values: Any) -> Any:
        return values[i]

    return item


def _ordered(unit: Unit, call_of: Mapping[Node, int]) -> list[Node | int]:
    """Nodes, and calls by their number, so that each comes after what it needs, else in the order of the unit."""
    position: dict[Node | int, int] = {}
    for op in unit.ops:
        # a call as late as it may be: what it needs may be computed between its region's operations
        position[call_of.get(op.node, op.node)] = op.index
    needs: dict[Node | int, set[Node | int]] = {step: set() for step in position}
    for op in unit.ops:
        step = call_of.get(op.node, op.node)
        for source in nodes_in((op.node.args, op.node.kwargs)):
            needed = call_of.get(source, source)
            if needed != step and needed in position:
                needs[step].add(needed)
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    # of the steps that nothing waits for, the first in the unit's order
    ready = [(position[step], step) for step in sorter.get_ready()]
    heapq.heapify(ready)
    ordered: list[Node | int] = []
    while ready:
        _, step = heapq.heappop(ready)
        ordered.append(step)
        sorter.done(step)
        for freed in sorter.get_ready():
            heapq.heappush(ready, (position[freed], freed))
    return ordered


__all__ = ["PlacedCall", "build", "calling", "guarded", "swapped"]
