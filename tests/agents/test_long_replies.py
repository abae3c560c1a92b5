"""Replies from elsewhere are read in time that grows with their length, whatever their fences."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from kernellab.agents.model.reply.answers import AnswerError
from kernellab.agents.model.reply.blocks import fences
from kernellab.agents.model.reply.code import parse_code
from kernellab.agents.model.reply.sketches import parse_done, parse_sketch

UNITS = {
    "closed": "```\n```\n",
    "never closed": "".join("`" * (3 + i % 50) + "x\n" for i in range(50)),
    "empty lines": "```\n\n\n\n```\n",
    "no object": "{\n",
    "edits": "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n",
    "edits without end": "<<<<<<< SEARCH\n",
    "lines without words": "\n",
    "one long line": "a-",
}


def _code(text: str) -> object:
    return parse_code(f"{text}\n```\nx\n```\n", "kernel.py", ("kernel.py",))


def _seconds(parse: Callable[[str], object], text: str) -> float:
    """Of the processor; the least of three."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        with contextlib.suppress(AnswerError):
            parse(text)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.parametrize("parse", [parse_sketch, parse_done, _code], ids=["sketch", "done", "code"])
@pytest.mark.parametrize("name", UNITS)
def test_a_reply_eight_times_as_long_takes_about_eight_times_as_long(parse: Callable[[str], object], name: str) -> None:
    """And not 64 times."""
    unit = UNITS[name]
    short, long = (unit * (size // len(unit)) for size in (30_000, 240_000))
    assert _seconds(parse, long) < 24 * max(_seconds(parse, short), 1e-3)


def test_the_line_before_a_block_is_the_last_that_is_not_empty() -> None:
    found = fences("FILE: a.py\n\n```py\nx = 1\n```\n\n```py\ny = 2\n```\nFILE: b.py\n```py\nz = 3\n```\n")
    assert [f.before for f in found] == ["FILE: a.py", "```", "FILE: b.py"]
