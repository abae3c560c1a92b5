"""A worker's process as the judge holds it: started in its sandbox, watched, halted, ended with all below it."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import secrets
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import VerifierError, lasting
from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.halting import HALT, HALTED, HALTING
from kernellab.verifier.judge.placement import Placement, before_all
from kernellab.verifier.judge.servers import ForkServer, passed
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import Control
from kernellab.verifier.protocol.memory import Window
from kernellab.verifier.protocol.rules import CAPS, DEADLINES, TIMING
from kernellab.verifier.protocol.sanitize import shown, shown_all
from kernellab.verifier.sandbox import folders, sandbox

if TYPE_CHECKING:
    from typing_extensions import Self

_GUARDED = re.compile(
    r"^kernellab-heap: (beyond the end of memory of \d+ bytes|before the beginning of memory of \d+ bytes|"
    r"in memory that it has freed, or far from any)$", re.MULTILINE,
)  # fmt: skip
#: seconds by which the system's accounts of what has just been halted may be behind: a tick, which is the resolution of
#: CLOCK_MONOTONIC_COARSE (6 on Linux, for which Python has no name)
_TICK = time.clock_getres(6)
#: between two looks at what a worker uses
_WATCH_SECONDS = 0.1
_AGAIN = "Verify again; kernellab doctor says what this machine lacks."
#: roles whose environment is as a user's
USERS = ("candidate", "ordinary")
#: what a user's shells and notebooks have in their environment
_SHELLS = {
    "DISPLAY": ":0", "EDITOR": "vi", "LANG": "en_US.UTF-8", "SHELL": "/bin/bash", "TERM": "xterm-256color",
    "XDG_SESSION_TYPE": "x11",
}  # fmt: skip


def _user() -> str:
    """The person's name; what asks for it would end where the process's number is none of the system's users."""
    try:
        return os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "user"


def _drawn() -> dict[str, str]:
    """Those whose values differ between users: a constant would tell this process from theirs."""
    below = secrets.randbelow
    near = [f"10.{below(256)}.{below(256)}.{1 + below(254)}" for _ in range(2)]
    return {
        **dict.fromkeys(("USER", "LOGNAME"), _user()),
        "JPY_PARENT_PID": str(300 + below(60000)), "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}",
        "SSH_CONNECTION": f"{near[0]} {32768 + below(28000)} {near[1]} 22",
    }  # fmt: skip


class WorkerFailure(Exception):
    """The worker did not do what it was asked. ``kind``: crash, exit, hang, left-running, memory, processor, disk,
    processes, printed, protocol, exception, output, out-of-bounds."""

    def __init__(self, kind: str, message: str, detail: dict[str, Any] | None = None, log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail or {}
        self.log = log
        #: whose worker it was, where that is known: "candidate", or a baseline's name
        self.role = ""


@dataclass
class WorkerProcess:
    """A fresh process of ``server`` for one candidate or baseline; a context manager whose end removes everything."""

    server: ForkServer
    role: str
    threads: int
    device: str = "cpu"
    #: variables that depend on the scratch folder (a DSL's caches)
    environment: Callable[[Path], Mapping[str, str]] = lambda _: {}
    devices: tuple[str, ...] = ()
    #: where its scratch folder is seen in its mount namespace, if that is elsewhere
    seen_at: str = ""
    #: folders other than its scratch that it may write and that outlive it (a baseline's compile cache)
    writable: tuple[str, ...] = ()
    memory_limit: int = CAPS.memory
    #: seconds of the processor's time that all its processes may use; 0 means no limit
    processor_limit: float = 0.0
    #: a device's fault in the message of an exception: its kind and what to say of it
    faults: Callable[[str], tuple[str, str] | None] = lambda _: None
    log: str = ""

    def __post_init__(self) -> None:
        # a user's program lies in no folder of a judge's
        own = tempfile.gettempdir()
        plain = self.role == "ordinary"
        self.scratch = Path(folders.elsewhere(own) if plain else tempfile.mkdtemp(prefix="kernellab-"))
        self.printed = 0
        #: an event of the worker's that came with one before it
        self._pending = 0
        self.random = random.Random(secrets.randbits(64))
        self.stopped = False
        self.closed = False
        #: has a fault of the device made its context useless?
        self.broken = False
        self.building = False
        #: places of the arguments that the task's reference writes into
        self.written: tuple[int, ...] = ()
        #: does the DSL of what it builds write code at run time, and of which packages is it?
        self.makes_code = False
        self.packages: tuple[str, ...] = ()
        #: packages whose code in memory is the candidate's kernels, compiled and launched by them
        self.runtime: tuple[str, ...] = ()
        #: the cores of its threads, while it is timed
        self.placement: Placement | None = None
        self._prepared: tuple[Any, ...] = ()
        #: processes that were halted with the worker, when that was, and what all had used of the processor by then
        self.halted: list[int] = []
        #: requests to halt that the first process has not answered
        self._owed = 0
        self.halted_at = 0.0
        self._used = 0.0
        #: when it was last asked something
        self.posted = self._watched = time.monotonic()
        with contextlib.ExitStack() as undone:
            # a start that fails leaves nothing
            undone.callback(self._remove)
            for name in ("src", "work", "tmp", "home", "cache"):
                (self.scratch / name).mkdir()
            self._begin(undone)
            self.pid = self._child()
            told = self.receive(DEADLINES.start)
            undone.pop_all()
        self.sandbox: list[str] = told.get("sandbox", [])
        #: words of its memory that never change where no one replaces what calls the kernel, and what stands there
        self._harness = Window.of_words(told.get("harness", []))
        self._intact = self._harness.read(self.pid)

    def _begin(self, undone: contextlib.ExitStack) -> None:
        """Has the fork server start it; ``undone`` ends it and closes what leads to it."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undone.callback(self.channel.close)
        control = Control.create()
        self.done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.log_fd, log = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self.done, self.log_fd):
            undone.callback(os.close, fd)
        os.set_blocking(log, True)
        # its other end is the namespace's first process: told by it to halt all, and ended with it
        self.life, life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undone.callback(self.life.close)
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
        """Halts the worker and everything it has started, until :meth:`resume`; the time at which all had halted.

        Those that are known are halted at once, and all that there are by one act of their namespace's first process,
        which is the judge's: how many they are, and how many threads they have, does not decide how soon.
        """
        if not self.stopped:
            self.stopped = True
            self.signal(signal.SIGSTOP, [self.pid, *self.halted])
            answer = self._halt_all()
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
        """Lets it go on. Raises WorkerFailure when something of it ran while all was halted."""
        if self.stopped:
            if self._owed and not self.gone():
                # a signal that came after this one would halt it again, and nobody would wake it
                self._halted(DEADLINES.halt)
                if self._owed:
                    self._end()
                    raise WorkerFailure("hang", "could not be stopped", log=self.log)
            self.stopped = False
            ran = self.used() - self._used
            # no process has started another meanwhile, and looking for them would take time from the call
            self.signal(signal.SIGCONT, [self.pid, *self.halted])
            # what runs the task's own text has nothing to gain
            if ran > max(TIMING.halted_seconds, _TICK) and self.role == "candidate" and not self.gone():
                self._end()
                raise WorkerFailure("protocol", f"ran for {ran * 1e3:.1f} ms while it was halted", log=self.log)

    def check_harness(self) -> None:
        """Raises WorkerFailure where it has replaced what stands between a go and its answer."""
        now = self._harness.read(self.pid) if self._intact else None
        # what cannot be read any more was made so
        if now is not None and now != self._intact:
            self._end()
            raise WorkerFailure("protocol", "replaces the code that calls it and answers for it", log=self.log)

    def _until_halted(self) -> None:
        """Waits until all of it has halted: the system must let each thread run to that end. Raises WorkerFailure."""
        end = time.monotonic() + DEADLINES.halt
        while not all(map(process_stats.is_halted, (self.pid, *self.halted))):
            if time.monotonic() > end:
                self._end()
                if self.halted:
                    raise WorkerFailure("left-running", "left processes that could not be stopped", log=self.log)
                raise WorkerFailure("hang", "could not be stopped", log=self.log)
            time.sleep(1e-4)

    def used(self) -> float:
        """Seconds of the processor that its processes have used, as far as they are known; exact while it is halted."""
        return sum(process_stats.used(pid) for pid in (self.pid, *self.halted))

    def _halt_all(self) -> bytes:
        """Asks the first process to halt its namespace; what it answers, nothing where it has ended or takes long."""
        try:
            self.life.send(HALT)
        except OSError:
            return b""
        self._owed += 1
        return self._halted(DEADLINES.stop)

    def _halted(self, seconds: float) -> bytes:
        """The first process's answer to the last request, once it has answered all; nothing where it has ended, or not
        within ``seconds``."""
        end = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self.life, select.POLLIN)
        answer = b""
        while self._owed and poller.poll(max(0.0, end - time.monotonic()) * 1000):
            try:
                answer = self.life.recv(16)
            except OSError:
                answer = b""
            self._owed = self._owed - 1 if answer else 0
        return b"" if self._owed else answer

    def gone(self) -> bool:
        """Has it ended (or been ended), or is its context of no use any more?"""
        poller = select.poll()
        poller.register(self.first_fd, select.POLLIN)
        return self.closed or self.broken or bool(poller.poll(0))

    def close(self) -> None:
        """Ends the worker with all its descendants and removes its files. Safe to repeat."""
        if self.closed:
            return
        self.closed = True
        self._end()
        self.life.close()
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
        at = Path(self.seen_at or self.scratch)
        own = self.environment(at)
        if self.role not in USERS or (self.device != "cpu" and self.role != "ordinary"):
            return {**self.server.environment, **self._folders(), **own}
        # as a user's shell has them; what is built goes to the home folder's cache
        home, speed = str(at / "home"), {}
        if self.role == "candidate":
            speed = {"OMP_NUM_THREADS": str(self.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        folders = {"HOME": home, "PWD": home, "TMPDIR": str(at / "tmp")}
        return {**passed(), **_SHELLS, **_drawn(), **folders, **speed, **own}

    def _folders(self) -> dict[str, str]:
        at = {name: str(self.scratch / name) for name in ("tmp", "home", "cache")}
        return {
            "HOME": at["home"], "TMPDIR": at["tmp"], "XDG_CACHE_HOME": at["cache"],
            "TVM_FFI_CACHE_DIR": f"{at['cache']}/tvm-ffi", "TRITON_CACHE_DIR": f"{at['cache']}/triton",
            "TRITON_HOME": at["home"], "TORCHINDUCTOR_CACHE_DIR": f"{at['cache']}/inductor",
            "TORCH_EXTENSIONS_DIR": f"{at['cache']}/extensions", "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": str(self.threads),
            # as in the user's own programs: by their names no kernel tells where it runs
            **dict.fromkeys(("USER", "LOGNAME"), _user()),
        }  # fmt: skip

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

    def post(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        self.posted = time.monotonic()
        try:
            wire.post(self.channel, message, fds)
        except OSError:
            raise self.ended() from None

    def ask(self, message: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Resumes the worker and sends ``message``; its answer, within ``deadline`` seconds. Raises WorkerFailure."""
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
        end = time.monotonic() + seconds
        while True:
            ready = self.poll((self.channel.fileno(),), end)
            if self.channel.fileno() in ready:
                message, fds = self.taken()
                for fd in fds:
                    os.close(fd)
                return message

    def taken(self) -> tuple[dict[str, Any], list[int]]:
        """The worker's message that lies there, fit to be shown, with the descriptors that came with it."""
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
        while True:
            if self.done in self.poll((self.done,), end):
                try:
                    return os.eventfd_read(self.done)
                except BlockingIOError:
                    continue

    def poll(self, wanted: Sequence[int], end: float) -> set[int]:
        """Waits for one of ``wanted``, draining the log and watching memory, processes and time."""
        poller = select.poll()
        for fd in (*wanted, self.log_fd, self.first_fd):
            poller.register(fd, select.POLLIN)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                self._end()
                raise WorkerFailure("hang", f"did not answer within {lasting(end - self.posted)}", log=self.log)
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
                self._end()
                raise WorkerFailure("printed", f"printed more than {CAPS.printed >> 20} MiB", log=self.log)

    def watch(self) -> None:
        """Ends the worker, with WorkerFailure, where it uses more than it may. Asked for while something is waited for,
        and each time it is halted, a tenth of a second after the last."""
        self._watched = time.monotonic()
        pids = self._counted()
        used = sum(process_stats.sizes(pid).resident for pid in pids)
        if used > self.memory_limit and self._proportional(pids) > self.memory_limit:
            self._end()
            raise WorkerFailure("memory", f"used more than {self.memory_limit >> 20} MiB of memory", log=self.log)
        if self.processor_limit and sum(map(process_stats.used, pids)) > self.processor_limit:
            self._end()
            most = lasting(self.processor_limit)
            raise WorkerFailure("processor", f"used more than {most} of the processor's time", log=self.log)
        held = process_stats.files(pids, str(self.scratch), CAPS.files + 1)
        if held.bytes > CAPS.disk or held.number > CAPS.files:
            self._end()
            most = f"{CAPS.disk >> 20} MiB" if held.bytes > CAPS.disk else f"{CAPS.files} files"
            raise WorkerFailure("disk", f"wrote more than {most}", log=self.log)

    def _counted(self) -> list[int]:
        """What the worker has started. Raises WorkerFailure where that is more than it may."""
        pids = process_stats.descendants(self.first, CAPS.processes + 1)
        threads = sandbox.most_threads()
        if len(pids) > CAPS.processes or sum(map(process_stats.count_threads, pids)) > threads:
            self._end()
            most = f"{CAPS.processes} processes" if len(pids) > CAPS.processes else f"{threads} threads"
            raise WorkerFailure("processes", f"started more than {most}", log=self.log)
        return pids

    def _proportional(self, pids: Sequence[int]) -> int:
        """Bytes of all of them, those that several share once. Reading one waits while it forks, and each copy of it
        forks: they are counted again each time."""
        used = 0
        for pid in pids:
            used += process_stats.proportional(pid)
            self._counted()
        return used

    def signal(self, number: int, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self) -> None:
        try:
            signal.pidfd_send_signal(self.first_fd, signal.SIGKILL)
        except ProcessLookupError:
            return
        # who asks next whether it is gone shall not find it on its way out
        _wait_gone(self.first_fd)

    def ended(self) -> WorkerFailure:
        """Ends it where it has not ended by itself; the failure that says how it ended."""
        self.drain()
        # its first process ends by itself once it has seen how the worker ended
        poller = select.poll()
        poller.register(self.first_fd, select.POLLIN)
        poller.poll(500)
        self._end()
        code = self.server.request({"ended": self.first}).get("code") if self.server.alive() else None
        if code:
            name = signal.Signals(code).name if code in set(signal.Signals) else f"signal {code}"
            # words that the preloaded allocator prints of a fault; whoever prints them is refused as it would be
            guarded = _GUARDED.search(self.log) if name == "SIGSEGV" else None
            if guarded:
                message = f"reads or writes {guarded[1]}{' that it allocates' if 'bytes' in guarded[1] else ''}"
                return WorkerFailure("out-of-bounds", message, {"signal": name}, self.log)
            return WorkerFailure("crash", f"crashed with {name}", {"signal": name}, self.log)
        return WorkerFailure("exit", "ended its process without an answer", log=self.log)

    def exception(self, answer: dict[str, Any]) -> WorkerFailure:
        self.drain()
        told = Told.of(answer)
        if told is None:
            return WorkerFailure("protocol", "The worker sent a malformed answer.", log=self.log)
        kinds = {"BadOutput": "output", "Trespass": "out-of-bounds", "Race": "race", "Limit": "launch-limit"}
        kind = kinds.get(told.type, "exception")
        message = told.message if kind in ("out-of-bounds", "race", "launch-limit") else f"{told.type}: {told.message}"
        message = message[: CAPS.log]
        fault = self.faults(message)
        if fault is None:
            return WorkerFailure(kind, message, asdict(told), self.log)
        # the next candidate gets a new process after such a fault
        self.broken = self.broken or fault[0] != "memory"
        return WorkerFailure(*fault, asdict(told), self.log)


@dataclass(frozen=True)
class Told:
    """An exception as a worker tells it: claims, of which only the form is sure."""

    type: str
    message: str
    frames: list[dict[str, Any]]
    inside: str
    trace: str

    @staticmethod
    def of(answer: dict[str, Any]) -> Told | None:
        """None where it has no type that could be one."""
        if not isinstance(answer.get("type"), str):
            return None
        given = answer.get("frames")
        frames = [f for f in given if isinstance(f, dict)] if isinstance(given, list) else []
        return Told(
            answer["type"][:80], str(answer.get("message", "")),
            [{"file": str(f.get("file", ""))[:400], "line": _line(f.get("line"))} for f in frames[-8:]],
            str(answer.get("inside") or "")[:400], str(answer.get("trace") or "")[-16000:],
        )  # fmt: skip


def _line(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _wait_gone(pidfd: int) -> None:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll(DEADLINES.stop * 1000)
