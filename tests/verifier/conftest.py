"""The warm judge with what this room's tests ask of it."""

from __future__ import annotations

import pytest

from kernellab.verifier import Verifier

from .kit import Judge


@pytest.fixture(scope="session")
def judge(verifier: Verifier) -> Judge:
    return Judge(verifier)
