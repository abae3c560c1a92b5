"""Values of a definition's inputs: random ones by dtype, and tensors in a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernellab.errors import TaskError

#: range of drawn integers, both ends included; those other than int8 are small enough for sums
_INT8, _INTEGERS = (-128, 127), (-1024, 1023)
#: range of floats of one byte
_SMALL_FLOATS = 2.0
#: names of dtypes in safetensors
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip


def drawn(shape: Sequence[int], dtype: str) -> torch.Tensor:
    """Return a tensor of random values: normal floats, uniform integers, fair bools."""
    kind: Any = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.randint(0, 2, tuple(shape)).bool()
    if not kind.is_floating_point:
        low, high = _INT8 if kind is torch.int8 else _INTEGERS
        return torch.randint(low, high + 1, tuple(shape), dtype=kind)
    if kind.itemsize == 1:
        return torch.randn(tuple(shape)).clamp(-_SMALL_FLOATS, _SMALL_FLOATS).to(kind)
    return torch.randn(tuple(shape), dtype=kind)


def stored(path: str, key: str) -> torch.Tensor:
    """Return the tensor ``key`` of a safetensors file: eight bytes of length, a JSON header, then the data.

    Raises:
        TaskError: the file cannot be read, or has no such tensor.
    """
    try:
        with Path(path).open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            spec = header[key]
            begin, end = spec["data_offsets"]
            file.seek(8 + length + begin)
            raw = bytearray(file.read(end - begin))
        return torch.frombuffer(raw, dtype=getattr(torch, _DTYPES[spec["dtype"]])).reshape(spec["shape"])
    except (OSError, struct.error, ValueError, KeyError, RuntimeError) as error:
        raise TaskError(
            f"The tensor {key!r} of {path} cannot be read: {type(error).__name__}: {error}.",
            "Download the suite's data next to its definitions.",
        ) from None
