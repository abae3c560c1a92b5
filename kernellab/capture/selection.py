"""Outputs that are indices of sort, topk, argmax and their like: what they select is compared, not the numbers.

Where several values are equal, torch promises no order of their places but in a stable sort and in argmax, argmin and
the maximum and minimum of a dimension, which give the first. The reference is run once more with its operators
watched; an index that reaches an output through views, copies and casts keeps its place in the values that it selects
from. So does one that is divided or shifted by numbers on the way, as ``at // width`` and ``at % width`` of a flattened
row: such an output is right where a place of that name holds a value that is as good, and two of them where one place
has both names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernellab.operations.aten import Role, named
from kernellab.task.meta.operators import Operators

#: operators whose second result (or only one) are places along a dimension; of the first ones all differ
_DISTINCT = frozenset(("sort", "topk", "argsort"))
_FIRST = frozenset(("argmax", "argmin", "max", "min"))
_ANY = frozenset(("kthvalue", "median", "nanmedian", "mode"))
#: operators through which an index keeps what it means
_KEEPS = named(Role.RESHAPE, Role.TURN, Role.PART, Role.SAME, Role.CAST) | {"flip"}
#: with a number, arithmetic that makes another name of a place
_NAMES = frozenset(("floor_divide", "div", "remainder", "fmod", "add", "sub", "mul"))


@dataclass(frozen=True)
class Selection:
    """Where an output's indices select from: ``values``, flat; the position of index 0 for each element of the output
    (``base``), and the distance of the next (``step``); ``size`` is the number of places.

    ``distinct``: no place may come twice. ``ordered``: of equal values the reference promises which. ``computed``: the
    values are the reference's own intermediate ones, which a kernel has with other roundings. ``names``: what the
    output calls each place, and ``at``, the reference's places; None where it calls them by their numbers.
    """

    values: torch.Tensor
    base: torch.Tensor
    step: int
    size: int
    distinct: bool
    ordered: bool
    computed: bool
    at: torch.Tensor
    names: torch.Tensor | None = None

    def wrong(self, got: torch.Tensor, native: torch.Tensor, floors: Mapping[str, float]) -> torch.Tensor:
        """Where ``got`` selects something else than ``native`` does, or nothing, or the same place again; ``floors``
        are the relative errors of computed values by their dtype."""
        have, want = got.to(torch.int64), native.to(torch.int64)
        if self.names is not None:
            names, order = self.names.sort()
            if self.size and bool((names.diff() > 0).all()):
                near = torch.searchsorted(names, have).clamp(max=self.size - 1)
                places = order[near].where(names[near] == have, -1)
                return replace(self, names=None).wrong(places, self.at, floors)
            return self._misnamed(have, want, floors)
        outside = (have < 0) | (have >= self.size)
        places = self.base + have.clamp(0, max(self.size - 1, 0)) * self.step
        alike = self._alike(places, self.base + want * self.step, floors)
        bad = outside | ~(alike | (have == want))
        if self.ordered and not self.computed:
            bad = outside | (have != want)
        if self.distinct and not bool(bad.any()):
            bad |= _again(places)
        return bad

    def paired(self, other: Selection) -> bool:
        """Do both outputs name, at each of their elements, one place (as a row and a column of it)?"""
        same = self.values.data_ptr() == other.values.data_ptr() and self.at.shape == other.at.shape
        return same and torch.equal(self.base, other.base) and torch.equal(self.at, other.at)

    def apart(
        self, other: Selection, got: Sequence[torch.Tensor], native: Sequence[torch.Tensor], floors: Mapping[str, float]
    ) -> torch.Tensor:
        """Where two outputs that are :meth:`paired`, each right by itself, name no one place together that is."""
        each = [torch.arange(self.size, device=self.at.device) if s.names is None else s.names for s in (self, other)]
        least, most = zip(*((int(n.min()), int(n.max())) for n in each), strict=True)
        width = most[1] - least[1] + 1

        def both(pair: Sequence[torch.Tensor]) -> torch.Tensor:
            first, second = (t.to(torch.int64) - low for t, low in zip(pair, least, strict=True))
            number: torch.Tensor = first * width + second
            return number

        return replace(self, names=both(each)).wrong(both(got), both(native), floors)

    def _alike(self, places: torch.Tensor, expected: torch.Tensor, floors: Mapping[str, float]) -> torch.Tensor:
        """Do these places of ``values`` hold what the wanted ones do, as far as roundings let one tell?"""
        one, other = (self.values[p.reshape(-1)].to(torch.float64).reshape(p.shape) for p in (places, expected))
        same = (one == other) | (one.isnan() & other.isnan())
        if not self.computed:
            return same
        dtype = str(self.values.dtype).removeprefix("torch.")
        floor = floors.get("float8" if dtype.startswith("float8") else dtype, 0.0)
        finite = other[other.isfinite()]
        rms = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        same |= (one - other).abs() <= floor * (other.abs() + rms)
        # zeros of either sign are equal whatever the roundings were, so that the first counts
        return same & ((one != 0) | (other != 0) | (one.signbit() == other.signbit()) | (not self.ordered))

    def _misnamed(self, have: torch.Tensor, want: torch.Tensor, floors: Mapping[str, float]) -> torch.Tensor:
        """Where no place that ``have`` names holds what the reference picked."""
        assert self.names is not None
        bad = have != want
        if self.ordered and not self.computed:
            return bad
        for name in set(have[bad & torch.isin(have, self.names)].tolist()):
            here = (bad & (have == name)).nonzero(as_tuple=True)
            places = self.base[here][:, None] + (self.names == name).nonzero()[:, 0] * self.step
            expected = (self.base[here] + self.at[here] * self.step)[:, None].expand_as(places)
            bad[here] = ~self._alike(places, expected, floors).any(1)
        return bad


def selections(reference: Any, args: Sequence[Any]) -> list[Selection | None]:
    """For each output of ``reference(args)`` what its indices select from; None where it is none of indices."""
    watch = _Watch(args)
    with watch:
        outputs = reference(args)
    return [watch.of(o) for o in outputs]


class _Watch(Operators):  # type: ignore[no-untyped-call]
    def __init__(self, args: Sequence[Any]) -> None:
        super().__init__()
        self.given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        #: by identity; the tensors are held, so that none is another's
        self.known: dict[int, tuple[torch.Tensor, Selection]] = {}

    def of(self, tensor: torch.Tensor) -> Selection | None:
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[1].base.shape == tensor.shape else None

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in _DISTINCT | _FIRST | _ANY:
            self._selects(func, name, args, kwargs, out)
        elif name in _KEEPS and args and id(args[0]) in self.known and isinstance(out, torch.Tensor):
            self._keeps(func, name, args, kwargs, out)
        elif name in _NAMES and args and id(args[0]) in self.known and isinstance(out, torch.Tensor):
            self._names(func, args, kwargs, out)
        return out

    def _selects(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        indices = out if isinstance(out, torch.Tensor) else out[1] if isinstance(out, tuple) and len(out) == 2 else None
        if indices is None or indices.dtype != torch.int64 or not isinstance(args[0], torch.Tensor):
            return
        named = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)
        named = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()} | named
        source, dim = args[0], named.get("dim")
        values = source.detach().contiguous()
        if dim is None:
            # of the whole tensor, flattened
            if indices.numel() != 1:
                return
            base, step, size = torch.zeros_like(indices), 1, values.numel()
        else:
            if not source.dim():
                return
            along = dim % source.dim()
            size = int(source.shape[along])
            step = int(values.stride(along))
            first = torch.arange(values.numel(), device=values.device).reshape(values.shape).narrow(along, 0, 1)
            kept = indices.dim() == source.dim()
            base = first.expand(indices.shape) if kept else first.squeeze(along)
        computed = source.untyped_storage().data_ptr() not in self.given
        ordered = name in _FIRST or bool(named.get("stable"))
        distinct = name in _DISTINCT
        selection = Selection(values.reshape(-1), base, int(step), int(size), distinct, ordered, computed, indices)
        self.known[id(indices)] = indices, selection

    def _keeps(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> None:
        _, selection = self.known[id(args[0])]
        if name != "_to_copy":
            base, at = (func(t, *args[1:], **kwargs) for t in (selection.base, selection.at))
            selection = replace(selection, base=base, at=at)
        self.known[id(out)] = out, selection

    def _names(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> None:
        _, selection = self.known[id(args[0])]
        others = [a.numel() == 1 and a.data_ptr() not in self.given for a in args[1:] if isinstance(a, torch.Tensor)]
        if not all(others) or out.is_floating_point() or out.shape != selection.at.shape:
            return
        before = torch.arange(selection.size, device=out.device) if selection.names is None else selection.names
        self.known[id(out)] = out, replace(selection, names=func(before, *args[1:], **kwargs).reshape(-1))


def _again(places: torch.Tensor) -> torch.Tensor:
    """Where a place comes that has come before."""
    flat = places.reshape(-1)
    order = flat.sort(stable=True)
    again = torch.zeros_like(flat, dtype=torch.bool)
    again[order.indices[1:]] = order.values[1:] == order.values[:-1]
    return again.reshape(places.shape)
