"""Halts a namespace in one action: by its first process, which belongs to the judge and runs no candidate code.

The judge sends HALT on a socket (:class:`HaltRequests`); the first process signals every process of its namespace at
once, waits until its worker has halted, and answers (:func:`obey`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

#: the judge's request to a first process, and its answers: all got the signal and its worker has halted; not all
#: threads of the worker have halted yet; or it could signal no process but its worker
HALT, HALTED, HALTING, HALTED_WORKER = b"halt", b"halted", b"halting", b"halted worker"
#: longest wait: a thread blocked by a vfork halts only with its child, and many threads that spin on few cores must
#: each get to run before they halt
_MOST_SECONDS = 0.05


class HaltRequests:
    """The judge's side: requests to a first process, whose answers may come late."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        #: requests that the first process has not answered yet
        self.unanswered = 0

    def request(self, seconds: float) -> bytes:
        """Ask the first process to halt its namespace. Returns its answer, or nothing if it has ended, or does not
        answer within ``seconds``."""
        try:
            self._channel.send(HALT)
        except OSError:
            return b""
        self.unanswered += 1
        return self.answer(seconds)

    def answer(self, seconds: float) -> bytes:
        """The answer to the last request, once all requests are answered; otherwise as :meth:`request`."""
        end = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        answer = b""
        while self.unanswered and poller.poll(max(0.0, end - time.monotonic()) * 1000):
            try:
                answer = self._channel.recv(16)
            except OSError:
                answer = b""
            self.unanswered = self.unanswered - 1 if answer else 0
        return b"" if self.unanswered else answer

    def close(self) -> None:
        """Let the first process end, and all of its namespace with it."""
        self._channel.close()


def obey(life: socket.socket, worker: int, alone: bool) -> bool:
    """Handle one request of the judge; False if it is gone. ``alone``: is this the first process of a namespace?"""
    try:
        request = life.recv(16)
    except OSError:
        return False
    if request != HALT:
        return False
    try:
        # one system call, regardless of what a candidate has started meanwhile
        os.kill(-1 if alone else worker, signal.SIGSTOP)
    except OSError:
        return False
    done = _until_halted(worker)
    life.send(HALTED_WORKER if not alone else HALTED if done else HALTING)
    return True


def _until_halted(worker: int) -> bool:
    """Wait until every thread of ``worker`` has halted, as the system reports to its parent, or it has ended."""
    end = time.monotonic() + _MOST_SECONDS
    flags = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    # blocked, the signal of a change stays pending until it is waited for: none is missed, and waiting takes no time of
    # the processor, which the worker may need to halt
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            if os.waitid(os.P_PID, worker, flags) is not None:
                return True
        except ChildProcessError:
            return True
        left = end - time.monotonic()
        if left <= 0:
            return False
        signal.sigtimedwait({signal.SIGCHLD}, left)
