"""The arguments of calls in memory that judge and worker share: their places, and the poison around them.

An arena holds one set of arguments, each between guard zones; everything that is no element is poison::

    | poison | argument 0 | poison | argument 1, with poison between its rows | poison |

The judge writes the arguments, and finds by the poison whether a worker wrote next to them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.sandbox.caps import CAPS
from kernellab.task.dtypes import channels_last
from kernellab.verifier.protocol.control import span_elements
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.protocol.seals import sealed_memory

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: 0xff is NaN in every float format, -1 in every signed integer
POISON = 0xFF
_ALIGN = 4096
#: elements compared at once: their mask takes 64 MiB
_PIECE = 1 << 26
#: elements of the gap between two rows of a strided argument, and by which it starts off a page boundary
_ROW_GAP, _OFF_PAGE = 3, 4
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Place:
    """Position of one argument in an arena: byte offset, shape and strides in elements. Scalars have a value."""

    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: str = ""
    value: Any = None

    @property
    def message(self) -> dict[str, Any]:
        if not self.dtype:
            return {"value": self.value}
        return {"offset": self.offset, "shape": self.shape, "strides": self.strides, "dtype": self.dtype}

    @property
    def span(self) -> int:
        """Number of elements from the first to the last."""
        return span_elements(self.shape, self.strides)


@dataclass(frozen=True)
class Layout:
    """Places of a set of arguments in an arena of ``size`` bytes."""

    places: tuple[Place, ...]
    size: int
    #: offsets of pages that the worker may not touch during a call
    fences: tuple[int, ...] = ()
    #: may the worker only read the arguments during a call?
    sealed: bool = False
    #: positions of arguments that hold the contents of several calls, along a first dimension
    stacked: tuple[int, ...] = ()


def lay_out(args: Sequence[Any], strided: bool = False) -> Layout:
    """Place ``args`` one after the other, each between guard zones.

    ``strided`` adds a gap between the rows of every tensor with two or more dimensions, and starts it off a page
    boundary.
    """
    import torch

    places: list[Place] = []
    end = 0
    for arg in args:
        if not isinstance(arg, torch.Tensor):
            places.append(Place(value=arg))
            continue
        shape = tuple(arg.shape)
        item = arg.element_size()
        strides = _contiguous(shape, gap=_ROW_GAP if strided and len(shape) >= 2 else 0)
        if not strided and channels_last(arg):
            strides = arg.stride()
        offset = _aligned(end + CAPS.guard) + (item * _OFF_PAGE if strided else 0)
        place = Place(offset, shape, strides, str(arg.dtype).removeprefix("torch."))
        places.append(place)
        end = offset + place.span * item
    return Layout(tuple(places), _aligned(end + CAPS.guard))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


class _Withheld(NamedTuple):
    """The right bytes of an element that is wrong until the go."""

    offset: int
    content: bytes


class _Gap(NamedTuple):
    """Bytes between arguments, and the position of the argument that is next to them."""

    start: int
    stop: int
    position: int


class Arena:
    """Shared memory for one set of arguments."""

    device = "cpu"

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = sealed_memory("inputs", size)
        self.map = mmap.mmap(self.fd, size)
        self.layout: Layout | None = None
        self._views: list[Tensor | None] = []
        self._withheld: list[_Withheld] = []

    def write(self, layout: Layout, args: Sequence[Any]) -> None:
        """Write ``args`` at their places; everything between them is poison."""
        if layout is not self.layout:
            self._poison(layout)
        for view, arg in zip(self._views, args, strict=True):
            if view is not None:
                _copy(view, arg)

    def views(self) -> list[Tensor | None]:
        return self._views

    def withhold(self, draw: random.Random) -> None:
        """Change a few elements of each tensor, at secret places, until :meth:`complete`: work on contents before the
        go then uses wrong ones."""
        assert self.layout is not None
        self._withheld = []
        for place, view in zip(self.layout.places, self._views, strict=True):
            if view is None or not place.span:
                continue
            item = view.element_size()
            for _ in range(TIMING.withheld_elements):
                index = sum(draw.randrange(n) * s for n, s in zip(place.shape, place.strides, strict=True))
                at = place.offset + index * item
                if all(at != used.offset for used in self._withheld):
                    content = bytes(self.map[at : at + item])
                    self._withheld.append(_Withheld(at, content))
                    self.map[at : at + item] = bytes(b ^ 0xFF for b in content)

    def complete(self) -> None:
        """Restore the withheld elements, within a few microseconds, since the clock runs."""
        memory = self.map
        for at, content in self._withheld:
            memory[at : at + len(content)] = content
        self._withheld = []

    def changed(self, args: Sequence[Any], but: Collection[int] = ()) -> int | None:
        """The first argument whose bytes differ from ``args``, except those in ``but`` and those that lie where one of
        these does; None if all are unchanged."""
        places = self.layout.places if self.layout is not None else ()
        written = {places[i].offset for i in but if i < len(places) and 0 not in places[i].shape}
        for i, (view, arg) in enumerate(zip(self._views, args, strict=True)):
            is_free = i not in but and not (i < len(places) and places[i].offset in written)
            if is_free and view is not None and view.numel() and not equal(_bits(view), _bits(arg.contiguous())):
                return i
        return None

    def trespassed(self) -> int | None:
        """The argument next to which something wrote into the poison; None if the poison is intact."""
        import torch

        assert self.layout is not None
        whole = self._flat(torch.uint8, self.size, 0)
        spans = sorted(
            (place.offset, place.offset + place.span * view.element_size(), position)
            for position, (place, view) in enumerate(zip(self.layout.places, self._views, strict=True))
            if view is not None
        )
        gaps: list[_Gap] = []
        end = last = 0
        for start, stop, position in spans:
            gaps.append(_Gap(end, start, position))
            # two arguments may be one tensor
            end, last = max(end, stop), position
        gaps.append(_Gap(end, self.layout.size, last))
        for gap in gaps:
            if gap.stop > gap.start and not is_all(whole[gap.start : gap.stop], POISON):
                return gap.position
        return None

    def close(self) -> None:
        self._views = []
        # if a tensor still views the memory, it is freed with that tensor
        with contextlib.suppress(BufferError):
            self.map.close()
        os.close(self.fd)

    def _poison(self, layout: Layout) -> None:
        import torch

        for gap in _poisoned(layout):
            self._flat(torch.uint8, gap.stop - gap.start, gap.start).fill_(POISON)
        self._views = []
        for place in layout.places:
            if not place.dtype:
                self._views.append(None)
            elif not place.span:
                self._views.append(torch.empty(place.shape, dtype=getattr(torch, place.dtype), device=self.device))
            else:
                flat = self._flat(getattr(torch, place.dtype), place.span, place.offset)
                self._views.append(flat.as_strided(place.shape, place.strides))
        self.layout = layout

    def _flat(self, dtype: torch.dtype, count: int, offset: int) -> Tensor:
        import torch

        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset)


def _copy(view: Tensor, arg: Tensor) -> None:
    """Copy ``arg`` into ``view``; where several indices share a place, the first one's element is used."""
    for i, stride in enumerate(view.stride()):
        if not stride and view.shape[i] > 1:
            view, arg = view.narrow(i, 0, 1), arg.narrow(i, 0, 1)
    view.copy_(arg)


def _poisoned(layout: Layout) -> list[_Gap]:
    """What is poisoned before the arguments are written: between their elements, or all if rows have gaps."""
    gaps, end, last = [], 0, 0
    for position, place in enumerate(layout.places):
        if place.dtype and place.span:
            if place.span != prod(place.shape):
                return [_Gap(0, layout.size, 0)]
            gaps.append(_Gap(end, place.offset, position))
            end, last = place.offset + place.span * _item_bytes(place.dtype), position
    return [*gaps, _Gap(end, layout.size, last)]


def _item_bytes(dtype: str) -> int:
    import torch

    return torch.empty(0, dtype=getattr(torch, dtype)).element_size()


def is_all(whole: Tensor, byte: int) -> bool:
    """Is each byte of a contiguous, not empty uint8 tensor equal to ``byte``?"""
    if whole.device.type != "cpu":
        return bool((whole == byte).all())
    # one pass, without a mask: the first byte is right, and each other byte is equal to the one before
    start = whole.data_ptr()
    return int(whole[0]) == byte and not _libc.memcmp(
        ctypes.c_void_p(start), ctypes.c_void_p(start + 1), ctypes.c_size_t(whole.numel() - 1)
    )


def equal(a: Tensor, b: Tensor) -> bool:
    """Are both equal in every element? Compares in pieces, to avoid a mask of gigabytes."""
    import torch

    if a.numel() <= _PIECE or a.shape != b.shape or not a.dim():
        return bool(torch.equal(a, b))
    step = max(1, _PIECE * a.shape[0] // a.numel())
    return all(torch.equal(a[i : i + step], b[i : i + step]) for i in range(0, a.shape[0], step))


def identical(a: Tensor, b: Tensor) -> bool:
    """Are both equal to the bit?"""
    same_form = a.shape == b.shape and a.dtype == b.dtype
    return same_form and (not a.numel() or equal(_bits(a.contiguous()), _bits(b.contiguous())))


def tensor_bytes(layout: Layout) -> int:
    """Bytes of the tensors of a layout, without guards."""
    return sum(prod(p.shape) * _item_bytes(p.dtype) for p in layout.places if p.dtype)


def _contiguous(shape: tuple[int, ...], gap: int) -> tuple[int, ...]:
    """Strides in elements, with ``gap`` elements after each row."""
    strides: list[int] = []
    step = 1
    for i, n in enumerate(reversed(shape)):
        strides.append(step)
        step *= max(n, 1)
        if i == 0:
            step += gap
    return tuple(reversed(strides))


def _bits(tensor: Tensor) -> Tensor:
    import torch

    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8)
    if tensor.is_complex():
        return torch.view_as_real(tensor).contiguous().view(torch.int32)
    return tensor.view(sizes[tensor.element_size()])
