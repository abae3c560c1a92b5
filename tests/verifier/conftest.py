"""One warm judge for the room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernellab.verifier import Verifier

from .kit import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Verifier() as verifier:
        yield Judge(verifier)
