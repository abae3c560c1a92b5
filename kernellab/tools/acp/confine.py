"""Starts an agent's program: ``python confine.py FD WRITABLE HIDDEN COMMAND ...``; a script: nothing else is loaded.

The agent is in a PID namespace, so that it ends with all it started when this process is killed, also by the death of
the notebook; where there is none, this process inherits what detaches itself, and whoever ends the agent finds it
below. Under root it is another user. It writes to the folders of WRITABLE, sees nothing of HIDDEN (both JSON), no
disk, terminal or GPU of the machine, and reads no other process's memory. What holds is written to FD, in level
words; what the machine refuses is left out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from kernellab.sandbox import mounts, sandbox


def main() -> None:
    (report, writable, hidden), command = map(json.loads, sys.argv[1:4]), sys.argv[4:]
    sandbox.die_with_parent()
    names = sandbox.enter(network=True)
    if not names:
        sandbox.become_subreaper()
    if child := os.fork():
        os.close(report)
        _follow(child)
    sandbox.die_with_parent()
    own = "mnt" in names and sandbox.own_proc(limited=False) and mounts.own_devices()
    if child := os.fork():  # the first of a namespace takes no signals by default: it only waits
        os.close(report)
        _follow(child)
    # what is left of root after that is read alone, so that the program and its settings are found wherever they lie
    other = own and sandbox.user_of(writable)
    # last: a folder that is given to the other user shows again what was hidden below it
    own = own and mounts.hide(hidden)
    held = [*([names] if own else []), *(["uid"] if other else []), *sandbox.hold([*writable, "/dev"], other)]
    os.write(report, ", ".join(held).encode())
    os.close(report)
    os.execvp(command[0], command)


def _follow(child: int) -> None:
    """Ends as the child does; collects what others leave, which the first of a namespace inherits."""
    while True:
        ended, status = os.wait()
        if ended == child:
            _end_orphans()
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _end_orphans() -> None:
    """What this process inherited ends before it."""
    below = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        while left := below.read_text().split():
            for one in left:
                os.kill(int(one), signal.SIGKILL)
            os.wait()


if __name__ == "__main__":
    main()
