"""Taking a verified kernel home: modules, wheels, capsules and other projects' layouts, none of which needs kernellab.

:func:`package` writes the files of a stand-alone Python package from :class:`VerifiedKernel` records of one task;
the other modules of this room bring it into a form. What runs there is ``runtime/``, which imports torch alone. A C++
kernel is linked to OpenMP by its name and loaded after torch, so that it runs on the threads that torch has started: it
starts none itself, and a call among torch's own finds them awake.
"""

from __future__ import annotations

from kernellab.export.compiled import compiled
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.module import module_text
from kernellab.export.package import Package, package

__all__ = ["Package", "VerifiedKernel", "compiled", "module_text", "package"]
