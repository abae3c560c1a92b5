"""State goes out at most ten times a second, the newest wins, the last always arrives."""

from __future__ import annotations

import threading

import pytest
from notebook_parts import Page

from kernellab.notebook.board.workbench import Workbench
from kernellab.notebook.widget import Publisher, Widget
from kernellab.session import Session
from tests.waiting import until


def ignore(_: object = None) -> None:
    """For callbacks that a test does not look at."""


def test_a_burst_becomes_a_few_publications_and_the_last_one_arrives() -> None:
    value, seen = 0, []
    publisher = Publisher(lambda: seen.append(value), beat=ignore, failed=ignore, period=0.05)
    for value in range(1, 5001):  # noqa: B007
        publisher.poke()
    assert until(lambda: bool(seen) and seen[-1] == 5000)
    publisher.close()
    assert len(seen) < 20


def test_closing_publishes_what_is_due() -> None:
    seen: list[int] = []
    publisher = Publisher(lambda: seen.append(1), beat=ignore, failed=ignore, period=0.01)
    publisher.poke()
    publisher.close()
    assert seen


def test_an_error_is_handed_on_and_the_next_publication_still_comes() -> None:
    errors: list[Exception] = []
    seen: list[int] = []

    def publish() -> None:
        if not errors:
            raise ValueError("first")
        seen.append(1)

    publisher = Publisher(publish, beat=ignore, failed=errors.append, period=0.01)
    publisher.poke()
    assert until(lambda: len(errors) == 1)
    publisher.poke()
    assert until(lambda: seen == [1])
    publisher.close()


def test_it_beats_when_nothing_is_new() -> None:
    beats: list[int] = []
    publisher = Publisher(ignore, beat=lambda: beats.append(1), failed=ignore, idle=0.01, period=0.01)
    assert until(lambda: len(beats) > 2)
    publisher.close()


def test_it_beats_while_it_is_poked_without_a_rest() -> None:
    """What is published as it was sends nothing: only a beat says that the kernel lives."""
    beats: list[int] = []
    publisher = Publisher(ignore, beat=lambda: beats.append(1), failed=ignore, idle=0.05, period=0.001)
    stop = threading.Event()

    def poke() -> None:
        while not stop.wait(0.001):
            publisher.poke()

    poking = threading.Thread(target=poke)
    poking.start()
    heard = until(lambda: len(beats) > 2, 5)
    stop.set()
    poking.join()
    publisher.close()
    assert heard


def test_it_beats_on_when_what_it_says_cannot_be_sent() -> None:
    """A lost connection fails the publication and the words on the failure alike."""
    beats: list[int] = []

    def fails(_: object = None) -> None:
        raise OSError("the socket is closed")

    publisher = Publisher(fails, beat=lambda: beats.append(1), failed=fails, idle=0.01, period=0.01)
    publisher.poke()
    assert until(lambda: len(beats) > 2, 5)
    publisher.close()


def test_a_closed_publisher_leaves_no_thread() -> None:
    before = threading.active_count()
    publisher = Publisher(ignore, beat=ignore, failed=ignore)
    publisher.close()
    assert until(lambda: threading.active_count() == before)


def test_the_front_end_is_sent_once_a_kernel_and_to_each_page_that_asks(
    quiet: tuple[Session, Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five views at once were 3 MB, more than Jupyter's iopub lets through in a second."""
    sent: list[str] = []
    monkeypatch.setattr(Widget, "_sent", set())
    monkeypatch.setattr(Workbench, "send", lambda _self, content, buffers=None: sent.append(content["kind"]))
    benches = [Workbench(quiet[0]) for _ in range(3)]
    assert sent.count("bundle") == 1
    benches[2]._handle_custom_msg({"id": "bundle-1", "body": {"ask": "bundle"}}, [])
    assert sent.count("bundle") == 2
    for bench in benches:
        bench.close()
