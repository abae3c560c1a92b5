"""Dtypes as C++ types, values as literals, and conversions between them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernellab.sketch.program.program import DType

#: C++ type of a value; narrow floats are held as float that only takes their values
VALUE_TYPE: Mapping[DType, str] = {
    DType.F64: "double", DType.F32: "float", DType.F16: "float", DType.BF16: "float", DType.F8E4M3: "float",
    DType.F8E5M2: "float", DType.I64: "int64_t", DType.I32: "int32_t", DType.I16: "int16_t", DType.I8: "int8_t",
    DType.U8: "uint8_t", DType.BOOL: "bool",
}  # fmt: skip
#: C++ type of a tensor's element
MEMORY_TYPE: Mapping[DType, str] = {
    **VALUE_TYPE, DType.F16: "kl::f16", DType.BF16: "kl::bf16", DType.F8E4M3: "kl::f8e4m3", DType.F8E5M2: "kl::f8e5m2",
}  # fmt: skip
_LIMITS = {DType.I64: 63, DType.I32: 31, DType.I16: 15, DType.I8: 7}


def is_narrow(dtype: DType) -> bool:
    """Is it a float that is computed with in f32 and rounded when it is written?"""
    return dtype.is_float and dtype not in (DType.F32, DType.F64)


def literal(value: float, dtype: DType) -> str:
    """Return ``value`` as a C++ literal; infinities become the ends of an integer's range."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        if isinstance(value, float) and not math.isfinite(value):
            return _end_of_range(value, dtype)
        number = int(value)
        if number == -(2**63):
            return "INT64_MIN"
        if dtype is DType.I32:
            # C++ parses -2147483648 as the negation of a long
            return "INT32_MIN" if number == -(2**31) else str(number)
        return f"INT64_C({number})" if dtype is DType.I64 else f"{VALUE_TYPE[dtype]}({number})"
    if math.isnan(value):
        return "double(kl::NAN_)" if dtype is DType.F64 else "kl::NAN_"
    if math.isinf(value):
        text = "kl::INF" if value > 0 else "-kl::INF"
        return f"double({text})" if dtype is DType.F64 else text
    text = repr(float(value))
    return text if dtype is DType.F64 else f"{text}f"


def _end_of_range(value: float, dtype: DType) -> str:
    if dtype is DType.U8:
        return "255" if value > 0 else "0"
    bits = _LIMITS[dtype]
    return f"INT{bits + 1}_{'MAX' if value > 0 else 'MIN'}"


def converted(text: str, source: DType, target: DType) -> str:
    """Return ``text``, a value of ``source``, converted to ``target``: truncated to integers, non-zero to bool, rounded
    to narrow floats."""
    if source == target:
        return text
    if target is DType.BOOL:
        return f"({text} != 0)"
    if is_narrow(target):
        wide = text if VALUE_TYPE[source] == "float" else f"float({strip(text)})"
        return f"kl::rounded<{MEMORY_TYPE[target]}>({strip(wide)})"
    if VALUE_TYPE[source] == VALUE_TYPE[target]:
        return text
    return f"{VALUE_TYPE[target]}({strip(text)})"


def strip(text: str) -> str:
    """Return ``text`` without one pair of parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
