"""A search over many candidates that a person can watch and steer (paper, Algorithm 3).

A run is a stream of events above sessions: proposals, evaluations keyed by content, migrations, people's actions. Its
four parts are interchangeable: selection, variation, scoring, and stopping.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.evolve.begin import evolve, open_run, runs
    from kernellab.evolve.run import Run
    from kernellab.options.search import Knobs

__all__ = ["Knobs", "Run", "evolve", "open_run", "runs"]
_MODULES = {"Knobs": "kernellab.options.search", "Run": "kernellab.evolve.run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kernellab.evolve' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "kernellab.evolve.begin")), name)


class _Callable(ModuleType):
    """``kernellab.evolve(task)`` as well as ``kernellab.evolve.evolve(task)``: the function has its module's name."""

    def __call__(self, *args: Any, **options: Any) -> Run:
        """See :func:`kernellab.evolve.begin.evolve`."""
        return import_module("kernellab.evolve.begin").evolve(*args, **options)  # type: ignore[no-any-return]


sys.modules[__name__].__class__ = _Callable
