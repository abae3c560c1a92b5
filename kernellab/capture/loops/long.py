"""Long ranges of a reference: their steps written out, or one loop."""

from __future__ import annotations

import sys
from collections.abc import Callable

from kernellab.capture.graph import LOOP, Body, Graph
from kernellab.errors import CaptureError
from kernellab.operations.aten import Role, role_of

#: calls of torch that one reference may make: each is traced, checked and designed
_MOST = 2500
#: calls up to which steps are written out, whatever they do: that takes seconds
_MANY = 600
#: steps of a range that is one loop in a reference of many calls
_LONG = 32


class TooLong(CaptureError):
    """A reference makes more calls of torch than are traced."""


def shortest(traced: Callable[[int, int], Graph]) -> Graph:
    """The graph of ``traced``, which takes the calls that it may make and the steps of a range from which on it is one
    loop. A reference of many calls has loops where they can be, and its steps multiply no matrices: written out, each
    product has the whole chip."""
    try:
        return traced(_MANY, sys.maxsize)
    except TooLong:
        pass
    try:
        looped = traced(_MOST, _LONG)
    except CaptureError:
        looped = None
    if looped is not None and not _multiplies(looped):
        return looped
    try:
        return traced(_MOST, sys.maxsize)
    except TooLong:
        if looped is None:
            raise
        return looped


def _multiplies(graph: Graph) -> bool:
    bodies: list[Body] = [n.keyword("body") for n in graph.nodes if n.op == LOOP]
    # without a loop in it the graph is as long as it was
    return not bodies or any(role_of(n.aten) is Role.PRODUCT for body in bodies for n in body.nodes)
