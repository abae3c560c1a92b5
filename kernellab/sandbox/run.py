"""Runs a command that reads a candidate's text, such as a compiler, confined like a worker: ``run.py FOLDER COMMAND``.
Runs as a separate process, since dropped rights cannot be regained."""

from __future__ import annotations

import os
import sys

from kernellab.content import module_command
from kernellab.sandbox import sandbox


def confined(folder: str, command: list[str]) -> list[str]:
    """``command`` confined to read the system and ``folder`` and to write only to ``folder``, if Linux supports it."""
    return module_command("kernellab.sandbox.run", folder, *command) if sys.platform == "linux" else command


def environment(folder: str) -> dict[str, str]:
    """The environment of a confined command, without tokens and keys, which /proc would show to it."""
    names = ("PATH", "CC", "CXX", "LD_LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "SDKROOT")
    passed = {name: os.environ[name] for name in names if name in os.environ}
    return {**passed, "LC_ALL": "C", "TMPDIR": folder, "HOME": folder}


if __name__ == "__main__":
    sandbox.confine(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
