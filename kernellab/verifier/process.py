"""A worker's process as the judge holds it: started in its sandbox, watched, halted, ended with all below it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import VerifierError
from kernellab.verifier import accounts, sandbox, wire
from kernellab.verifier.control import Control
from kernellab.verifier.memory import Arena
from kernellab.verifier.placement import Placement
from kernellab.verifier.rules import CAPS, DEADLINES
from kernellab.verifier.servers import ForkServer

if TYPE_CHECKING:
    from typing_extensions import Self


class WorkerFailure(Exception):
    """The worker did not do what it was asked. ``kind``: crash, exit, hang, memory, disk, processes, printed,
    protocol, exception, output."""

    def __init__(self, kind: str, message: str, detail: dict[str, Any] | None = None, log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail or {}
        self.log = log


@dataclass
class WorkerProcess:
    """A fresh process of ``server`` for one candidate or baseline; a context manager whose end removes everything.

    Its arguments lie in ``arenas``, which end with it.
    """

    server: ForkServer
    role: str
    threads: int
    device: str = "cpu"
    #: variables that depend on the scratch folder (a DSL's caches)
    environment: Callable[[Path], Mapping[str, str]] = lambda _: {}
    devices: tuple[str, ...] = ()
    #: folders beside its scratch that it may write and that outlive it (a baseline's compile cache)
    writable: tuple[str, ...] = ()
    memory_limit: int = CAPS.memory
    log: str = ""

    def __post_init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="kernellab-"))
        for name in ("src", "work", "tmp", "home", "cache"):
            (self.scratch / name).mkdir()
        self.arenas: dict[int, Arena] = {}
        self.printed = 0
        self.sequence = 0
        self.stopped = False
        self.closed = False
        self.building = False
        #: the cores of its threads, while it is timed
        self.placement: Placement | None = None
        self._prepared: tuple[Any, ...] = ()
        #: processes that were halted with the worker
        self._halted: list[int] = []
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control = Control.create()
        self.done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.log_fd, log = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(log, True)
        life, self.life = os.pipe2(os.O_CLOEXEC)
        request = {
            "role": self.role, "device": self.device, "scratch": str(self.scratch), "threads": self.threads,
            "devices": self.devices, "writable": self.writable, "environment": {
                **self.server.environment, **self._folders(), **self.environment(self.scratch)
            },
        }  # fmt: skip
        try:
            answer = self.server.request(request, (theirs.fileno(), control, self.done, log, life))
        finally:
            theirs.close()
            os.close(log)
            os.close(life)
        if "pid" not in answer:
            raise VerifierError(f"A worker could not be started: {answer.get('error', 'no reason given')}.", "")
        self.channel = ours
        self.control = Control(control)
        os.close(control)
        self.first: int = answer["pid"]
        self.first_fd = os.pidfd_open(self.first)
        self.pid = self._child()
        self.sandbox: list[str] = self._receive(DEADLINES.start).get("sandbox", [])

    def stop(self) -> None:
        """Halts the worker and everything it has started, until :meth:`resume`."""
        if not self.stopped:
            self.stopped = True
            # at once, the search below takes longer than a small kernel: what is halted late could work on
            self._signal(signal.SIGSTOP, [self.pid])
            self._halted = [p for p in accounts.descendants(self.first, CAPS.processes + 1) if p != self.pid]
            self._signal(signal.SIGSTOP, self._halted)
            if self.placement is not None:
                self.placement.hold()

    def resume(self) -> None:
        if self.stopped:
            self.stopped = False
            # nobody has started another meanwhile, and looking for them would take time from the call
            self._signal(signal.SIGCONT, [self.pid, *self._halted])

    def gone(self) -> bool:
        """Has it ended (or been ended)?"""
        poller = select.poll()
        poller.register(self.first_fd, select.POLLIN)
        return self.closed or bool(poller.poll(0))

    def close(self) -> None:
        """Ends the worker with all its descendants and removes its files. Safe to repeat."""
        if self.closed:
            return
        self.closed = True
        self._end()
        os.close(self.life)
        _wait_gone(self.first_fd)
        for fd in (self.first_fd, self.done, self.log_fd):
            os.close(fd)
        self.channel.close()
        self.control.close()
        for arena in self.arenas.values():
            arena.close()
        sandbox.remove(str(self.scratch))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside

    def _folders(self) -> dict[str, str]:
        at = {name: str(self.scratch / name) for name in ("tmp", "home", "cache")}
        return {
            "HOME": at["home"], "TMPDIR": at["tmp"], "XDG_CACHE_HOME": at["cache"],
            "TVM_FFI_CACHE_DIR": f"{at['cache']}/tvm-ffi", "TRITON_CACHE_DIR": f"{at['cache']}/triton",
            "TRITON_HOME": at["home"], "TORCHINDUCTOR_CACHE_DIR": f"{at['cache']}/inductor",
            "TORCH_EXTENSIONS_DIR": f"{at['cache']}/extensions", "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": str(self.threads), "USER": "worker", "LOGNAME": "worker",
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
        raise VerifierError("A worker ended before it began.", "Run it again.")

    def _post(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        try:
            wire.post(self.channel, message, fds)
        except OSError:
            raise self._gone() from None

    def _receive(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            ready = self._poll((self.channel.fileno(),), end)
            if self.channel.fileno() in ready:
                try:
                    message, fds = wire.take(self.channel)
                except (wire.Malformed, OSError) as error:
                    raise WorkerFailure("protocol", f"The worker sent {error}.", log=self.log) from None
                for fd in fds:
                    os.close(fd)
                if message is None:
                    raise self._gone()
                return message

    def _event(self, end: float) -> int:
        while True:
            if self.done in self._poll((self.done,), end):
                try:
                    return os.eventfd_read(self.done)
                except BlockingIOError:
                    continue

    def _poll(self, wanted: Sequence[int], end: float) -> set[int]:
        """Waits for one of ``wanted``, draining the log and watching memory, processes and time."""
        poller = select.poll()
        for fd in (*wanted, self.log_fd, self.first_fd):
            poller.register(fd, select.POLLIN)
        watch_from = time.monotonic() + 0.1
        while True:
            left = end - time.monotonic()
            if left <= 0:
                self._end()
                raise WorkerFailure("hang", "did not answer in time", log=self.log)
            ready = {fd for fd, _ in poller.poll(min(left, 0.1) * 1000 + 1)}
            if self.log_fd in ready:
                self._drain()
            if ready & set(wanted):
                return ready
            if self.first_fd in ready:
                raise self._gone()
            if time.monotonic() > watch_from:
                self.watch()

    def _drain(self) -> None:
        while True:
            try:
                part = os.read(self.log_fd, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                return
            self.printed += len(part)
            if len(self.log) < CAPS.log:
                self.log += part.decode(errors="replace")[: CAPS.log - len(self.log)]
            if self.printed > CAPS.printed:
                self._end()
                raise WorkerFailure("printed", f"printed more than {CAPS.printed >> 20} MiB", log=self.log)

    def watch(self) -> None:
        """Ends the worker, with WorkerFailure, where it uses more than it may."""
        pids = accounts.descendants(self.first, CAPS.processes + 1)
        if len(pids) > CAPS.processes:
            self._end()
            raise WorkerFailure("processes", f"started more than {CAPS.processes} processes", log=self.log)
        used = sum(accounts.resident(pid) for pid in pids)
        if used > self.memory_limit and sum(accounts.proportional(pid) for pid in pids) > self.memory_limit:
            self._end()
            raise WorkerFailure("memory", f"used more than {self.memory_limit >> 20} MiB of memory", log=self.log)
        held = accounts.files(pids, str(self.scratch), CAPS.files + 1)
        if held.bytes > CAPS.disk or held.number > CAPS.files:
            self._end()
            most = f"{CAPS.disk >> 20} MiB" if held.bytes > CAPS.disk else f"{CAPS.files} files"
            raise WorkerFailure("disk", f"wrote more than {most}", log=self.log)

    def _signal(self, number: int, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self) -> None:
        try:
            signal.pidfd_send_signal(self.first_fd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _gone(self) -> WorkerFailure:
        self._drain()
        # its first process ends by itself once it has seen how the worker ended
        poller = select.poll()
        poller.register(self.first_fd, select.POLLIN)
        poller.poll(500)
        self._end()
        code = self.server.request({"ended": self.first}).get("code") if self.server.alive() else None
        if code:
            name = signal.Signals(code).name if code in set(signal.Signals) else f"signal {code}"
            return WorkerFailure("crash", f"crashed with {name}", {"signal": name}, self.log)
        return WorkerFailure("exit", "ended its process without an answer", log=self.log)

    def _exception(self, answer: dict[str, Any]) -> WorkerFailure:
        self._drain()
        if not isinstance(answer.get("type"), str):
            return WorkerFailure("protocol", "The worker sent an answer that is none.", log=self.log)
        kind = "output" if answer.get("type") == "BadOutput" else "exception"
        message = f"{answer.get('type', 'Exception')}: {answer.get('message', '')}"
        return WorkerFailure(kind, message[: CAPS.log], answer, self.log)


def _wait_gone(pidfd: int) -> None:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll(DEADLINES.stop * 1000)
