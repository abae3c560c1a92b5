"""Whole models: where the time goes, what a kernel could gain there, and kernels put in the place of a model's parts.

:func:`profile` measures a model and proposes regions; a row of it opens a design session at exactly its shapes;
:func:`install` puts an accepted kernel in its place after the model's outputs were checked, :func:`uninstall` takes it
out again.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.whole.auto import go_down
    from kernellab.whole.gradient.pair import Pair, pair
    from kernellab.whole.ranked import Profile, profile
    from kernellab.whole.swap.install import install, uninstall

__all__ = ["Pair", "Profile", "go_down", "install", "pair", "profile", "uninstall"]

_HOMES = {
    "go_down": "kernellab.whole.auto",
    "Pair": "kernellab.whole.gradient.pair",
    "pair": "kernellab.whole.gradient.pair",
    "Profile": "kernellab.whole.ranked",
    "profile": "kernellab.whole.ranked",
    "install": "kernellab.whole.swap.install",
    "uninstall": "kernellab.whole.swap.install",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernellab.whole' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
