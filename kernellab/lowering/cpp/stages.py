"""The exported C++ functions: one for all launches, or one for the launches between two calls of the library."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernellab.lowering.cpp.kernel import KernelEmitter
from kernellab.sketch.program.program import Program, TensorRole


@dataclass(frozen=True)
class Stage:
    """One exported function; it takes ``tensors``, the symbols that are open, and ``numbers``, in this order."""

    name: str
    emitters: tuple[KernelEmitter, ...]
    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    #: tensors whose memory is not yet written
    fresh: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first of its sketches, in whose place the function is called."""
        return self.emitters[0].kernel.name


def stages(
    program: Program,
    emitters: list[KernelEmitter],
    runtime: tuple[str, ...],
    calls: Collection[str],
    by_library: set[str],
) -> list[Stage]:
    """Return the functions to export. The library computes the sketches ``calls``, which make the tensors
    ``by_library``."""
    groups: list[list[KernelEmitter]] = []
    left, joined = list(emitters), False
    for kernel in program.kernels:
        if kernel.name in calls:
            joined = False
            continue
        if not joined:
            groups.append([])
        groups[-1].append(left.pop(0))
        joined = True
    exported: list[Stage] = []
    written = set(by_library)
    for n, group in enumerate(groups):
        mine = [t for t in program.tensors if any(t.name in e.tensors for e in group)]
        exported.append(
            Stage(
                "kernel" if n == 0 else f"kernel{n + 1}",
                tuple(group),
                tuple(t.name for t in mine),
                tuple(x for x in runtime if any(x in e.numbers for e in group)),
                tuple(t.name for t in mine if t.role in _OURS and t.name not in written),
            )
        )
        written |= {t.name for t in mine}
    return exported


_OURS = (TensorRole.OUT, TensorRole.TEMP)
