"""The initial environment of processes that run what others wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: variables that a process below the judge may inherit; never keys or tokens
_PASSED = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "CC", "CXX",
    "USER", "LOGNAME", "SHELL", "TERM",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
)  # fmt: skip


def passed() -> dict[str, str]:
    """The part of this process's environment that may be inherited."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whitelisted initial environment of judge, fork servers and workers."""
    return {**passed(), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **(extra or {})}
