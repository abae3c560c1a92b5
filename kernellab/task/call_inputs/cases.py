"""Tasks that list their inputs case by case: their Dims, and inputs at any sizes.

Extents that differ between the cases are Dims, or expressions over Dims that hold in every case. At the sizes of a case
the inputs are its values; at other sizes those of the nearest case, stretched along the axes that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import log2
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.task.call_inputs.fit import Sizes
from kernellab.task.call_inputs.slots import Slot, arguments, is_array, slots_of
from kernellab.task.dims import Dim, Extent, extent
from kernellab.task.faking import has_values

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: functions that list the inputs of every case, by the form of their task: KernelBench's, native
LISTS = ("get_inputs_dyn_list", "cases")
#: the name in a task's text with the position of the case that is timed
CHOSEN = "CASE"
#: torch's factories, whose tensors get no memory if they are larger than any of the wanted case
_FACTORIES = ("randn", "rand", "randint", "randperm", "zeros", "ones", "empty", "full", "arange", "linspace")


@dataclass(frozen=True)
class Listed:
    """The cases of a task, as positions in its list.

    ``sizes`` are those of each of the ``kept`` cases, which differ from the ``main`` one in extents alone; ``shapes``
    are the extents of each argument over ``dims`` (None for a number). ``bytes`` are those of every case's inputs,
    ``largest`` the bytes of its largest tensor.
    """

    main: int
    kept: tuple[int, ...]
    dims: tuple[Dim, ...]
    sizes: tuple[Sizes, ...]
    shapes: tuple[tuple[Extent, ...] | None, ...]
    bytes: tuple[int, ...]
    largest: tuple[int, ...]

    @property
    def left_out(self) -> int:
        """The number of cases that differ in more than their extents."""
        return len(self.bytes) - len(self.kept)

    @property
    def main_sizes(self) -> Sizes:
        return self.sizes[self.kept.index(self.main)]

    def nearest(self, sizes: Sizes) -> int:
        """Return the position of the case whose sizes are nearest to ``sizes``, by ratio."""

        by_case = dict(zip(self.kept, self.sizes, strict=True))

        def distance(case: int) -> float:
            return sum(abs(log2((n + 1) / (by_case[case][name] + 1))) for name, n in sizes.items())

        return min(by_case, key=distance)

    def fixed(self) -> Listed:
        """Return the main case alone, without Dims."""
        at = self.kept.index(self.main)
        shapes = tuple(None if s is None else tuple(extent(e, self.sizes[at]) for e in s) for s in self.shapes)
        return Listed(self.main, (self.main,), (), ({},), shapes, self.bytes, self.largest)

    def at_least(self, low: bool) -> Listed:
        """Return the same with Dims from 1 (``low``), or from the smallest size of a case."""
        dims = tuple(Dim(d.name, 1 if low else min(s[d.name] for s in self.sizes), d.max) for d in self.dims)
        return Listed(self.main, self.kept, dims, self.sizes, self.shapes, self.bytes, self.largest)


def listed(cases: Sequence[Sequence[Any]], chosen: int | None, what: str) -> Listed:
    """Return the relation of the ``cases`` that ``what`` lists. ``chosen`` is the position of the case to time, by
    default the one with most bytes. Tensors may be fake ones.

    Raises:
        TaskError: there is no case, no such case, or a value that a reference cannot take.
    """
    if not cases:
        raise TaskError(f"{what}() lists no case.", "Let it return a list of the arguments of each case.")
    if chosen is not None and not 0 <= chosen < len(cases):
        raise TaskError(f"{CHOSEN} is {chosen}, and {what}() lists {len(cases)} cases.", "Count cases from 0.")
    places = [slots_of(case, what) for case in cases]
    drawn = [arguments(case, slots) for case, slots in zip(cases, places, strict=True)]
    bytes_of = [[_bytes(v) for v in values] for values in drawn]
    total = [sum(sizes) for sizes in bytes_of]
    main = total.index(max(total)) if chosen is None else chosen
    kept = [i for i, values in enumerate(drawn) if places[i] == places[main] and _alike(values, drawn[main])]
    columns = [
        [tuple(int(drawn[i][at].shape[axis]) for i in kept) for axis in range(value.ndim)] if is_array(value) else None
        for at, value in enumerate(drawn[main])
    ]
    extents, named = _named({column for axes in columns for column in axes or ()})
    sizes: list[Sizes] = [{name: column[i] for name, column in named.items()} for i in range(len(kept))]
    shapes = [None if axes is None else tuple(extents[column] for column in axes) for axes in columns]
    dims = tuple(Dim(name, 1, max(s[name] for s in sizes)) for name in named)
    largest = tuple(max(sizes, default=0) for sizes in bytes_of)
    return Listed(main, tuple(kept), dims, tuple(sizes), tuple(shapes), tuple(total), largest)


#: an extent of one argument in each of the kept cases
Column = tuple[int, ...]


def _named(columns: set[Column]) -> tuple[dict[Column, Extent], dict[str, Column]]:
    """Return each column as an extent over Dims, and the column that each Dim names; small extents are named first."""
    extents: dict[Column, Extent] = {}
    named: dict[str, Column] = {}
    for column in sorted(columns, key=lambda c: (sum(c), c)):
        related = _related(column, named)
        if related is None:
            related = f"D{len(named)}"
            named[related] = column
        extents[column] = related
    return extents, named


def _related(column: Column, named: Mapping[str, Column]) -> Extent | None:
    """Return an expression over the ``named`` Dims that equals ``column`` in every case: a number; a multiple or part
    of a Dim, or the Dim plus a number; the product of two; None if there is none."""
    if len(set(column)) == 1:
        return column[0]
    for name, sizes_of in named.items():
        ratios = {Fraction(n, k) if k else Fraction(-1) for n, k in zip(column, sizes_of, strict=True)}
        differences = {n - k for n, k in zip(column, sizes_of, strict=True)}
        ratio = next(iter(ratios))
        if len(ratios) == 1 and ratio > 0 and 1 in (ratio.numerator, ratio.denominator):
            part = f" // {ratio.denominator}" if ratio.denominator > 1 else ""
            return f"{ratio.numerator}*{name}" if ratio > 1 else f"{name}{part}"
        if len(differences) == 1 and max(differences) > 0:
            return f"{name} + {max(differences)}"
    for one, two in combinations(named, 2):
        if all(n == a * b for n, a, b in zip(column, named[one], named[two], strict=True)):
            return f"{one}*{two}"
    return None


def _bytes(value: Any) -> int:
    return int(value.nbytes) if is_array(value) else 0


def _alike(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Do two cases differ only in extents?"""
    return len(values) == len(others) and all(
        is_array(b) and a.ndim == b.ndim and a.dtype == b.dtype if is_array(a) else type(a) is type(b) and a == b
        for a, b in zip(values, others, strict=True)
    )


def inputs_at(
    cases: Callable[[], Sequence[Sequence[Any]]], table: Listed, sizes: Sizes, what: str
) -> tuple[list[Any], tuple[Slot, ...]]:
    """Return the arguments of a kernel at ``sizes``, and their places in the call. ``cases`` draws the list."""
    position = table.nearest(sizes)
    with _without_larger(table.largest[position]):
        values = _case(cases(), position, what)
    slots = slots_of(values, what)
    args = arguments(values, slots)
    if any(is_array(a) and getattr(getattr(a, "device", None), "type", "") == "meta" for a in args):
        # tensors of this case are parts of a larger one
        args = arguments(_case(cases(), position, what), slots)
    before = table.sizes[table.kept.index(position)]
    if before == sizes:
        return args, slots
    expected = [None if s is None else [extent(e, sizes) for e in s] for s in table.shapes]
    extents = {e for shape in table.shapes for e in shape or ()}
    ends = sorted((extent(e, before), extent(e, sizes)) for e in extents)
    return [a if w is None else _stretched(a, w, ends) for a, w in zip(args, expected, strict=True)], slots


def _case(values: Sequence[Sequence[Any]], position: int, what: str) -> list[Any]:
    if position >= len(values):
        raise TaskError(f"{what}() lists fewer cases when it is run again.", "List the same cases in each call.")
    return list(values[position])


def _stretched(value: Tensor, extents: Sequence[int], ends: Sequence[tuple[int, int]]) -> Tensor:
    """Return ``value`` with ``extents``: elements are repeated in place or left out evenly, so that their order stays.

    ``ends`` are all extents of the case before and after, ascending."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise TaskError("A NumPy array of a case has no values at other sizes.", "List tensors.")
    for axis, (old, new) in enumerate(zip(value.shape, extents, strict=True)):
        if old != new:
            if not old:
                raise TaskError("A case with an empty tensor has no values at other sizes.", "Leave that case out.")
            value = value.index_select(axis, torch.arange(new, device=value.device) * old // new)
    if value.is_floating_point() or value.dtype is torch.bool or not has_values(value) or not value.numel():
        return value
    # an index stays inside the smallest extent that contained it
    high = int(value.max())
    end = next((after for before, after in ends if before > high >= 0), high + 1)
    return value.clamp(max=max(end - 1, 0)) if end <= high else value


def _without_larger(most: int) -> AbstractContextManager[Any]:
    """While active, tensors of more than ``most`` bytes that torch makes have no memory: those of other, larger
    cases."""
    import torch
    from torch.overrides import TorchFunctionMode

    factories = {getattr(torch, name) for name in _FACTORIES}

    class Drawing(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function in factories and "out" not in kwargs and "generator" not in kwargs:
                empty = function(*args, **{**kwargs, "device": "meta"})
                if empty.nbytes > most:
                    return empty
            return function(*args, **kwargs)

    return Drawing()
