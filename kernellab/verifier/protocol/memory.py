"""Tensors between judge and worker: inputs in shared memory between poison, outputs read from a stopped worker."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kernellab.errors import VerifierError
from kernellab.sandbox.caps import CAPS
from kernellab.task.dtypes import channels_last
from kernellab.verifier.protocol.control import Output
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.protocol.seals import sealed_memory

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: 0xff is NaN in every float format, -1 in every signed integer
POISON = 0xFF
_ALIGN = 4096
#: elements compared at once
_PIECE = 1 << 26
#: largest number of places that one system call reads (IOV_MAX)
_MOST_PLACES = 1024
#: bytes between two words, less than a page, from which on they are read in two places
_CLOSE = 256
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
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


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
        strides = _contiguous(shape, gap=3 if strided and len(shape) >= 2 else 0)
        if not strided and channels_last(arg):
            strides = arg.stride()
        offset = -(-(end + CAPS.guard) // _ALIGN) * _ALIGN + (item * 4 if strided else 0)
        place = Place(offset, shape, strides, str(arg.dtype).removeprefix("torch."))
        places.append(place)
        end = offset + place.span * item
    return Layout(tuple(places), -(-(end + CAPS.guard) // _ALIGN) * _ALIGN)


class Arena:
    """Shared memory for one set of arguments."""

    device = "cpu"

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = sealed_memory("inputs", size)
        self.map = mmap.mmap(self.fd, size)
        self.layout: Layout | None = None
        self._views: list[Tensor | None] = []
        self._withheld: list[tuple[int, bytes]] = []

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
                if all(at != used for used, _ in self._withheld):
                    right = bytes(self.map[at : at + item])
                    self._withheld.append((at, right))
                    self.map[at : at + item] = bytes(b ^ 0xFF for b in right)

    def complete(self) -> None:
        """Restore the withheld elements, within a few microseconds, since the clock runs."""
        memory = self.map
        for at, right in self._withheld:
            memory[at : at + len(right)] = right
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
            (place.offset, place.offset + place.span * view.element_size(), i)
            for i, (place, view) in enumerate(zip(self.layout.places, self._views, strict=True))
            if view is not None
        )
        edges: list[tuple[int, int, int]] = []
        end = last = 0
        for start, stop, i in spans:
            edges.append((end, start, i))
            # two arguments may be one tensor
            end, last = max(end, stop), i
        edges.append((end, self.layout.size, last))
        for start, stop, i in edges:
            if stop > start and not is_all(whole[start:stop], POISON):
                return i
        return None

    def close(self) -> None:
        self._views = []
        # if a tensor still views the memory, it is freed with that tensor
        with contextlib.suppress(BufferError):
            self.map.close()
        os.close(self.fd)

    def _poison(self, layout: Layout) -> None:
        import torch

        for start, size in _between(layout):
            self._flat(torch.uint8, size, start).fill_(POISON)
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


def _between(layout: Layout) -> list[tuple[int, int]]:
    """Offset and bytes of the gaps between the arguments' elements; one piece if rows have gaps."""
    import torch

    gaps, end = [], 0
    for place in layout.places:
        if place.dtype and place.span:
            if place.span != prod(place.shape):
                return [(0, layout.size)]
            gaps.append((end, place.offset - end))
            end = place.offset + place.span * torch.empty(0, dtype=getattr(torch, place.dtype)).element_size()
    return [*gaps, (end, layout.size - end)]


#: not empty if outputs had to be read through /proc
READ_BY_FILE: set[bool] = set()


class Unreadable(Exception):
    """The worker's memory cannot be read at the stated place of its output."""


def read_output(pid: int, output: Output) -> Tensor:
    """A contiguous copy of an output in the memory of the (stopped) process ``pid``."""
    import torch

    dtype = getattr(torch, output.dtype)
    if 0 in output.shape:
        return torch.empty(output.shape, dtype=dtype)
    item = torch.empty(0, dtype=dtype).element_size()
    span = 1 + sum((n - 1) * s for n, s in zip(output.shape, output.strides, strict=True))
    if output.data + span * item > output.storage + output.storage_bytes:
        raise Unreadable("an output reaches beyond its storage")
    if span * item > max(CAPS.memory, CAPS.memory_factor * prod(output.shape) * item):
        raise Unreadable("an output's elements lie further apart than memory reaches")
    buffer = torch.empty(span * item, dtype=torch.uint8)
    _read(pid, output.data, buffer.data_ptr(), span * item)
    return buffer.view(dtype).as_strided(output.shape, output.strides).contiguous()


def read_bytes(pid: int, address: int, count: int) -> Tensor:
    """``count`` bytes at ``address`` of the process ``pid`` (uint8). Raises Unreadable."""
    import torch

    buffer = torch.empty(count, dtype=torch.uint8)
    _read(pid, address, buffer.data_ptr(), count)
    return buffer


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Window:
    """A few places (address, bytes) of a process that may be running, for frequent reads by one system call. ``words``:
    the numbers of those words of 8 bytes that count, in all that is read; empty for all."""

    def __init__(self, places: Sequence[tuple[int, int]], words: Sequence[int] = ()) -> None:
        self._size = sum(count for _, count in places)
        self._there = (_Span * len(places))(*(_Span(*place) for place in places))
        import numpy as np

        # a list would be converted at each read, which takes six times as long as the read
        self._words = np.asarray(words, np.intp)

    @classmethod
    def of_words(cls, addresses: Sequence[int]) -> Window:
        """A window on words of 8 bytes; as many as one call reads. Words that are close are read in one place, with
        what lies between them, which does not count: each place takes as long as several hundred bytes."""
        places: list[tuple[int, int]] = []
        words: list[int] = []
        size = 0
        for address in sorted(set(addresses)):
            gap = address - sum(places[-1]) if places else _CLOSE
            if gap % 8 == 0 and gap < _CLOSE:
                places[-1] = places[-1][0], places[-1][1] + gap + 8
                size += gap + 8
            elif len(places) == _MOST_PLACES:
                break
            else:
                places.append((address, 8))
                size += 8
            words.append(size // 8 - 1)
        return cls(places, words)

    def read(self, pid: int) -> bytes | None:
        """The bytes that count, up to the first place that cannot be read; None if no memory of the process can be
        read."""
        buffer = ctypes.create_string_buffer(self._size)
        here, count = _Span(ctypes.addressof(buffer), self._size), ctypes.c_ulong(len(self._there))
        got = _libc.process_vm_readv(
            ctypes.c_int(pid), ctypes.byref(here), ctypes.c_ulong(1), self._there, count, ctypes.c_ulong(0)
        )
        if got < 0:
            return b"" if ctypes.get_errno() == errno.EFAULT else None
        if not len(self._words):
            return buffer.raw[:got]
        import numpy as np

        words = np.frombuffer(buffer.raw[:got], np.uint64)
        return bytes(words[self._words[: self._words.searchsorted(len(words))]].tobytes())


def _read(pid: int, remote: int, local: int, count: int) -> None:
    done = 0
    while done < count:
        step = min(count - done, 1 << 30)
        got, error = _vm_read(pid, remote + done, local + done, step)
        if got <= 0 and error in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            got = _file_read(pid, remote + done, local + done, step)
        elif got <= 0:
            raise Unreadable(os.strerror(error))
        done += got


def _vm_read(pid: int, remote: int, local: int, count: int) -> tuple[int, int]:
    here, there = _Span(local, count), _Span(remote, count)
    got = _libc.process_vm_readv(
        ctypes.c_int(pid), ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
    )
    return got, ctypes.get_errno() if got <= 0 else 0


def _file_read(pid: int, remote: int, local: int, count: int) -> int:
    """The same through /proc, which hardened containers allow more often than the system call."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(remote)
            got = file.readinto((ctypes.c_char * count).from_address(local))
    except PermissionError:
        raise VerifierError(
            "This system does not let the judge read its workers' memory (process_vm_readv and /proc/PID/mem).",
            "Allow ptrace between processes of one user: docker run --cap-add SYS_PTRACE.",
        ) from None
    except (OSError, ValueError, OverflowError) as error:
        raise Unreadable(str(error)) from None
    if not got:
        raise Unreadable("nothing is there")
    READ_BY_FILE.add(True)
    return got


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


def fresh_copy(layout: Layout) -> int:
    """Bytes of the tensors of a layout, without guards."""
    import torch

    return sum(
        prod(p.shape) * torch.empty(0, dtype=getattr(torch, p.dtype)).element_size() for p in layout.places if p.dtype
    )


def _contiguous(shape: tuple[int, ...], gap: int) -> tuple[int, ...]:
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
