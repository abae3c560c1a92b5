"""The faults of :mod:`faults`, one test each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from . import faults
from .faults import EVENTS, KERNELS, Fault, Ground, Happened, ground


@pytest.fixture(scope="module")
def on() -> Iterator[Ground]:
    with ground() as made:
        yield made


@pytest.mark.parametrize("fault", KERNELS, ids=[f.name.replace(" ", "-") for f in KERNELS])
def test_a_kernel_that_breaks_its_worker_harms_no_other(on: Ground, fault: Fault) -> None:
    assert faults.by_kernel(on, fault).recovery < 60


@pytest.mark.parametrize("event", EVENTS, ids=[e.__name__ for e in EVENTS])
def test_what_happens_to_a_process_is_told_and_leaves_nothing(on: Ground, event: Callable[[Ground], Happened]) -> None:
    assert event(on).what
