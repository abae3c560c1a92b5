"""Shared by all rooms: tests never touch a person's workspace, and GPU tests say why they are skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# before torch is imported anywhere: two test machines' cores are enough for small shapes
os.environ.setdefault("OMP_NUM_THREADS", "2")


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


# without a GPU Triton can only interpret, and it reads this once, when it is imported
if not _has_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _has_gpu():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))
