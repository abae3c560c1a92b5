"""torch's threads: one inside, what was set before afterwards, in several threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from kernellab.target.threads import all_threads, one_thread


@pytest.fixture(autouse=True)
def three() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_one_inside_and_those_of_before_afterwards() -> None:
    with pytest.raises(ValueError), one_thread():
        assert torch.get_num_threads() == 1
        with all_threads():
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
        with one_thread():
            assert torch.get_num_threads() == 1
        raise ValueError
    assert torch.get_num_threads() == 3


def test_threads_that_are_inside_at_once_leave_what_was_before() -> None:
    both = Barrier(2)

    def inside(first: bool) -> tuple[int, int]:
        if not first:
            both.wait(10)
        with one_thread():
            if first:
                both.wait(10)
            held = torch.get_num_threads()
            both.wait(10)
        return held, torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(inside, (True, False))) == [(1, 3), (1, 3)]
    assert torch.get_num_threads() == 3
