"""Device memory that two processes share, through the CUDA driver's virtual memory interface.

A piece of physical memory (``cuMemCreate``) is exported as a file descriptor, sent over a Unix socket, and mapped by
the other process at a separate address, read-only if that is enough (CUDA Driver API, "Virtual Memory Management").
Only that piece is shared: ``cudaIpc`` would export an allocator's whole block, with everything next to it.

Both processes need a current context (``torch.cuda.init()`` and one operation make torch's own current).
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_PINNED, _DEVICE, _POSIX = 1, 1, 1
#: CU_MEM_ACCESS_FLAGS_PROT_READ and _READWRITE
READ, READ_WRITE = 1, 3
_OUT_OF_MEMORY = 2


class DriverError(Exception):
    """A call of the driver failed: its name and the driver's name of the error."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} failed: {_name(code)}")
        self.code = code

    @property
    def out_of_memory(self) -> bool:
        return self.code == _OUT_OF_MEMORY


class Location(ctypes.Structure):
    """CUmemLocation of cuda.h."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationFlags(ctypes.Structure):
    """The allocFlags of CUmemAllocationProp."""

    _fields_ = [
        ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]  # fmt: skip


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp of cuda.h."""

    _fields_ = [
        ("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
        ("win32", ctypes.c_void_p), ("flags", AllocationFlags),
    ]  # fmt: skip


class Access(ctypes.Structure):
    """CUmemAccessDesc of cuda.h."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libcuda. Raises OSError if there is no driver."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *args: Any) -> None:
    """Call a function of the driver by name. Raises DriverError."""
    code = getattr(library(), name)(*args)
    if code:
        raise DriverError(name, code)


def _name(code: int) -> str:
    text = ctypes.c_char_p()
    with contextlib.suppress(OSError):
        library().cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
    return (text.value or b"").decode() or f"error {code}"


def properties(device: int) -> AllocationProperties:
    """The properties of pinned, shareable memory on ``device``."""
    return AllocationProperties(type=_PINNED, handle_types=_POSIX, location=Location(_DEVICE, device))


def granularity(device: int) -> int:
    """Granularity of physical memory in bytes (2 MiB on known GPUs)."""
    size = ctypes.c_size_t()
    call("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(properties(device)), ctypes.c_int(0))
    return size.value


def round_up(count: int, step: int) -> int:
    return -(-count // step) * step


@dataclass
class Mapping:
    """Physical memory mapped in this process: address and bytes. ``close`` unmaps it; the memory exists until the last
    process has unmapped it."""

    address: int
    size: int
    handle: int
    closed: bool = field(default=False, repr=False)

    def export(self) -> int:
        """A file descriptor of the memory, for the other process; the caller closes it."""
        fd = ctypes.c_int(-1)
        call(
            "cuMemExportToShareableHandle", ctypes.byref(fd), ctypes.c_ulonglong(self.handle), ctypes.c_int(_POSIX),
            ctypes.c_ulonglong(0),
        )  # fmt: skip
        return fd.value

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            lib, address, size = library(), ctypes.c_ulonglong(self.address), ctypes.c_size_t(self.size)
            # a context broken by a kernel refuses; the memory is then freed with the process
            lib.cuMemUnmap(address, size)
            lib.cuMemAddressFree(address, size)
            lib.cuMemRelease(ctypes.c_ulonglong(self.handle))


def create(size: int, device: int) -> Mapping:
    """New memory of at least ``size`` bytes, mapped for reading and writing. Raises DriverError."""
    size = round_up(max(size, 1), granularity(device))
    handle = ctypes.c_ulonglong()
    call(
        "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties(device)),
        ctypes.c_ulonglong(0),
    )  # fmt: skip
    return _map(handle.value, size, device, READ_WRITE)


def attach(fd: int, size: int, device: int, access: int = READ_WRITE) -> Mapping:
    """The memory of another process behind ``fd``, of exactly ``size`` bytes. Raises DriverError."""
    handle = ctypes.c_ulonglong()
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), ctypes.c_int(_POSIX))
    return _map(handle.value, size, device, access)


def _map(handle: int, size: int, device: int, access: int) -> Mapping:
    address = ctypes.c_ulonglong()
    lib = library()
    try:
        call(
            "cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0),
            ctypes.c_ulonglong(0), ctypes.c_ulonglong(0),
        )  # fmt: skip
        try:
            call(
                "cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(handle),
                ctypes.c_ulonglong(0),
            )  # fmt: skip
            access_desc = Access(Location(_DEVICE, device), access)
            call("cuMemSetAccess", address, ctypes.c_size_t(size), ctypes.byref(access_desc), ctypes.c_size_t(1))
        except DriverError:
            lib.cuMemUnmap(address, ctypes.c_size_t(size))
            lib.cuMemAddressFree(address, ctypes.c_size_t(size))
            raise
    except DriverError:
        lib.cuMemRelease(ctypes.c_ulonglong(handle))
        raise
    return Mapping(address.value, size, handle)


def reset_persisting_lines() -> None:
    """Clear the persisting state of L2 lines; does nothing if the device has no such lines."""
    library().cuCtxResetPersistingL2Cache()


class _Raw:
    """Raw device bytes in the form that torch.as_tensor accepts without a copy."""

    def __init__(self, address: int, count: int, keep: object) -> None:
        self.keep = keep
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }


def bytes_at(address: int, count: int, keep: object = None) -> Any:
    """``count`` bytes at ``address`` as a uint8 tensor on the device, not copied; it keeps ``keep`` alive."""
    import torch

    return torch.as_tensor(_Raw(address, count, keep), device="cuda")
