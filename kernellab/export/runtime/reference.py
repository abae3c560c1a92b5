"""The reference of an exported operator, which is loaded when it is first needed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .prebuilt import imported


class Reference:
    """``call(*args)`` of the reference's file, loaded when it is first needed; its results as tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._module: ModuleType | None = None

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        if self._module is None:
            with _outside_fake_mode():
                self._module = imported(self.path, f"_{self.path.parent.name}_reference_{id(self)}")
                self._module.prepare()
        device = next((a.device for a in args if isinstance(a, torch.Tensor)), torch.device("cpu"))
        results = leaves(self._module.call(*args))
        return [r.to(device) if r.device != device else r for r in results]


def _outside_fake_mode() -> Any:
    """Outside any fake mode, in which a Model's weights would have no contents."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    return unset_fake_temporarily()


def leaves(result: Any) -> list[torch.Tensor]:
    """Every output as a tensor, in order."""
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [leaf for item in result for leaf in leaves(item)]
    if result is None:
        return []
    return [result if isinstance(result, torch.Tensor) else torch.as_tensor(result)]


__all__ = ["Reference", "leaves"]
