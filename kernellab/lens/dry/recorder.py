"""Collects what a dry call compiles and launches, in Triton and in CUDA C++."""

from __future__ import annotations

from typing import Any, NamedTuple

from kernellab.lens.dry.records import Built


class Binary(NamedTuple):
    """What a text of CUDA C++ is compiled to."""

    ptx: str
    cubin: bytes


class Recorder:
    """The kernels of a dry call, each variant once, and notes on differences from a GPU."""

    def __init__(self) -> None:
        self.kernels: list[Built] = []
        self.launches = 0
        #: the launches of Triton's kernels by name and grid, in order
        self.calls: list[list[Any]] = []
        #: of each kernel
        self.cubins: list[bytes] = []
        #: of each text that the host gave to NVRTC
        self.programs: dict[str, Binary] = {}
        self.notes: list[str] = []
        self._seen: set[str] = set()

    def add(self, built: Built, cubin: bytes) -> None:
        self.launches += 1
        key = f"{built.name} {built.block} {built.shared} {hash(cubin or tuple(built.texts.values()))}"
        if key not in self._seen:
            self._seen.add(key)
            self.kernels.append(built)
            self.cubins.append(cubin)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


__all__ = ["Binary", "Recorder"]
