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
_MOST_WATCHED = 1 << 30
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
        self._watched: list[tuple[Any, int]] = []
        self._bytes = 0

    def add(self, whole: Any, edge: int) -> None:
        if self._bytes < _MOST_WATCHED:
            self._watched.append((whole, edge))
            self._bytes += whole.nbytes

    def check(self, but: Sequence[int] = ()) -> None:
        """Stop watching memory. Raises Trespass if a guard is damaged, except for memory at the addresses ``but``."""
        if self.heap is not None:
            self.heap.kernellab_heap_unwatch()
            # the bytes of damaged memory, plus 1
            damaged = self.heap.kernellab_heap_disarm()
            if damaged:
                raise _trespass(damaged - 1)
        for whole, edge in self._watched:
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


#: torch's functions, and methods of its tensors, that allocate
_FUNCTIONS = ("empty", "zeros", "empty_like", "zeros_like")
_METHODS = ("new_empty", "new_zeros")

Function = Callable[..., Any]


@contextlib.contextmanager
def guarded(kind: str = "cpu", below: str = "", slow: bool = False) -> Iterator[Workspaces]:
    """While entered, torch's plain allocations on a device of ``kind`` (empty, zeros and their ``_like`` and ``new_``
    forms) are between two guard zones and start poisoned; so is memory that NumPy and objects ``below`` a folder get
    from the C library, if an allocator was preloaded. ``slow``: threads that access torch's allocations are delayed
    there at random (see ``heap.c``)."""
    import torch

    allocator = heap() if kind == "cpu" and below else None
    # kept alive here: the library makes no copies
    watched_objects = f"{below}/".encode(), _NUMPY
    workspaces = Workspaces(allocator)
    allocations = _Allocations(kind, slow, workspaces)
    originals: dict[tuple[Any, str], Function] = {(torch, name): getattr(torch, name) for name in _FUNCTIONS}
    originals |= {(torch.Tensor, name): getattr(torch.Tensor, name) for name in _METHODS}
    for (owner, name), original in originals.items():
        setattr(owner, name, allocations.replacement(name, original))
    if allocator is not None:
        allocator.kernellab_heap_forget()
        allocator.kernellab_heap_arm(*watched_objects)
    try:
        yield workspaces
    finally:
        if allocator is not None:
            allocator.kernellab_heap_unwatch()
            allocator.kernellab_heap_disarm()
        for (owner, name), original in originals.items():
            setattr(owner, name, original)


class _Allocations:
    """Allocates tensors on a device of one ``kind``, each between two guards::

    | GUARD ... | 0xff (or 0) for each element | GUARD ... |
    """

    def __init__(self, kind: str, slow: bool, workspaces: Workspaces) -> None:
        import torch

        self.kind, self.slow, self.workspaces = kind, slow, workspaces
        self._empty = torch.empty

    # -- replacements of torch's functions; what they do not handle goes to the original

    def replacement(self, name: str, original: Function) -> Function:
        """What takes the place of torch's function ``name``."""
        make = self._by_method if name in _METHODS else self._like if name.endswith("_like") else self._by_shape
        return make(original, "zeros" in name)

    def _by_shape(self, original: Function, zero: bool) -> Function:
        import torch

        def call(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **rest: Any) -> Any:
            shape = _shape(size)
            here = torch.get_default_device() if device is None else device
            is_handled = shape and not rest and not requires_grad and _is(here, self.kind)
            if not is_handled or not all(isinstance(n, int) for n in shape):
                return original(*size, dtype=dtype, device=device, requires_grad=requires_grad, **rest)
            return self.tensor(shape, dtype or torch.get_default_dtype(), zero, here)

        return call

    def _like(self, original: Function, zero: bool) -> Function:
        def call(like: Any, *args: Any, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
            here = like.device if device is None else device
            is_handled = like.dim() and not args and not rest and _is(here, self.kind)
            if not is_handled or like.device.type != self.kind or not like.is_contiguous():
                extra = {k: v for k, v in (("dtype", dtype), ("device", device)) if v is not None}
                return original(like, *args, **extra, **rest)
            return self.tensor(tuple(like.shape), dtype or like.dtype, zero, here)

        return call

    def _by_method(self, original: Function, zero: bool) -> Function:
        def call(tensor: Any, *size: Any, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
            shape = _shape(size)
            here = tensor.device if device is None else device
            if rest or not shape or not _is(here, self.kind) or tensor.device.type != self.kind:
                return original(tensor, *size, dtype=dtype, device=device, **rest)
            return self.tensor(shape, dtype or tensor.dtype, zero, here)

        return call

    # -- memory

    def tensor(self, shape: tuple[int, ...], dtype: Any, zero: bool, device: Any) -> Any:
        """A new tensor between guards, of poison or ``zero``."""
        count = prod(shape)
        if self.kind != "cpu":
            return self._on_device(count, dtype, zero, device).view(shape)
        if self.slow and count:
            return self._fenced(count, dtype, zero).view(shape)
        return self._on_host(count, dtype, zero).view(shape)

    def _on_host(self, count: int, dtype: Any, zero: bool) -> Any:
        import torch

        none = self._empty(0, dtype=dtype)
        item = none.element_size()
        edge = CAPS.output_guard // item
        size = (count + 2 * edge) * item
        # only on this thread: a team woken to fill a megabyte spins on all cores for milliseconds
        every = none.set_(torch.UntypedStorage(size), 0, (size // item,), (1,))  # type: ignore[no-untyped-call]
        raw = every.view(torch.uint8).numpy()
        raw[: edge * item] = raw[len(raw) - edge * item :] = GUARD
        raw[edge * item : len(raw) - edge * item] = 0 if zero else _POISON
        self.workspaces.add(raw, edge * item)
        return every[edge : edge + count]

    def _on_device(self, count: int, dtype: Any, zero: bool, device: Any) -> Any:
        import torch

        edge = CAPS.output_guard // self._empty(0, dtype=dtype).element_size()
        whole = self._empty(count + 2 * edge, dtype=dtype, device=device)
        whole.view(torch.uint8).fill_(GUARD)
        inner = whole[edge : edge + count]
        if count:
            inner.view(torch.uint8).fill_(0 if zero else _POISON)
        return inner

    def _fenced(self, count: int, dtype: Any, zero: bool) -> Any:
        """Whole pages between inaccessible pages; the data alternately begins, or ends within a line, at one."""
        import torch

        size = count * self._empty(0, dtype=dtype).element_size()
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        pages = mmap.mmap(-1, room + 2 * mmap.PAGESIZE)
        for fence in (0, room + mmap.PAGESIZE):
            protect(pages, fence, mmap.PAGESIZE, 0)
        start = mmap.PAGESIZE + (room - size) // _LINE * _LINE * next(_SIDES)
        inner = torch.frombuffer(pages, dtype=dtype, count=count, offset=start)
        inner.view(torch.uint8).fill_(0 if zero else _POISON)
        if self.workspaces.heap is not None:
            self.workspaces.heap.kernellab_heap_watch(inner.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE, room)
        return inner


def _shape(size: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape that the arguments of torch's function give: numbers, or one sequence."""
    is_sequence = len(size) == 1 and isinstance(size[0], (tuple, list))
    return tuple(size[0]) if is_sequence else size


@contextlib.contextmanager
def poisoned(on: bool, device: str = "cpu", below: str = "", slow: bool = False) -> Iterator[Workspaces | None]:
    """Fill fresh tensors with NaN between guards, so that unwritten and out-of-bounds elements show. C++ allocations
    are not zero by chance, and objects ``below`` the scratch folder get guards."""
    if not on:
        yield None
        return
    with _filled(device), guarded(device, below, slow) as workspaces, perturbed():
        yield workspaces


@contextlib.contextmanager
def _filled(device: str) -> Iterator[None]:
    """Fill torch's own allocations on a device with NaN. On a host :func:`perturbed` does so for all of malloc: torch's
    way is a mode, by which a kernel could distinguish a checked call from a timed one."""
    if device == "cpu":
        yield
        return
    import torch

    # the public function imports all of inductor (0.8 s)
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(False)


def protect(memory: Any, place: int, size: int, rights: int) -> None:
    """Set the access rights of ``size`` bytes, whole pages, of mapped memory."""
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + place), ctypes.c_size_t(size), rights)


def _is(device: Any, kind: str) -> bool:
    return (f"cuda:{device}" if isinstance(device, int) else str(device)).split(":")[0] == kind
