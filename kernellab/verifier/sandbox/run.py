"""Runs a command that reads a candidate's text, such as a compiler, confined as a worker is: ``run.py FOLDER COMMAND``.
Another process, as what is given up is not taken back."""

from __future__ import annotations

import os
import sys

from kernellab.content import module_command
from kernellab.verifier.sandbox import sandbox


def confined(folder: str, command: list[str]) -> list[str]:
    """``command``, able to read the system and ``folder`` and to write to ``folder`` alone, where Linux can hold it."""
    return module_command("kernellab.verifier.sandbox.run", folder, *command) if sys.platform == "linux" else command


def environment(folder: str) -> dict[str, str]:
    """For a confined command: /proc shows it what it was started with, tokens and keys among it."""
    names = ("PATH", "CC", "CXX", "LD_LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "SDKROOT")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "LC_ALL": "C", "TMPDIR": folder, "HOME": folder}


if __name__ == "__main__":
    sandbox.confine(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
