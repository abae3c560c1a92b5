"""Sketches that a library call does whole: which product or convolution the loops of a ``library`` sketch spell.

The hint changes nothing about the meaning. What is read here is the text itself: every index as a sum of loop
variables, what is summed over and what is kept; so that a call stands for a sketch only where it computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from kernellab.sketch import affine
from kernellab.sketch.ints import IntExpr
from kernellab.sketch.library_loops import PLAIN, Access, Form, NoCall, Numbers, Spelled, spelled
from kernellab.sketch.program import Kernel, Loop, Tensor
from kernellab.sketch.program_walk import statements

#: sizes at which extents of open size are compared
_TRIED = (17, 64, 101, 250, 1024)
_LIE = (
    "Read X[batch, channels, places...] and W[out, channels, taps...] (transposed: W[channels, out, taps...]) into "
    "Y[batch, out, places...], groups in a dimension of their own; or drop the hint."
)


@dataclass(frozen=True)
class Factor:
    """A tensor in the shape that the sketch declares, and the order in which a call takes its dimensions."""

    tensor: Tensor
    order: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """``out = left @ right``: [batch,] rows, summed and [batch,] summed, columns."""

    left: Factor
    right: Factor
    out: Tensor
    batched: bool

    name = "product"

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.left.tensor, self.right.tensor, self.out


@dataclass(frozen=True)
class Convolution:
    """``out`` is ``source`` under ``weight``; numbers are one a spatial dimension, as torch takes them.

    With ``groups`` above 1 each tensor declares its groups as a dimension of its own.
    """

    source: Tensor
    weight: Tensor
    out: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return "transposed convolution" if self.transposed else "convolution"

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.source, self.weight, self.out


Call = Union[Product, Convolution]


def is_library(kernel: Kernel) -> bool:
    """Is any loop of the sketch hinted ``library``?"""
    return hinted_loop(kernel) is not None


def hinted_loop(kernel: Kernel) -> Loop | None:
    return next((s for s in statements(kernel.body) if isinstance(s, Loop) and s.hints.library), None)


def library_call(kernel: Kernel, constexpr: Numbers) -> Call:
    """The call that does all of ``kernel``, whose loops have the values ``constexpr``.

    Raises:
        NoCall: it is not a plain product or convolution; or a number that decides this is not known.
    """
    found = spelled(kernel, constexpr)
    windows = [side for side in (found.left, found.right) if "" in side.axes]
    if not windows:
        return _product(found)
    if len(windows) == 2:
        raise NoCall("reads neither factor in order", PLAIN)
    source, weight = (found.left, found.right) if windows[0] is found.left else (found.right, found.left)
    return _convolution(found, source, weight)


def _product(found: Spelled) -> Product:
    left, right, ours = found.left, found.right, found.out.axes
    mine, yours = left.axes, right.axes
    batch = [x for x in ours if x in mine and x in yours]
    rows = [x for x in ours if x in mine and x not in yours]
    cols = [x for x in ours if x in yours and x not in mine]
    sums = [x for x in mine if x in yours and x not in ours]
    if {*batch, *rows, *cols, *sums} != {*mine, *yours, *ours} or ours[: len(batch)] != batch:
        raise NoCall("is no product of matrices", PLAIN)
    if len(batch) > 1 or [len(rows), len(cols), len(sums)] != [1, 1, 1]:
        raise NoCall(
            "has several rows, columns, sums or batches",
            "Declare each tensor as [rows, columns], with at most one batch before: a view is free.",
        )
    if ours == [*batch, *cols, *rows]:
        # the result is stored turned: the factors change places
        left, right, rows, cols, mine, yours = right, left, cols, rows, yours, mine
    return Product(
        Factor(left.region.tensor, tuple(mine.index(x) for x in (*batch, *rows, *sums))),
        Factor(right.region.tensor, tuple(yours.index(x) for x in (*batch, *sums, *cols))),
        found.out.region.tensor,
        bool(batch),
    )


@dataclass(frozen=True)
class _Window:
    """One spatial dimension: the axes of output and tap, and the numbers that torch takes."""

    place: str
    tap: str
    stride: int
    padding: int
    dilation: int
    transposed: bool


def _convolution(found: Spelled, source: Access, weight: Access) -> Convolution:
    over, ours = weight.axes, found.out.axes
    given = [a for a in source.axes if a]
    batch = [a for a in given if a in ours and a not in over]
    group = [a for a in given if a in ours and a in over]
    inner = [a for a in given if a in over and a not in ours]
    outer = [a for a in ours if a in over and a not in group]
    windows = [_window(form, over, ours) for form in source.forms if not form.axis]
    turned = windows[0].transposed
    if any(w.transposed != turned for w in windows):
        raise NoCall("is a transposed convolution in some dimensions only", PLAIN)
    first = len(source.axes) - len(windows)
    pair = [*inner, *outer] if turned else [*outer, *inner]
    in_order = source.axes[:first] == [*batch, *group, *inner] and over == [*group, *pair, *(w.tap for w in windows)]
    in_order = in_order and ours == [*batch, *group, *outer, *(w.place for w in windows)]
    if not in_order or [len(batch), len(inner), len(outer)] != [1, 1, 1] or len(group) > 1 or len(windows) > 3:
        raise NoCall("does not lie as torch's convolutions read it", _LIE)
    groups = affine.constant(found.extent(group[0])) if group else 1
    if groups is None:
        raise NoCall(f"has {found.extent(group[0])} groups", "Lower it for a number of groups that is known.")
    more = tuple(
        _longer(w, found.size(source.region, first + n), found.extent(w.place), found.extent(w.tap))
        for n, w in enumerate(windows)
    )
    allowed = [max(w.stride, w.dilation) if turned else 1 for w in windows]
    if any(not 0 <= m < most for m, most in zip(more, allowed, strict=True)):
        raise NoCall("has an output of another size than torch's", "Mend the extents of its output.")
    return Convolution(
        source.region.tensor, weight.region.tensor, found.out.region.tensor,
        tuple(w.stride for w in windows), tuple(w.padding for w in windows), tuple(w.dilation for w in windows),
        groups, turned, more if turned else (),
    )  # fmt: skip


def _window(form: Form, over: list[str], ours: list[str]) -> _Window:
    terms = dict(form.terms)
    place = [a for a in terms if a in ours and a not in over]
    tap = [a for a in terms if a in over and a not in ours]
    if len(terms) != 2 or len(place) != 1 or len(tap) != 1:
        raise NoCall("reads no window", _LIE)
    along, by = terms[place[0]], terms[tap[0]]
    if by < 0 and along == 1 and form.offset >= 0:
        return _Window(place[0], tap[0], form.over, form.offset, -by, True)
    if by > 0 and along > 0 and form.offset <= 0 and form.over == 1:
        return _Window(place[0], tap[0], along, -form.offset, by, False)
    raise NoCall("reads a window that torch has not", _LIE)


def _longer(w: _Window, size: IntExpr, out: IntExpr, kernel: IntExpr) -> int:
    """By how many elements the output is longer than torch's, without output padding."""
    names = sorted(size.names() | out.names() | kernel.names())
    found = set()
    for tried in _TRIED if names else (1,):
        env = dict.fromkeys(names, tried)
        n, reach = size.evaluate(env), w.dilation * (kernel.evaluate(env) - 1) + 1
        if w.transposed:
            plain = (n - 1) * w.stride - 2 * w.padding + reach
        else:
            plain = (n + 2 * w.padding - reach) // w.stride + 1
        found.add(out.evaluate(env) - plain)
    if len(found) > 1:
        raise NoCall("has an output whose size follows another rule than torch's", "Mend the extents of its output.")
    return found.pop()


__all__ = ["Call", "Convolution", "Factor", "NoCall", "Product", "hinted_loop", "is_library", "library_call"]
