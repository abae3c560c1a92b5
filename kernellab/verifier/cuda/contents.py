"""What a large tensor on a CUDA device shows of its values."""

from __future__ import annotations

from typing import Any

#: elements of a tensor that its support is read from
_SEEN = 1 << 22


def part(value: Any) -> Any:
    """Enough of a tensor to tell what its values may be."""
    if not hasattr(value, "numel") or value.numel() <= _SEEN or not value.dim():
        return value
    rows = max(1, _SEEN * value.shape[0] // value.numel())
    return value[:rows]
