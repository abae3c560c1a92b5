"""How a namespace is halted in one act: by its first process, which belongs to the judge and runs no candidate code."""

from __future__ import annotations

import os
import signal
import socket
import time

#: what the judge asks of a first process, and what that answers: all have the signal and its worker has halted; not
#: all of that one's threads have come to it yet; or it could name no other process than its worker
HALT, HALTED, HALTING, HALTED_WORKER = b"halt", b"halted", b"halting", b"halted worker"
#: what is waited for at most: a thread that a vfork holds halts only with its child, and many that spin on few cores
#: must each come to run for it
_MOST_SECONDS = 0.05
_LOOK_SECONDS = 20e-6


def obey(life: socket.socket, worker: int, alone: bool) -> bool:
    """One request of the judge; False when it has gone. ``alone``: is this the first process of a namespace?"""
    try:
        request = life.recv(16)
    except OSError:
        return False
    if request != HALT:
        return False
    try:
        # one call of the system, whatever a candidate has started meanwhile
        os.kill(-1 if alone else worker, signal.SIGSTOP)
    except OSError:
        return False
    done = _until_halted(worker)
    life.send(HALTED_WORKER if not alone else HALTED if done else HALTING)
    return True


def _until_halted(worker: int) -> bool:
    """Waits until every thread of ``worker`` has halted, as the system tells its parent, or it has ended."""
    end = time.monotonic() + _MOST_SECONDS
    flags = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    while time.monotonic() < end:
        try:
            if os.waitid(os.P_PID, worker, flags) is not None:
                return True
        except ChildProcessError:
            return True
        time.sleep(_LOOK_SECONDS)
    return False
