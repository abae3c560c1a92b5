"""Torch's names of dtypes, and the sketch language's."""

from __future__ import annotations

from kernellab.sketch.program.program import DType

#: torch's name of a dtype -> the sketch's
DTYPES = {d.torch_name: d.value for d in DType}


def item_bytes(dtype: str) -> int:
    """Bytes of one element of torch's ``dtype``."""
    return DType(DTYPES[dtype]).bytes
