"""Long ranges of a reference: their steps unrolled, or one loop."""

from __future__ import annotations

import sys
from collections.abc import Callable

from kernellab.capture.graph import LOOP, Body, Graph
from kernellab.errors import CaptureError
from kernellab.operations.aten import Role, role_of

#: number of torch calls that one reference may make: each is traced, checked and designed
_MOST = 2500
#: number of calls up to which steps are unrolled regardless of their work: that takes seconds
_MANY = 600
#: number of steps of a range that becomes one loop in a reference of many calls
_LONG = 32


class TooLong(CaptureError):
    """A reference makes more torch calls than can be traced."""


def shortest(traced: Callable[[int, int], Graph], loops: bool = True) -> Graph:
    """Return the graph of ``traced``, a function of the largest number of calls and the minimum steps of a range that
    becomes one loop.

    A reference of many calls uses loops where possible, unless its steps multiply matrices: unrolled, each product has
    the whole chip. Without ``loops`` all steps of ranges of plain numbers are unrolled.
    """
    if not loops:
        return traced(_MOST, sys.maxsize)
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
    # without a loop the graph is as long as before
    return not bodies or any(role_of(n.aten) is Role.PRODUCT for body in bodies for n in body.nodes)
