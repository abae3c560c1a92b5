"""The order of equal elements in sorts for which torch defines none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernellab.task.meta.operators import Operators


class Tied(Operators):  # type: ignore[no-untyped-call]
    """A mode in which torch's unstable sorts order equal elements by position, ascending or, if ``turned``, descending.
    A kernel may do either: results that are scattered by such an order, or cut off in it, depend on that."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.turned = turned
        self.met = False

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        own: Mapping[Any, Callable[..., Any]] = {
            torch.ops.aten.sort.default: self._sorted, torch.ops.aten.topk.default: self._first,
        }  # fmt: skip
        self.met |= func in own
        return own.get(func, func)(*args, **kwargs)

    def _sorted(self, tensor: torch.Tensor, dim: int = -1, descending: bool = False) -> tuple[torch.Tensor, ...]:
        turned = self.turned and tensor.dim() > 0
        values, at = torch.sort(tensor.flip(dim) if turned else tensor, dim=dim, descending=descending, stable=True)
        return values, tensor.shape[dim] - 1 - at if turned else at

    def _first(
        self, tensor: torch.Tensor, k: int, dim: int = -1, largest: bool = True, ordered: bool = True
    ) -> tuple[torch.Tensor, ...]:
        values, at = self._sorted(tensor, dim, largest)
        return (values.narrow(dim, 0, k), at.narrow(dim, 0, k)) if tensor.dim() else (values, at)
