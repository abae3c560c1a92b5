"""Which function is traced for which operation: by ATen's name after the export, by torch's function before it."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional

from kernellab.capture.decompositions.bits import BITS
from kernellab.capture.decompositions.order_statistics import ORDER_STATISTICS, nanquantile, quantile
from kernellab.capture.decompositions.pair_distances import DISTANCES, combinations, corrcoef, cov, near_rows
from kernellab.capture.decompositions.pooling import POOLINGS, WITH_PLACES
from kernellab.capture.decompositions.products import PRODUCTS
from kernellab.capture.decompositions.resize import RESIZED
from kernellab.capture.decompositions.running_sums import SUMS
from kernellab.capture.decompositions.scatter import SCATTERS, bincount, one_hot, repeat_interleave
from kernellab.capture.decompositions.signal_windows import SIGNAL_WINDOWS
from kernellab.capture.decompositions.symbolic_index import pad, place, write
from kernellab.capture.early.losses import LOSSES
from kernellab.capture.early.open_sizes import OPEN_SIZES
from kernellab.capture.early.small_matrices import SMALL_MATRICES
from kernellab.capture.pairs import PAIRS
from kernellab.capture.special_functions import SPECIAL
from kernellab.task.recurrent import RECURRENT


def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return, in evaluation mode, a leaky relu with the mean of the slopes that training draws from."""
    return NotImplemented if training or inplace else functional.leaky_relu(x, (lower + upper) / 2)


#: operation of ATen -> function that is traced instead
APART: dict[str, Callable[..., Any]] = {
    **ORDER_STATISTICS, **POOLINGS, **SCATTERS, **DISTANCES, **PRODUCTS, **BITS, **SUMS, **SPECIAL, **RESIZED,
}  # fmt: skip
#: functions that read values although that is not needed, by name: replaced by others before tracing
EARLY: dict[str, Callable[..., Any]] = {
    "bincount": bincount, "repeat_interleave": repeat_interleave, "cov": cov, "corrcoef": corrcoef,
    "combinations": combinations, "cdist": near_rows, "quantile": quantile, "nanquantile": nanquantile, "rrelu": rrelu,
    "one_hot": one_hot, "pad": pad, "__getitem__": place, "__setitem__": write, **LOSSES, **OPEN_SIZES, **RECURRENT,
    **SMALL_MATRICES, **PAIRS,
}  # fmt: skip

__all__ = ["APART", "EARLY", "SIGNAL_WINDOWS", "WITH_PLACES"]
