"""Names of dtypes in torch and in the sketch language."""

from __future__ import annotations

from kernellab.sketch.program import program as sketch
from kernellab.sketch.program.program import DType

#: torch's name of a dtype -> the sketch's
DTYPES = {d.torch_name: d.value for d in DType}
#: torch's names of the two-byte floats, which tensor cores multiply without conversion
HALVES = ("bfloat16", "float16")
#: torch's names of the 8-bit floats
FLOAT8 = frozenset(d.torch_name for d in sketch.FLOAT8)


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element of torch's ``dtype``."""
    return DType(DTYPES[dtype]).bytes
