"""The lowering lens: a source next to its compiled forms, with links between their lines.

:func:`~kernellab.lens.look.look` returns a :class:`~kernellab.lens.records.Lens`: levels (TTIR, TTGIR, LLVM IR, PTX,
SASS; GIMPLE or LLVM IR, and assembly), links and facts. It needs no GPU: a GPU's source is compiled for a named
chip."""

from kernellab.lens.difference import Difference, difference
from kernellab.lens.look import look
from kernellab.lens.records import Fact, Lens, Level, Link

__all__ = ["Difference", "Fact", "Lens", "Level", "Link", "difference", "look"]
