"""Torch's names of dtypes, and the sketch language's."""

from __future__ import annotations

from kernellab.sketch.program import program as sketch
from kernellab.sketch.program.program import DType

#: torch's name of a dtype -> the sketch's
DTYPES = {d.torch_name: d.value for d in DType}
#: torch's names of the floats of two bytes, which tensor cores multiply as they are
HALVES = ("bfloat16", "float16")
#: torch's names of the floats of 8 bits
FLOAT8 = frozenset(d.torch_name for d in sketch.FLOAT8)


def item_bytes(dtype: str) -> int:
    """Bytes of one element of torch's ``dtype``."""
    return DType(DTYPES[dtype]).bytes
