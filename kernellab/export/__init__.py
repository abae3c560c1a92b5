"""Exports of verified kernels: modules, wheels, capsules and other projects' layouts, none of which needs kernellab.

:func:`package` writes the files of a stand-alone Python package from :class:`VerifiedKernel` records of one task; the
other modules of this room convert it to a form. Packages contain ``runtime/``, which imports torch alone. A C++ kernel
is linked to OpenMP by name and loaded after torch, so that it runs on the threads that torch has started; between
torch's calls they are awake."""

from __future__ import annotations

from kernellab.export.compiled import compiled
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.module import module_text
from kernellab.export.package import Package, package

__all__ = ["Package", "VerifiedKernel", "compiled", "module_text", "package"]
