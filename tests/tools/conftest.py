"""Tools and agents lead sessions to a few kernels, again and again."""

from __future__ import annotations

import pytest

from tests.quick_looks import shared_quick_looks


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_quick_looks(monkeypatch)
