"""Right, honest, fast; and trusted: a judge process decides on a kernel that runs in a separate process.

The judge owns inputs, references, comparisons, clock and verdict. Candidate code never runs in it, never sees the
reference or the seeds, never holds the clock.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.sandbox import sandbox_level
    from kernellab.verifier.client import Verifier, verify
    from kernellab.verifier.protocol.options import RankOptions, VerifyOptions
    from kernellab.verifier.reproduction.replay_case import reproduce

__all__ = ["RankOptions", "Verifier", "VerifyOptions", "reproduce", "sandbox_level", "verify"]

_MODULES = {
    "Verifier": "kernellab.verifier.client",
    "verify": "kernellab.verifier.client",
    "RankOptions": "kernellab.verifier.protocol.options",
    "VerifyOptions": "kernellab.verifier.protocol.options",
    "reproduce": "kernellab.verifier.reproduction.replay_case",
    "sandbox_level": "kernellab.sandbox",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kernellab.verifier' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    # importing the submodule `reproduce` sets the package attribute of that name; the function must win
    globals()[name] = value
    return value
