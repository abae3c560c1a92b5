"""Runs a command that reads a candidate's text, such as a compiler, confined like a worker:
``run.py FOLDER PACKAGES COMMAND``, with the folders of packages that the caller reads. Runs as a separate process,
since dropped rights cannot be regained."""

from __future__ import annotations

import os
import sys

from kernellab.content import module_command
from kernellab.sandbox import readable, sandbox


def confined(folder: str, command: list[str]) -> list[str]:
    """``command`` confined to read the system, this process's packages and ``folder``, and to write only to ``folder``,
    if Linux supports it."""
    if sys.platform != "linux":
        return command
    # the command's environment names neither PYTHONPATH nor the home of a user site
    return module_command("kernellab.sandbox.run", folder, os.pathsep.join(sorted(readable.packages())), *command)


def environment(folder: str) -> dict[str, str]:
    """The environment of a confined command, without tokens and keys, which /proc would show to it."""
    names = ("PATH", "CC", "CXX", "LD_LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "SDKROOT")
    passed = {name: os.environ[name] for name in names if name in os.environ}
    return {**passed, "LC_ALL": "C", "TMPDIR": folder, "HOME": folder}


if __name__ == "__main__":
    sandbox.confine(sys.argv[1], package_folders=sys.argv[2].split(os.pathsep))
    os.execvp(sys.argv[3], sys.argv[3:])
