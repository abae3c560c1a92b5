"""Outputs that are indices of sort, topk, argmax and similar: the selected values are compared, not the numbers.

If several values are equal, torch guarantees the order of their positions only in a stable sort, and in argmax, argmin
and the maximum and minimum of a dimension, which return the first. The reference is run once more with its operators
observed; an index that reaches an output through views, copies and casts is traced to the values that it selects from.
This also holds for an index divided or shifted by numbers, such as ``at // width`` and ``at % width`` of a flattened
row: such an output is right if a position of that name holds an equally good value, and two of them if one position has
both names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernellab.operations.aten import Role, named
from kernellab.task.meta.operators import Operators

#: operators whose second (or only) result holds positions along a dimension; those of the first set are all distinct
_DISTINCT = frozenset(("sort", "topk", "argsort"))
_FIRST = frozenset(("argmax", "argmin", "max", "min"))
_ANY = frozenset(("kthvalue", "median", "nanmedian", "mode"))
#: operators that pick some of the indices, at places that may depend on roundings
_PICKS = frozenset(("gather", "index", "index_select", "take_along_dim", "take"))
#: operators through which an index keeps its meaning
_KEEPS = named(Role.RESHAPE, Role.TURN, Role.PART, Role.SAME, Role.CAST) | {"flip"}
#: arithmetic with a number, which renames positions
_NAMES = frozenset(("floor_divide", "div", "remainder", "fmod", "add", "sub", "mul"))


@dataclass(frozen=True)
class Selection:
    """The values from which an output's indices select.

    ``values`` is flat; ``base`` is the position of index 0 for each element of the output, and ``step`` the distance to
    the next; ``size`` is the number of positions. ``distinct``: no position may occur twice. ``ordered``: the reference
    guarantees which of several equal values is selected. ``computed``: the values are the reference's own intermediate
    ones, which a kernel computes with other rounding. ``picked``: the indices are some of an order's, at places that
    the reference computes (the draw of a sampler), so that a rounding may pick another one. ``names``: the output's
    name for each position, with ``at`` the reference's positions; None if names are the indices themselves.
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
    picked: bool = False

    def wrong(self, got: torch.Tensor, native: torch.Tensor, floors: Mapping[str, float]) -> torch.Tensor:
        """Return where ``got`` selects another value than ``native``, none, or a position twice; ``floors`` are the
        relative errors of computed values by dtype."""
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
        """Return whether both outputs name a single position at each element (such as its row and its column)."""
        same = self.values.data_ptr() == other.values.data_ptr() and self.at.shape == other.at.shape
        return same and torch.equal(self.base, other.base) and torch.equal(self.at, other.at)

    def apart(
        self, other: Selection, got: Sequence[torch.Tensor], native: Sequence[torch.Tensor], floors: Mapping[str, float]
    ) -> torch.Tensor:
        """Return where two outputs that are :meth:`paired`, each right on its own, do not together name a valid
        position."""
        each = [torch.arange(self.size, device=self.at.device) if s.names is None else s.names for s in (self, other)]
        least, most = zip(*((int(n.min()), int(n.max())) for n in each), strict=True)
        width = most[1] - least[1] + 1

        def both(pair: Sequence[torch.Tensor]) -> torch.Tensor:
            first, second = (t.to(torch.int64) - low for t, low in zip(pair, least, strict=True))
            number: torch.Tensor = first * width + second
            return number

        return replace(self, names=both(each)).wrong(both(got), both(native), floors)

    def _alike(self, places: torch.Tensor, expected: torch.Tensor, floors: Mapping[str, float]) -> torch.Tensor:
        """Return whether these positions of ``values`` hold the expected values, within rounding."""
        actual, wanted = (self.values[p.reshape(-1)].to(torch.float64).reshape(p.shape) for p in (places, expected))
        same = (actual == wanted) | (actual.isnan() & wanted.isnan())
        if not self.computed:
            return same
        dtype = str(self.values.dtype).removeprefix("torch.")
        floor = floors.get("float8" if dtype.startswith("float8") else dtype, 0.0)
        finite = wanted[wanted.isfinite()]
        rms = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        same |= (actual - wanted).abs() <= floor * (wanted.abs() + rms)
        # zeros of either sign are equal under any rounding, so the first one counts
        return same & ((actual != 0) | (wanted != 0) | (actual.signbit() == wanted.signbit()) | (not self.ordered))

    def _misnamed(self, have: torch.Tensor, want: torch.Tensor, floors: Mapping[str, float]) -> torch.Tensor:
        """Return where no position that ``have`` names holds the value that the reference selected."""
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
    """Return for each output of ``reference(args)`` the selection of its indices; None if it has none."""
    watch = _Watch(args)
    with watch:
        outputs = reference(args)
    return [watch.of(o) for o in outputs]


class _Watch(Operators):  # type: ignore[no-untyped-call]
    def __init__(self, args: Sequence[Any]) -> None:
        super().__init__()
        self.given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        #: by identity; the tensors are kept alive, so that no id is reused
        self.known: dict[int, tuple[torch.Tensor, Selection]] = {}

    def of(self, tensor: torch.Tensor) -> Selection | None:
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[1].base.shape == tensor.shape else None

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in _DISTINCT | _FIRST | _ANY:
            self._selects(func, name, args, kwargs, out)
        elif name in _KEEPS | _PICKS and args and id(args[0]) in self.known and isinstance(out, torch.Tensor):
            self._keeps(func, name, args, kwargs, out)
        elif name in _NAMES and args and id(args[0]) in self.known and isinstance(out, torch.Tensor):
            self._names(func, args, kwargs, out)
        return out

    def _selects(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        indices = out if isinstance(out, torch.Tensor) else out[1] if isinstance(out, tuple) and len(out) == 2 else None
        if indices is None or indices.dtype != torch.int64 or not isinstance(args[0], torch.Tensor):
            return
        arguments = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)
        arguments = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()} | arguments
        source, dim = args[0], arguments.get("dim")
        values = source.detach().contiguous()
        if dim is None:
            # over the whole tensor, flattened
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
            keeps_dim = indices.dim() == source.dim()
            base = first.expand(indices.shape) if keeps_dim else first.squeeze(along)
        computed = source.untyped_storage().data_ptr() not in self.given
        ordered = name in _FIRST or bool(arguments.get("stable"))
        distinct = name in _DISTINCT
        selection = Selection(values.reshape(-1), base, int(step), int(size), distinct, ordered, computed, indices)
        self.known[id(indices)] = indices, selection

    def _keeps(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> None:
        _, selection = self.known[id(args[0])]
        if name != "_to_copy":
            base, at = (func(t, *args[1:], **kwargs) for t in (selection.base, selection.at))
            selection = replace(selection, base=base, at=at)
        if name in _PICKS:
            selection = replace(selection, picked=True, distinct=False)
        self.known[id(out)] = out, selection

    def _names(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: torch.Tensor) -> None:
        _, selection = self.known[id(args[0])]
        is_constant = [
            a.numel() == 1 and a.data_ptr() not in self.given for a in args[1:] if isinstance(a, torch.Tensor)
        ]
        if not all(is_constant) or out.is_floating_point() or out.shape != selection.at.shape:
            return
        before = torch.arange(selection.size, device=out.device) if selection.names is None else selection.names
        self.known[id(out)] = out, replace(selection, names=func(before, *args[1:], **kwargs).reshape(-1))


def _again(places: torch.Tensor) -> torch.Tensor:
    """Return where a position has occurred before."""
    flat = places.reshape(-1)
    order = flat.sort(stable=True)
    repeated = torch.zeros_like(flat, dtype=torch.bool)
    repeated[order.indices[1:]] = order.values[1:] == order.values[:-1]
    return repeated.reshape(places.shape)
