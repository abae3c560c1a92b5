"""A judge's end is silent: what its libraries have to say about themselves is nothing for a person."""

from __future__ import annotations

import socket
import subprocess
import sys

JUDGE = """
import atexit
from kernellab.verifier.judge import main as judge
atexit.register(print, "the interpreter was taken down, and its libraries counted their leaks")
judge._end_with_client = lambda *_: None  # of the two threads that see it, the other comes first
judge.main()
"""


def test_a_judge_whose_client_closed_takes_no_interpreter_down() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        judge = subprocess.Popen(
            [sys.executable, "-c", JUDGE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    ours.close()
    said, _ = judge.communicate(timeout=60)
    assert (judge.returncode, said) == (0, "")
