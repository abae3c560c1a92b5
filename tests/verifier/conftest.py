"""The warm judge with what this room's tests ask of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernellab.verifier import Verifier

from .kit import Judge


@pytest.fixture(scope="session")
def judge(verifier: Verifier) -> Iterator[Judge]:
    judge = Judge(verifier)
    yield judge
    judge.close()
