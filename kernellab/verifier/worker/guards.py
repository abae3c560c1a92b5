"""Allocations between guard zones, which reveal a kernel that writes past the end of its output.

The judge checks the guards around outputs. The worker checks those around the rest, a kernel's workspaces: that finds
errors, and a kernel that wants to deceive gains nothing there. What its own objects and NumPy get from malloc, calloc
or operator new has guard pages, from a preloaded allocator (``heap.c``) if the machine could build it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from kernellab.sandbox.caps import CAPS

#: NaN where the kernel must write; the guards differ from it, since a kernel may write a NaN that it read
_POISON = 0xFF
GUARD = 0xA5
#: bytes of workspaces that are kept alive, so that their guards can be checked
_HELD = 1 << 30
#: alignment of memory that begins inside a page, and the alternating position of fenced memory in its pages
_LINE, _SIDES = 64, itertools.cycle((0, 1))
#: mallopt(3): each byte of new memory is the complement of this, which gives large numbers in all float formats
_PERTURB, _BYTE = -6, 0x01
#: the object of NumPy that allocates arrays
_NUMPY = b"_multiarray_umath"


class Trespass(Exception):
    """A call wrote next to memory that it allocated, or accessed memory outside of the tensors passed to it."""


class Workspaces:
    """Host memory that a call allocates between guards, as byte arrays with the size (bytes) of each guard."""

    def __init__(self, heap: Any = None) -> None:
        self.heap = heap
        self._held: list[tuple[Any, int]] = []
        self._bytes = 0

    def add(self, whole: Any, edge: int) -> None:
        if self._bytes < _HELD:
            self._held.append((whole, edge))
            self._bytes += whole.nbytes

    def look(self, but: Sequence[int] = ()) -> None:
        """Stop watching memory. Raises Trespass if a guard is damaged, except for memory at the addresses ``but``."""
        if self.heap is not None:
            self.heap.kernellab_heap_unwatch()
        size = self.heap.kernellab_heap_disarm() if self.heap is not None else 0
        if size:
            raise _trespass(size - 1)
        for whole, edge in self._held:
            if whole.ctypes.data in but:
                continue
            if not (whole[:edge] == GUARD).all() or not (whole[whole.size - edge :] == GUARD).all():
                raise _trespass(whole.nbytes - 2 * edge)


def _trespass(size: int) -> Trespass:
    return Trespass(f"writes outside a workspace of {size} bytes that it allocates")


def heap() -> Any:
    """The allocator that was preloaded into this process; None if there is none."""
    process = ctypes.CDLL(None)
    if not hasattr(process, "kernellab_heap_arm"):
        return None
    process.kernellab_heap_disarm.restype = ctypes.c_size_t
    process.kernellab_heap_watch.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return process


@contextlib.contextmanager
def perturbed() -> Iterator[None]:
    """While entered, memory from malloc is not zero by chance (glibc)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_PERTURB, _BYTE)
    try:
        yield
    finally:
        mallopt(_PERTURB, 0)


@contextlib.contextmanager
def guarded(kind: str = "cpu", below: str = "", slow: bool = False) -> Iterator[Workspaces]:
    """While entered, torch's plain allocations on a device of ``kind`` (empty, zeros and their ``_like`` and ``new_``
    forms) are between two guard zones and start poisoned; so is memory that NumPy and objects ``below`` a folder get
    from the C library, if an allocator was preloaded. ``slow``: threads that access torch's allocations are delayed
    there at random (see ``heap.c``)."""
    import torch

    originals: dict[tuple[Any, str], Callable[..., Any]] = {
        (torch, name): getattr(torch, name) for name in ("empty", "zeros", "empty_like", "zeros_like")
    }
    originals |= {(torch.Tensor, name): getattr(torch.Tensor, name) for name in ("new_empty", "new_zeros")}
    empty = torch.empty
    allocator = heap() if kind == "cpu" and below else None
    # kept alive here: the library makes no copies
    names = f"{below}/".encode(), _NUMPY
    workspaces = Workspaces(allocator)

    def fenced(count: int, dtype: Any, zero: bool) -> Any:
        """Whole pages between inaccessible pages; the data alternately begins, or ends within a line, at one."""
        size = count * empty(0, dtype=dtype).element_size()
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        pages = mmap.mmap(-1, room + 2 * mmap.PAGESIZE)
        for place in (0, room + mmap.PAGESIZE):
            protect(pages, place, mmap.PAGESIZE, 0)
        at = mmap.PAGESIZE + (room - size) // _LINE * _LINE * next(_SIDES)
        inner = torch.frombuffer(pages, dtype=dtype, count=count, offset=at)
        inner.view(torch.uint8).fill_(0 if zero else _POISON)
        if allocator is not None:
            allocator.kernellab_heap_watch(inner.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE, room)
        return inner

    def allocate(shape: tuple[int, ...], dtype: Any, zero: bool, device: Any) -> Any:
        none = empty(0, dtype=dtype)
        item = none.element_size()
        edge = CAPS.output_guard // item
        count = prod(shape)
        if kind == "cpu":
            # only on this thread: a team woken to fill a megabyte spins on all cores for milliseconds
            size = (count + 2 * edge) * item
            if slow and count:
                return fenced(count, dtype, zero).view(shape)
            every = none.set_(torch.UntypedStorage(size), 0, (size // item,), (1,))  # type: ignore[no-untyped-call]
            raw = every.view(torch.uint8).numpy()
            raw[: edge * item] = raw[len(raw) - edge * item :] = GUARD
            raw[edge * item : len(raw) - edge * item] = 0 if zero else _POISON
            workspaces.add(raw, edge * item)
            return every[edge : edge + count].view(shape)
        whole = empty(count + 2 * edge, dtype=dtype, device=device)
        whole.view(torch.uint8).fill_(GUARD)
        inner = whole[edge : edge + count].view(shape)
        if count:
            inner.view(torch.uint8).fill_(0 if zero else _POISON)
        return inner

    def by_shape(original: Callable[..., Any], zero: bool) -> Callable[..., Any]:
        def call(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **rest: Any) -> Any:
            shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
            here = torch.get_default_device() if device is None else device
            plain = not rest and not requires_grad and _is(here, kind) and all(isinstance(n, int) for n in shape)
            if not plain or not shape:
                return original(*size, dtype=dtype, device=device, requires_grad=requires_grad, **rest)
            return allocate(shape, dtype or torch.get_default_dtype(), zero, here)

        return call

    def by_tensor(original: Callable[..., Any], zero: bool) -> Callable[..., Any]:
        def call(like: Any, *args: Any, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
            here = like.device if device is None else device
            plain = not args and not rest and _is(here, kind) and like.device.type == kind and like.is_contiguous()
            if not plain or not like.dim():
                extra = {k: v for k, v in (("dtype", dtype), ("device", device)) if v is not None}
                return original(like, *args, **extra, **rest)
            return allocate(tuple(like.shape), dtype or like.dtype, zero, here)

        return call

    def by_method(original: Callable[..., Any], zero: bool) -> Callable[..., Any]:
        def call(self: Any, *size: Any, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
            shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else size
            here = self.device if device is None else device
            if rest or not shape or not _is(here, kind) or self.device.type != kind:
                return original(self, *size, dtype=dtype, device=device, **rest)
            return allocate(shape, dtype or self.dtype, zero, here)

        return call

    makers = {"empty": by_shape, "zeros": by_shape, "empty_like": by_tensor, "zeros_like": by_tensor,
              "new_empty": by_method, "new_zeros": by_method}  # fmt: skip
    for (owner, name), original in originals.items():
        setattr(owner, name, makers[name](original, "zeros" in name))
    if allocator is not None:
        allocator.kernellab_heap_forget()
        allocator.kernellab_heap_arm(*names)
    try:
        yield workspaces
    finally:
        if allocator is not None:
            allocator.kernellab_heap_unwatch()
            allocator.kernellab_heap_disarm()
        for (owner, name), original in originals.items():
            setattr(owner, name, original)


def protect(memory: Any, place: int, size: int, rights: int) -> None:
    """Set the access rights of ``size`` bytes, whole pages, of mapped memory."""
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + place), ctypes.c_size_t(size), rights)


def _is(device: Any, kind: str) -> bool:
    return (f"cuda:{device}" if isinstance(device, int) else str(device)).split(":")[0] == kind
