"""Whole models: where the time goes, what a kernel could gain there, and kernels put in the place of a model's parts.

:func:`profile` measures a model and proposes regions; a row of it opens a design session at exactly its shapes;
:func:`install` puts an accepted kernel in its place after the model's outputs were checked, :func:`uninstall` takes it
out again.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.model_integration.auto import go_down
    from kernellab.model_integration.gradient.pair import Pair, pair
    from kernellab.model_integration.ranked import Profile, profile
    from kernellab.model_integration.swap.install import install, uninstall

__all__ = ["Pair", "Profile", "go_down", "install", "pair", "profile", "uninstall"]

_MODULES = {
    "go_down": "kernellab.model_integration.auto",
    "Pair": "kernellab.model_integration.gradient.pair",
    "pair": "kernellab.model_integration.gradient.pair",
    "Profile": "kernellab.model_integration.ranked",
    "profile": "kernellab.model_integration.ranked",
    "install": "kernellab.model_integration.swap.install",
    "uninstall": "kernellab.model_integration.swap.install",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kernellab.model_integration' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
