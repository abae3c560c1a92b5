"""Non-contiguous layouts of arguments: other orders of the dimensions, gaps, steps, overlapping elements.

A layout says where each argument lies in the worker's memory: its offset and strides. A family of layouts is a function
from a shape to strides (:data:`Strides`), for example ``(3, 4, 5)`` to ``(20, 1, 4)`` for the last two dimensions
swapped; it gives contiguous strides for ranks to which it does not apply.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import torch

from kernellab.errors import KernellabError
from kernellab.sandbox.caps import CAPS
from kernellab.task import ArgKind
from kernellab.task.dtypes import alike
from kernellab.verifier.protocol.memory import Layout, Place, lay_out

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case

#: A function from a shape to strides, in elements.
Strides = Callable[[tuple[int, ...]], tuple[int, ...]]

#: Bytes of a page of memory.
_PAGE = 4096
#: torch's allocators return multiples of this; an argument at another address is a view.
LINE_BYTES = 64
#: Number of arguments that get another layout one by one.
_ALONE = 4
#: Number of dimensions before the last two that get another layout.
_OUTER = 3
#: Number of pairs of arguments that become one tensor.
_PAIRS = 4


def transposed(args: Sequence[Any]) -> Iterator[Layout]:
    """Yield layouts with the last two dimensions swapped, of all tensors and of each one; and with channels last if
    tensors have four or more dimensions."""
    yield _placed(args, _swapped)
    wide = _of_rank(args, 2)
    if len(wide) > 1:
        yield from (_placed(args, _swapped, alone=i) for i in wide[:_ALONE])
    images = _of_rank(args, 4)
    if images:
        yield _placed(args, _channels_last)
        if len(images) > 1:
            yield from (_placed(args, _channels_last, alone=i) for i in images[:_ALONE])


def cycled(args: Sequence[Any]) -> Iterator[Layout]:
    """Yield layouts for three or more dimensions with the first one innermost or the last one outermost, as after
    ``permute``; and every other element along each dimension, with rows and columns in turn outermost."""
    if _of_rank(args, 3):
        yield _placed(args, partial(_ordered, lambda n: (*range(1, n), 0)))
        yield _placed(args, partial(_ordered, lambda n: (n - 1, *range(n - 1))))
    if _of_rank(args, 2):
        yield stepped(args)
        yield _placed(args, lambda shape: tuple(2 * s for s in _swapped(shape)))


def with_gaps(args: Sequence[Any]) -> Iterator[Layout]:
    """Yield layouts with row gaps in only one tensor; and with stepped vectors next to matrices."""
    wide = _of_rank(args, 2)
    if len(wide) > 1:
        yield from (_placed(args, _gaps, alone=i) for i in wide[:_ALONE])
    if wide and any(hasattr(a, "numel") and a.dim() == 1 and a.numel() > 1 for a in args):
        yield _placed(args, lambda shape: (2,) if len(shape) == 1 else contiguous(shape))


def outer(args: Sequence[Any]) -> Iterator[Layout]:
    """Yield layouts for tensors of three or more dimensions that keep the last one: neighbours among the others
    swapped, as the heads of an attention are, in all tensors and in each one; and a slice of a longer dimension, for
    each dimension except the first and the last."""
    deep = _of_rank(args, 3)
    most = max((args[i].dim() for i in deep), default=0)
    for dim in range(min(most - 2, _OUTER)):
        yield _placed(args, partial(_turned, dim))
        yield _placed(args, partial(_longer, dim + 1))
        if len(deep) > 1:
            yield from (_placed(args, partial(_turned, dim), alone=i) for i in deep[:_ALONE])


def stepped(args: Sequence[Any]) -> Layout:
    """Return the layout of every other element of a larger tensor."""
    return _placed(args, _stepped)


def between_vectors(args: Sequence[Any]) -> Layout:
    """Return a contiguous layout that begins one element after a page boundary."""
    return _placed(args, contiguous, _one_element)


def at_addresses(args: Sequence[Any], step: int = 1) -> Iterator[Layout]:
    """Yield contiguous layouts with each tensor once at each offset from a cache line that its elements allow, or at
    multiples of ``step`` bytes; the tensors have different offsets in each layout."""
    count = max((LINE_BYTES // max(step, a.element_size()) for a in args if hasattr(a, "numel")), default=0)
    first = [secrets.randbelow(LINE_BYTES) for _ in args]
    for turn in range(count):

        def shift(position: int, size: int, turn: int = turn) -> int:
            each = max(step, size)
            return (first[position] + turn) % (LINE_BYTES // each) * each

        yield _placed(args, contiguous, shift)


def as_drawn(args: Sequence[Any]) -> Layout | None:
    """Return the strides of the task's own inputs, or None if all are contiguous or channels last."""
    tensors = [a for a in args if hasattr(a, "numel") and a.numel()]
    # The stride of a dimension of one element has no meaning.
    if all(a.is_contiguous() or lay_out([a]).places[0].strides == a.stride() for a in tensors):
        return None
    strides = iter([a.stride() for a in args if hasattr(a, "numel")])
    return _placed(args, lambda _: next(strides))


def given_twice(case: Case) -> Iterator[tuple[Case, Layout]]:
    """Yield cases that pass one tensor for two arguments of equal shape and dtype, with their layouts, for some pairs
    in a secret order."""
    plain = lay_out(case.args)
    updated = list(islice((pair for pair in updated_pairs(case) if _as_two_tensors(case, *pair)), 2))
    for first, second in (written_pairs(case)[:1] + updated + like_pairs(case))[:_PAIRS]:
        args, places = [*case.args], [*plain.places]
        args[second] = args[first].clone() if (first, second) in updated else args[first]
        places[second] = places[first]
        yield replace(case, held=tuple(args)), Layout(tuple(places), plain.size)


def like_pairs(case: Case) -> list[tuple[int, int]]:
    """Return the pairs of arguments that one tensor may be given for, in a secret order: of equal shape and dtype, and
    only read by the reference."""
    return _pairs(case, lambda first, second, written: first not in written and second not in written)


def written_pairs(case: Case) -> list[tuple[int, int]]:
    """Return the pairs of arguments of equal shape and dtype that the reference both writes into, in a secret order."""
    return _pairs(case, lambda first, second, written: first in written and second in written)


def updated_pairs(case: Case) -> list[tuple[int, int]]:
    """Return the pairs of arguments of equal shape and dtype of which the reference reads one and writes into the
    other, in a secret order."""
    return _pairs(case, lambda first, second, written: (first in written) is not (second in written))


def _pairs(case: Case, belongs: Callable[[int, int, set[int]], bool]) -> list[tuple[int, int]]:
    """Return the pairs of arguments of equal shape and dtype that ``belongs`` accepts, in a secret order."""
    written = set(case.task.module().written)
    kinds = {i: (case.args[i].shape, case.args[i].dtype) for i in free_tensors(case)}
    pairs = [
        (first, second)
        for first, second in combinations(kinds, 2)
        if kinds[first] == kinds[second] and belongs(first, second, written)
    ]
    return secrets.SystemRandom().sample(pairs, len(pairs))


def _as_two_tensors(case: Case, first: int, second: int) -> bool:
    """Return whether the reference answers for one tensor in two places as for two tensors of equal contents, as where
    it computes all of a result before it writes. Elsewhere the order of its steps decides, which is no contract; nor
    is it one where it reads nothing of what it writes into: a caller gives such a result memory that holds nothing."""
    args = [*case.args]
    result = first if first in case.task.module().written else second
    try:
        answers = []
        for number in (0, 1):
            args[result] = torch.full_like(case.args[result], number)
            answers.append(case.task.module().results(args))
        if all(map(alike, *answers)):
            return False
        args = [*case.args]
        args[second] = args[first]
        of_one = case.task.module().results(args)
        args[second] = args[first].clone()
        of_two = case.task.module().results(args)
    except (KernellabError, RuntimeError):
        return False
    return len(of_one) == len(of_two) and all(alike(a, b) for a, b in zip(of_one, of_two, strict=True))


def free_tensors(case: Case) -> list[int]:
    """Return the positions of the tensors that a caller makes for each call: neither weights nor empty."""
    return [
        i for i, (spec, value) in enumerate(zip(case.task.args, case.args, strict=True))
        if spec.kind is ArgKind.TENSOR and not spec.static and isinstance(value, torch.Tensor) and value.numel()
    ]  # fmt: skip


def with_equal_rows(case: Case, dim: int = 0) -> Case:
    """Return the case with every slice along ``dim`` replaced by the first one, in each tensor of at least two
    dimensions (or along the last dimension, -1, of each tensor); weights stay as they are."""

    def with_first(arg: Any, may_repeat: bool) -> Any:
        wide = isinstance(arg, torch.Tensor) and _can_repeat(arg.dim(), dim) and arg.shape[dim] > 1
        return arg.narrow(dim, 0, 1).expand(arg.shape).contiguous() if wide and may_repeat else arg

    return replace(case, held=tuple(map(with_first, case.args, _may_repeat(case))))


def expanded(case: Case, dim: int = 0) -> Layout:
    """Return a layout for the arguments of such a case in which those slices share their memory."""
    plain = lay_out(case.args)
    places = tuple(
        replace(p, strides=tuple(0 if i == dim % len(p.shape) else s for i, s in enumerate(p.strides)))
        if repeats and _can_repeat(len(p.shape), dim) and 0 not in p.shape
        else p
        for repeats, p in zip(_may_repeat(case), plain.places, strict=True)
    )
    return Layout(places, plain.size)


def _can_repeat(rank: int, dim: int) -> bool:
    return rank >= 1 if dim == -1 else rank >= dim + 2


def _may_repeat(case: Case) -> list[bool]:
    """Return which arguments may repeat a slice: tensors that are neither weights nor written by the reference."""
    written = case.task.module().written
    return [
        spec.kind is ArgKind.TENSOR and not spec.static and i not in written for i, spec in enumerate(case.task.args)
    ]


@dataclass(frozen=True)
class Placed:
    """How one argument lies in memory: its strides, and its beginning at a page, one element after it, or so that it
    ends before a page that cannot be read. ``repeats``: all slices along its first dimension are one."""

    strides: Strides | None = None
    at: Literal["page", "element", "end"] = "page"
    repeats: bool = False


def repeated(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor with each slice along its first dimension replaced by the first one."""
    return value.narrow(0, 0, 1).expand(value.shape).contiguous() if value.dim() and len(value) > 1 else value


def mixed(args: Sequence[Any], placed: Mapping[int, Placed], same: Sequence[tuple[int, int]] = ()) -> Layout:
    """Return a layout with some arguments ``placed``, by position, the others as usual. Of two in ``same`` that are
    alike, the second is where the first is."""
    places: list[Place] = []
    fences: list[int] = []
    end = 0
    for position, arg in enumerate(args):
        placement, usual = placed.get(position, Placed()), lay_out([arg]).places[0]
        if not isinstance(arg, torch.Tensor):
            places.append(usual)
            continue
        strides = usual.strides if placement.strides is None else placement.strides(usual.shape)
        place = replace(usual, strides=(0, *strides[1:]) if placement.repeats and strides else strides)
        size = place.span * arg.element_size()
        begin = -(-(end + CAPS.guard) // _PAGE) * _PAGE
        if placement.at == "end" and size:
            fence = -(-(begin + size) // _PAGE) * _PAGE
            fences.append(fence)
            # A vector load within its line stays on the page.
            begin = (fence - size) // LINE_BYTES * LINE_BYTES
            end = fence + _PAGE
        else:
            begin += arg.element_size() if placement.at == "element" else 0
            end = begin + size
        places.append(replace(place, offset=begin))
    for first, second in same:
        if args[first] is args[second]:
            places[second] = places[first]
    return Layout(tuple(places), -(-(end + CAPS.guard) // _PAGE) * _PAGE, tuple(fences))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _of_rank(args: Sequence[Any], least: int) -> list[int]:
    return [i for i, a in enumerate(args) if hasattr(a, "numel") and a.dim() >= least and a.numel()]


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 2:
        return contiguous(shape)
    strides = contiguous((*shape[:-2], shape[-1], shape[-2]))
    return (*strides[:-2], strides[-1], strides[-2])


def _stepped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * s for s in contiguous(shape))


def _ordered(order: Callable[[int], tuple[int, ...]], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of dimensions stored in ``order`` (a function of their number), from outermost to
    innermost."""
    if len(shape) < 3:
        return contiguous(shape)
    dims = order(len(shape))
    strides = dict(zip(dims, contiguous(tuple(shape[d] for d in dims)), strict=True))
    return tuple(strides[d] for d in range(len(shape)))


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 4:
        return contiguous(shape)
    batch, *places, channels = contiguous((shape[0], *shape[2:], shape[1]))
    return (batch, channels, *places)


def _gaps(shape: tuple[int, ...]) -> tuple[int, ...]:
    return contiguous(shape) if len(shape) < 2 else (*contiguous((*shape[:-1], shape[-1] + 3))[:-1], 1)


def _turned(dim: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides with dimension ``dim`` and the next one swapped; both precede the last dimension."""
    if len(shape) < dim + 3:
        return contiguous(shape)
    order = [*shape[:dim], shape[dim + 1], shape[dim], *shape[dim + 2 :]]
    strides = contiguous(tuple(order))
    return (*strides[:dim], strides[dim + 1], strides[dim], *strides[dim + 2 :])


def _longer(dim: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a slice along ``dim``, which is not the last dimension, of a longer tensor."""
    if len(shape) < dim + 2:
        return contiguous(shape)
    return contiguous((*shape[:dim], shape[dim] + 2, *shape[dim + 1 :]))


def _one_element(_: int, size: int) -> int:
    return size


def _on_a_page(_: int, __: int) -> int:
    return 0


def _placed(
    args: Sequence[Any], strides: Strides, shift: Callable[[int, int], int] = _on_a_page, alone: int | None = None
) -> Layout:
    """Return a layout of ``args`` with ``strides``, or only of the argument ``alone`` with the others contiguous. Each
    begins ``shift`` bytes after a page boundary, a function of its position and element size."""
    places: list[Place] = []
    end = 0
    for position, arg in enumerate(args):
        if not isinstance(arg, torch.Tensor):
            places.append(Place(value=arg))
            continue
        offset = -(-(end + CAPS.guard) // _PAGE) * _PAGE + shift(position, arg.element_size())
        shape = tuple(arg.shape)
        strides_of = strides if alone in (None, position) else contiguous
        place = Place(offset, shape, strides_of(shape), str(arg.dtype).removeprefix("torch."))
        places.append(place)
        end = offset + place.span * arg.element_size()
    return Layout(tuple(places), -(-(end + CAPS.guard) // _PAGE) * _PAGE)


#: Orders of one argument: in words before its name, the ranks that have it, its strides, and the limit of a kernel that
#: is wrong there.
ORDERS: tuple[tuple[str, range, Strides, Literal["all", "rows"]], ...] = (
    ("gaps in the rows of", range(2, 99), _gaps, "all"),
    ("transposed", range(2, 99), _swapped, "rows"),
    ("every other element of", range(2, 99), _stepped, "rows"),
    ("every other element of", range(1, 2), _stepped, "all"),
    ("swapped outer dimensions of", range(3, 99), partial(_turned, 0), "all"),
    ("the first dimension innermost in", range(3, 99), partial(_ordered, lambda n: (*range(1, n), 0)), "rows"),
)
