"""kernellab: a Jupyter workbench in which people and agents design fast compute kernels together.

>>> %load_ext kernellab        # in a notebook: the %%kernel_design magic
>>> kernellab.design(text)     # the same from Python: a Session
>>> kernellab.evolve(text)     # a search over many candidates: a Run
>>> kernellab.profile(model, x) # where a model's time goes, and what kernels could gain: a Profile

Everything here is imported on first use, so that ``import kernellab`` stays quick and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from kernellab import evolve
    from kernellab.errors import KernellabError
    from kernellab.model_integration import install, profile, uninstall
    from kernellab.session import Session, design, open_session
    from kernellab.task import Dim, load_task

__version__ = "0.1.0"

__all__ = [
    "Dim",
    "KernellabError",
    "Session",
    "__version__",
    "design",
    "evolve",
    "install",
    "load_ipython_extension",
    "load_task",
    "open_session",
    "profile",
    "uninstall",
    "unload_ipython_extension",
]

_MODULES = {
    "Dim": "kernellab.task",
    "load_task": "kernellab.task",
    "KernellabError": "kernellab.errors",
    "Session": "kernellab.session",
    "design": "kernellab.session",
    "open_session": "kernellab.session",
    "profile": "kernellab.model_integration",
    "install": "kernellab.model_integration",
    "uninstall": "kernellab.model_integration",
}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext kernellab``: registers the magics; silent, and safe to repeat."""
    from kernellab.notebook import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """``%unload_ext kernellab``: removes the magics; sessions keep running."""
    from kernellab.notebook import unload

    unload(shell)


def __getattr__(name: str) -> Any:
    if name == "evolve":  # a module that can be called
        return import_module("kernellab.evolve")
    if name not in _MODULES:
        raise AttributeError(f"module 'kernellab' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "evolve"})
