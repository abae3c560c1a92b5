"""The memory of a worker's process, read by the judge from outside: outputs of a stopped worker, and a few words of a
running one."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from kernellab.errors import VerifierError
from kernellab.sandbox.caps import CAPS
from kernellab.verifier.protocol.control import MemorySpan, Output

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: largest number of places that one system call reads (IOV_MAX)
_MOST_PLACES = 1024
#: bytes of one system call that reads an output
_MOST_BYTES = 1 << 30
#: bytes of a word, and bytes between two words, less than a page, from which on they are read in two places
_WORD, _CLOSE = 8, 256
_libc = ctypes.CDLL(None, use_errno=True)

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
    size = output.span * item
    if output.data + size > output.storage + output.storage_bytes:
        raise Unreadable("an output reaches beyond its storage")
    if size > max(CAPS.memory, CAPS.memory_factor * prod(output.shape) * item):
        raise Unreadable("an output's elements lie further apart than memory reaches")
    buffer = read_bytes(pid, output.data, size)
    return buffer.view(dtype).as_strided(output.shape, output.strides).contiguous()


def read_bytes(pid: int, address: int, count: int) -> Tensor:
    """``count`` bytes at ``address`` of the process ``pid`` (uint8). Raises Unreadable."""
    import torch

    buffer = torch.empty(count, dtype=torch.uint8)
    _read(pid, address, buffer.data_ptr(), count)
    return buffer


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Probe:
    """A few places of a process that may be running, for frequent reads by one system call.

    ``words`` are the numbers of those words of 8 bytes that count, in all that is read; empty for all.
    """

    def __init__(self, places: Sequence[MemorySpan], words: Sequence[int] = ()) -> None:
        import numpy as np

        self._size = sum(place.size for place in places)
        self._places = (_Span * len(places))(*(_Span(*place) for place in places))
        # a list would be converted at each read, which takes six times as long as the read
        self._words = np.asarray(words, np.intp)

    @classmethod
    def of_words(cls, addresses: Sequence[int]) -> Probe:
        """A probe of words of 8 bytes; as many as one call reads. Words that are close are read in one place, with
        what lies between them, which does not count: each place takes as long as several hundred bytes."""
        places: list[MemorySpan] = []
        words: list[int] = []
        size = 0
        for address in sorted(set(addresses)):
            gap = address - (places[-1].address + places[-1].size) if places else _CLOSE
            if gap % _WORD == 0 and gap < _CLOSE:
                places[-1] = places[-1]._replace(size=places[-1].size + gap + _WORD)
                size += gap + _WORD
            elif len(places) == _MOST_PLACES:
                break
            else:
                places.append(MemorySpan(address, _WORD))
                size += _WORD
            words.append(size // _WORD - 1)
        return cls(places, words)

    def read(self, pid: int) -> bytes | None:
        """The bytes that count, up to the first place that cannot be read; None if no memory of the process can be
        read."""
        buffer = ctypes.create_string_buffer(self._size)
        here = _Span(ctypes.addressof(buffer), self._size)
        count = _libc.process_vm_readv(
            ctypes.c_int(pid), ctypes.byref(here), ctypes.c_ulong(1), self._places, ctypes.c_ulong(len(self._places)),
            ctypes.c_ulong(0),
        )  # fmt: skip
        if count < 0:
            return b"" if ctypes.get_errno() == errno.EFAULT else None
        if not len(self._words):
            return buffer.raw[:count]
        import numpy as np

        words = np.frombuffer(buffer.raw[:count], np.uint64)
        return bytes(words[self._words[: self._words.searchsorted(len(words))]].tobytes())


def _read(pid: int, remote: int, local: int, count: int) -> None:
    """Copy ``count`` bytes at the address ``remote`` of a process to ``local`` here. Raises Unreadable."""
    done = 0
    while done < count:
        step = min(count - done, _MOST_BYTES)
        copied, error = _vm_read(pid, remote + done, local + done, step)
        if error in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            copied = _file_read(pid, remote + done, local + done, step)
        elif copied <= 0:
            raise Unreadable(os.strerror(error))
        done += copied


def _vm_read(pid: int, remote: int, local: int, count: int) -> tuple[int, int]:
    """Copy by the system call. Returns the number of bytes, and the error's number, 0 if there is none."""
    here, there = _Span(local, count), _Span(remote, count)
    copied = _libc.process_vm_readv(
        ctypes.c_int(pid), ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
    )
    return copied, ctypes.get_errno() if copied <= 0 else 0


def _file_read(pid: int, remote: int, local: int, count: int) -> int:
    """The same through /proc, which hardened containers allow more often than the system call."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(remote)
            copied = file.readinto((ctypes.c_char * count).from_address(local))
    except PermissionError:
        raise VerifierError(
            "This system does not let the judge read its workers' memory (process_vm_readv and /proc/PID/mem).",
            "Allow ptrace between processes of one user: docker run --cap-add SYS_PTRACE.",
        ) from None
    except (OSError, ValueError, OverflowError) as error:
        raise Unreadable(str(error)) from None
    if not copied:
        raise Unreadable("nothing is there")
    READ_BY_FILE.add(True)
    return copied
