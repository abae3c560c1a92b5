"""The words of ``--precision``: how near to its reference a kernel of float32 must be."""

from __future__ import annotations

#: strict: float32 results are right to 1e-4 compared with eager (KernelBench's own check) and no farther from float64
#: than eager, so that products of float32 are made whole or of several narrower ones. As the framework: products may
#: round their factors where torch's flags let the framework (TF32 in convolutions on CUDA)
STRICT, FRAMEWORK = "strict", "framework"
FIDELITIES = (STRICT, FRAMEWORK)
#: the option's help
PRECISION = "strict: float32 right to 1e-4 compared with eager (KernelBench's check); framework: as torch's flags allow"
