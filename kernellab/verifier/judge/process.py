"""A worker's process as the judge controls it: started in its sandbox, watched, halted, ended with its descendants."""

from __future__ import annotations

import contextlib
import os
import random
import re
import secrets
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import VerifierError, lasting
from kernellab.sandbox import folders, sandbox
from kernellab.sandbox.caps import CAPS
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.failures import ReportedError
from kernellab.verifier.judge.failures import WorkerFailure as WorkerFailure
from kernellab.verifier.judge.halting import HALTED, HALTING, HaltRequests
from kernellab.verifier.judge.placement import Placement, before_all
from kernellab.verifier.judge.servers import ForkServer
from kernellab.verifier.judge.worker_environment import USERS, judges_variables, users_variables
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import Control
from kernellab.verifier.protocol.process_memory import Probe
from kernellab.verifier.protocol.rules import DEADLINES, TIMING
from kernellab.verifier.protocol.sanitize import shown, shown_all

if TYPE_CHECKING:
    from typing_extensions import Self

_GUARDED = re.compile(
    r"^kernellab-heap: (beyond the end of memory of \d+ bytes|before the beginning of memory of \d+ bytes|"
    r"in memory that it has freed, or far from any)$", re.MULTILINE,
)  # fmt: skip
#: how far (s) the system's accounting may lag behind a halt: one tick, the resolution of CLOCK_MONOTONIC_COARSE (6 on
#: Linux; Python has no name for it)
_TICK = time.clock_getres(6)
#: seconds between two checks of a worker's resource use
_WATCH_SECONDS = 0.1
_AGAIN = "Verify again; kernellab doctor says what this machine lacks."


@dataclass
class WorkerProcess:
    """A fresh process of ``server`` for one candidate or baseline; a context manager whose exit removes everything."""

    server: ForkServer
    role: str
    threads: int
    device: str = "cpu"
    #: variables that depend on the scratch folder (a DSL's caches)
    environment: Callable[[Path], Mapping[str, str]] = lambda _: {}
    devices: tuple[str, ...] = ()
    #: path of its scratch folder in its mount namespace, if that differs
    seen_at: str = ""
    #: folders besides its scratch folder that it may write and that outlive it (a baseline's compile cache)
    writable: tuple[str, ...] = ()
    memory_limit: int = CAPS.memory
    #: seconds of processor time for all its processes together; 0 means no limit
    processor_limit: float = 0.0
    #: maps an exception's message to a device fault: its kind and a description
    faults: Callable[[str], tuple[str, str] | None] = lambda _: None
    log: str = ""

    def __post_init__(self) -> None:
        # a user's program does not run in a judge's folder
        own = tempfile.gettempdir()
        plain = self.role == "ordinary"
        self.scratch = Path(folders.elsewhere(own) if plain else tempfile.mkdtemp(prefix="kernellab-"))
        self.printed = 0
        #: an event of the worker that arrived together with an earlier one
        self._pending = 0
        self.random = random.Random(secrets.randbits(64))
        self.stopped = False
        self.closed = False
        #: has a device fault made its context unusable?
        self.broken = False
        self.building = False
        #: positions of the arguments that the task's reference writes into
        self.written: tuple[int, ...] = ()
        #: does the DSL of the code that it builds generate code at run time, and which packages does it consist of?
        self.makes_code = False
        self.packages: tuple[str, ...] = ()
        #: packages whose code in memory is the candidate's kernels, which they compile and launch
        self.runtime: tuple[str, ...] = ()
        #: the cores of its threads, during timing
        self.placement: Placement | None = None
        #: processes that were halted with the worker, the time of the halt, and the processor time of all until then
        self.halted: list[int] = []
        self.halted_at = 0.0
        self._used = 0.0
        #: when it last got a request
        self.posted = self._watched = time.monotonic()
        with contextlib.ExitStack() as undone:
            # a failed start leaves nothing behind
            undone.callback(self._remove)
            for name in ("src", "work", "tmp", "home", "cache"):
                (self.scratch / name).mkdir()
            self._begin(undone)
            self.pid = self._child()
            ready = self._ready()
            undone.pop_all()
        self.sandbox: list[str] = ready.get("sandbox", [])
        #: words of its memory that change only if the code that calls the kernel is replaced, and their contents
        self._harness = Probe.of_words(ready.get("harness", []))
        self._intact = self._harness.read(self.pid)

    def _begin(self, undone: contextlib.ExitStack) -> None:
        """Make the fork server start the worker; ``undone`` ends it and closes its channels."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undone.callback(self.channel.close)
        control = Control.create()
        self.done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.log_fd, log = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self.done, self.log_fd):
            undone.callback(os.close, fd)
        os.set_blocking(log, True)
        # the other end belongs to the namespace's first process, which halts all on request and ends with the judge
        ours, life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undone.callback(ours.close)
        self._halts = HaltRequests(ours)
        request = {
            "role": self.role, "device": self.device, "scratch": str(self.scratch), "threads": self.threads,
            "devices": self.devices, "writable": self.writable, "environment": self._variables(),
            "seen_at": self.seen_at,
        }  # fmt: skip
        try:
            answer = self.server.request(request, (theirs.fileno(), control, self.done, log, life.fileno()))
            if "pid" not in answer:
                what = f"A worker could not be started: {answer.get('error', 'no reason given')}."
                raise VerifierError(what, _AGAIN)
            self.control = Control(control)
        finally:
            theirs.close()
            life.close()
            for fd in (log, control):
                os.close(fd)
        undone.callback(self.control.close)
        self.first: int = answer["pid"]
        self.first_fd = os.pidfd_open(self.first)
        undone.callback(os.close, self.first_fd)
        undone.callback(_wait_gone, self.first_fd)
        undone.callback(self._end)
        before_all(self.first)

    def stop(self) -> float:
        """Halt the worker and everything it has started, until :meth:`resume`. Returns the time when all had halted.

        Known processes are halted at once, and all others by one action of their namespace's first process, which
        belongs to the judge: the delay does not depend on the number of processes and threads.
        """
        if not self.stopped:
            self.stopped = True
            self.signal(signal.SIGSTOP, [self.pid, *self.halted])
            answer = self._halts.request(DEADLINES.stop)
            self.halted_at = time.perf_counter()
            self.halted = [p for p in process_stats.descendants(self.first, CAPS.processes + 1) if p != self.pid]
            if answer not in (HALTED, HALTING):
                self.signal(signal.SIGSTOP, self.halted)
            if self.halted or answer != HALTED:
                self._until_halted()
                self.halted_at = time.perf_counter()
            self._used = self.used()
            if self.placement is not None:
                self.placement.hold()
            if time.monotonic() > self._watched + _WATCH_SECONDS:
                self.watch()
        return self.halted_at

    def resume(self) -> None:
        """Continue the worker. Raises WorkerFailure if any of its processes ran while all were halted."""
        if self.stopped:
            if self._halts.unanswered and not self.gone():
                # a late signal would halt it again, and nothing would resume it
                self._halts.answer(DEADLINES.halt)
                if self._halts.unanswered:
                    raise self._killed("hang", "could not be stopped")
            self.stopped = False
            ran = self.used() - self._used
            # no process can have started another meanwhile, and a search for them would take time from the call
            self.signal(signal.SIGCONT, [self.pid, *self.halted])
            # workers that run the task's own code have no reason to cheat
            if ran > max(TIMING.halted_run_seconds, _TICK) and self.role == "candidate" and not self.gone():
                raise self._killed("protocol", f"ran for {ran * 1e3:.1f} ms while it was halted")

    def check_harness(self) -> None:
        """Raises WorkerFailure if the worker has replaced the code between a go and its answer."""
        now = self._harness.read(self.pid) if self._intact else None
        # memory that is no longer readable was made so by the worker
        if now is not None and now != self._intact:
            raise self._killed("protocol", "replaces the code that calls it and answers for it")

    def _until_halted(self) -> None:
        """Wait until all processes have halted: each thread must first reach that point. Raises WorkerFailure."""
        end = time.monotonic() + DEADLINES.halt
        while not all(map(process_stats.is_halted, (self.pid, *self.halted))):
            if time.monotonic() > end:
                if self.halted:
                    raise self._killed("left-running", "left processes that could not be stopped")
                raise self._killed("hang", "could not be stopped")
            time.sleep(1e-4)

    def used(self) -> float:
        """Seconds of processor time that its known processes have used; exact while it is halted."""
        return sum(process_stats.used(pid) for pid in (self.pid, *self.halted))

    def gone(self) -> bool:
        """Has it ended, or is its context unusable?"""
        poller = select.poll()
        poller.register(self.first_fd, select.POLLIN)
        return self.closed or self.broken or bool(poller.poll(0))

    def close(self) -> None:
        """End the worker with all its descendants and remove its files. Safe to repeat."""
        if self.closed:
            return
        self.closed = True
        self._end()
        self._halts.close()
        _wait_gone(self.first_fd)
        for fd in (self.first_fd, self.done, self.log_fd):
            os.close(fd)
        self.channel.close()
        self.control.close()
        self._remove()

    def _remove(self) -> None:
        if self.role == "ordinary":
            folders.remove_elsewhere(tempfile.gettempdir(), str(self.scratch))
        else:
            sandbox.remove(str(self.scratch))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside

    def _variables(self) -> dict[str, str]:
        seen_folder = Path(self.seen_at or self.scratch)
        caches = self.environment(seen_folder)
        if self.role in USERS and (self.device == "cpu" or self.role == "ordinary"):
            return users_variables(self.role, seen_folder, self.threads, caches)
        return {**self.server.environment, **judges_variables(self.scratch, self.threads), **caches}

    def _child(self) -> int:
        limit = time.monotonic() + DEADLINES.start
        path = Path(f"/proc/{self.first}/task/{self.first}/children")
        while time.monotonic() < limit:
            try:
                children = path.read_text().split()
            except OSError:
                break
            if children:
                return int(children[0])
            time.sleep(5e-4)
        raise VerifierError("A worker exited before it was ready.", _AGAIN)

    def _ready(self) -> dict[str, Any]:
        """The worker's first message. Raises VerifierError without one: no code of a candidate has run until then."""
        try:
            ready = self.receive(DEADLINES.start)
        except WorkerFailure as failure:
            raise VerifierError(f"A worker {failure.message} before it was ready.", _AGAIN) from None
        if "fault" in ready:
            raise VerifierError(
                f"A worker could not start ({ready['fault']}): a fault of kernellab, not of the kernel.", _AGAIN
            )
        return ready

    def post(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send ``message`` with file descriptors ``fds``. Raises WorkerFailure if the worker has ended."""
        self.posted = time.monotonic()
        try:
            wire.post(self.channel, message, fds)
        except OSError:
            raise self.ended() from None

    def ask(self, message: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Resume the worker, send ``message``, and return its answer within ``deadline`` (s). Raises WorkerFailure."""
        try:
            self.resume()
            self.post(message)
            answer = self.receive(deadline)
            if answer.get("ok") is not True:
                raise self.exception(answer)
        except WorkerFailure as failure:
            failure.role = self.role
            raise
        return answer

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message, within ``seconds``. Raises WorkerFailure."""
        end = time.monotonic() + seconds
        while True:
            ready = self.poll((self.channel.fileno(),), end)
            if self.channel.fileno() in ready:
                message, fds = self.take_message()
                for fd in fds:
                    os.close(fd)
                return message

    def take_message(self) -> tuple[dict[str, Any], list[int]]:
        """The worker's next message, sanitized for display, with the descriptors that came with it."""
        try:
            message, fds = wire.take(self.channel)
            shown: dict[str, Any] | None = shown_all(message)
        except (wire.Malformed, OSError, RecursionError) as error:
            what = "a message of too many levels" if isinstance(error, RecursionError) else error
            raise WorkerFailure("protocol", f"The worker sent {what}.", log=self.log) from None
        if shown is None:
            raise self.ended()
        return shown, fds

    def event(self, end: float) -> int:
        """The value of the worker's next event, until the time ``end`` (monotonic). Raises WorkerFailure."""
        while True:
            if self.done in self.poll((self.done,), end):
                try:
                    return os.eventfd_read(self.done)
                except BlockingIOError:
                    continue

    def poll(self, wanted: Sequence[int], end: float) -> set[int]:
        """Wait for one of ``wanted`` while draining the log and watching memory, processes and time."""
        poller = select.poll()
        for fd in (*wanted, self.log_fd, self.first_fd):
            poller.register(fd, select.POLLIN)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise self._killed("hang", f"did not answer within {lasting(end - self.posted)}")
            ready = {fd for fd, _ in poller.poll(min(left, _WATCH_SECONDS) * 1000 + 1)}
            if self.log_fd in ready:
                self.drain()
            if ready & set(wanted):
                return ready
            if self.first_fd in ready:
                raise self.ended()
            if time.monotonic() > self._watched + _WATCH_SECONDS:
                self.watch()

    def drain(self) -> None:
        """Read the log that is available. Raises WorkerFailure if the worker has printed too much."""
        while True:
            try:
                part = os.read(self.log_fd, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                return
            self.printed += len(part)
            if len(self.log) < CAPS.log:
                self.log += shown(part.decode(errors="replace"))[: CAPS.log - len(self.log)]
            if self.printed > CAPS.printed:
                raise self._killed("printed", f"printed more than {CAPS.printed >> 20} MiB")

    def watch(self) -> None:
        """End the worker, with WorkerFailure, if it exceeds a limit. Runs at most every tenth of a second, while the
        judge waits and at each halt."""
        self._watched = time.monotonic()
        pids = self._counted()
        used = sum(process_stats.sizes(pid).resident for pid in pids)
        if used > self.memory_limit and self._proportional(pids) > self.memory_limit:
            raise self._killed("memory", f"used more than {self.memory_limit >> 20} MiB of memory")
        if self.processor_limit and sum(map(process_stats.used, pids)) > self.processor_limit:
            raise self._killed("processor", f"used more than {lasting(self.processor_limit)} of the processor's time")
        files_held = process_stats.files(pids, str(self.scratch), CAPS.files + 1)
        if files_held.bytes > CAPS.disk or files_held.number > CAPS.files:
            most = f"{CAPS.disk >> 20} MiB" if files_held.bytes > CAPS.disk else f"{CAPS.files} files"
            raise self._killed("disk", f"wrote more than {most}")

    def _counted(self) -> list[int]:
        """The processes that the worker has started. Raises WorkerFailure if there are too many."""
        pids = process_stats.descendants(self.first, CAPS.processes + 1)
        threads = sandbox.most_threads()
        if len(pids) > CAPS.processes or sum(map(process_stats.count_threads, pids)) > threads:
            most = f"{CAPS.processes} processes" if len(pids) > CAPS.processes else f"{threads} threads"
            raise self._killed("processes", f"started more than {most}")
        return pids

    def _proportional(self, pids: Sequence[int]) -> int:
        """Bytes of all of them, with shared memory counted once. A read blocks while the process forks, and each copy
        may fork too, so the processes are counted again each time."""
        total = 0
        for pid in pids:
            total += process_stats.proportional(pid)
            self._counted()
        return total

    def signal(self, number: int, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _killed(self, kind: str, message: str) -> WorkerFailure:
        """End the worker. Returns the failure that says why."""
        self._end()
        return WorkerFailure(kind, message, log=self.log)

    def _end(self) -> None:
        """End the worker with all its descendants."""
        try:
            signal.pidfd_send_signal(self.first_fd, signal.SIGKILL)
        except ProcessLookupError:
            return
        # the next caller of gone() must not find it still exiting
        _wait_gone(self.first_fd)

    def ended(self) -> WorkerFailure:
        """End the worker if it has not ended yet. Returns the failure that says how it ended."""
        self.drain()
        # its first process exits once it has seen how the worker ended
        poller = select.poll()
        poller.register(self.first_fd, select.POLLIN)
        poller.poll(500)
        self._end()
        code = self.server.request({"ended": self.first}).get("code") if self.server.alive() else None
        if code:
            name = signal.Signals(code).name if code in set(signal.Signals) else f"signal {code}"
            # text that the preloaded allocator prints on a fault; a worker that prints it itself is refused in the same
            # way
            guarded = _GUARDED.search(self.log) if name == "SIGSEGV" else None
            if guarded:
                message = f"reads or writes {guarded[1]}{' that it allocates' if 'bytes' in guarded[1] else ''}"
                return WorkerFailure("out-of-bounds", message, {"signal": name}, self.log)
            return WorkerFailure("crash", f"crashed with {name}", {"signal": name}, self.log)
        return WorkerFailure("exit", "ended its process without an answer", log=self.log)

    def exception(self, answer: dict[str, Any]) -> WorkerFailure:
        """The failure that an unsuccessful ``answer`` describes."""
        self.drain()
        report = ReportedError.of(answer)
        if report is None:
            return WorkerFailure("protocol", "The worker sent a malformed answer.", log=self.log)
        fault = self.faults(report.words)
        if fault is None:
            return WorkerFailure(report.kind, report.words, report.detail, self.log)
        # after such a fault the next candidate gets a new process
        self.broken = self.broken or fault[0] != "memory"
        return WorkerFailure(*fault, report.detail, self.log)


def _wait_gone(pidfd: int) -> None:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll(DEADLINES.stop * 1000)
