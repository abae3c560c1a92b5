"""What Python calls of the C++ at once: all launches, or those that stand between two calls of the library."""

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
    #: tensors in whose memory nothing stands yet
    fresh: tuple[str, ...]

    @property
    def first(self) -> str:
        """The sketch in whose place the function is called."""
        return self.emitters[0].kernel.name


def stages(
    program: Program, emitters: list[KernelEmitter], runtime: tuple[str, ...], calls: Collection[str], made: set[str]
) -> list[Stage]:
    """The functions to export. ``calls`` are the sketches that the library does, ``made`` the tensors that it makes."""
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
    found: list[Stage] = []
    written = set(made)
    for n, group in enumerate(groups):
        mine = [t for t in program.tensors if any(t.name in e.tensors for e in group)]
        found.append(
            Stage(
                "kernel" if n == 0 else f"kernel{n + 1}",
                tuple(group),
                tuple(t.name for t in mine),
                tuple(x for x in runtime if any(x in e.numbers for e in group)),
                tuple(t.name for t in mine if t.role in _OURS and t.name not in written),
            )
        )
        written |= {t.name for t in mine}
    return found


_OURS = (TensorRole.OUT, TensorRole.TEMP)
