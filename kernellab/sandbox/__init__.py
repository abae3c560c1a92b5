"""The isolation of a worker: namespaces, Landlock, a system call filter, limits."""

from __future__ import annotations

from kernellab.sandbox.sandbox import confine, contains, missing, sandbox_level

__all__ = ["confine", "contains", "missing", "sandbox_level"]
