"""The caller's side: keeps one judge warm, sends it requests, and restarts it if it has died."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from kernellab.conditions import JudgedOn, joined
from kernellab.content import module_command
from kernellab.errors import KernellabError, VerifierError
from kernellab.records import Ranking, Source, StageResult, Trust, Verdict
from kernellab.sandbox import folders, sandbox
from kernellab.sandbox.environment import clean_environment
from kernellab.target import Backend, Target
from kernellab.task import Task
from kernellab.verifier.audit.folder import CACHE
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.servers import ALLOCATOR
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.options import RankOptions, VerifyOptions
from kernellab.verifier.protocol.rules import COMPILED, DEADLINES
from kernellab.verifier.remote import Remote, raised
from kernellab.verifier.reproduction.agreement import reproduced

Progress = Callable[[StageResult], None]

#: seconds beyond a request's deadline that a judge may be silent: without other judges, and where judges take turns
PATIENCE, TURNS = 60.0, 1200.0
_PREFIX = "kernellab-verifier-"
#: seconds between two checks whether a verification was cancelled
_LOOK = 0.1


def silence(seconds: float, last: str) -> str:
    """A sentence that says how long a judge was silent, and since which stage; ``last`` is the last reported stage."""
    after = f" after the stage {last}" if last else ", before the end of its first stage"
    return f"The judge said nothing for {seconds:.0f} s{after}, and was stopped. There is no verdict on the kernel."


class _Stages:
    """Passes the reported stages on, and keeps the name of the last one."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.last = ""

    def report(self, result: StageResult) -> None:
        self.last = result.name.value
        if self._progress is not None:
            self._progress(result)


class Verifier:
    """Keeps a judge and its fork servers warm. A context manager whose exit leaves no process and no file.

    ``notice`` holds what happened to the judge since the last call (for example a restart).
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()
        self.notice = ""
        #: time of the last request to a judge of this machine
        self._asked = time.monotonic()
        #: judges of other machines in use, by host
        self._remotes: dict[str, Remote] = {}
        #: seconds beyond a verification's deadline after which a silent judge is ended
        self.patience = PATIENCE
        folders.sweep(_PREFIX)
        self._own_folder()
        atexit.register(_close, weakref.ref(self))

    def warm(
        self, target: Target, options: VerifyOptions | None = None, *, ahead: bool = False,
        cancel: threading.Event | None = None,
    ) -> None:  # fmt: skip
        """Start the judge and the fork servers for ``target`` now, so that the first verdict does not wait for them,
        including torch.compile's if ``options`` request it. ``ahead``: only on the host, before any request for a
        kernel; allocates nothing on a GPU, and does not wait for fork servers."""
        compiles = options is not None and not COMPILED.keys().isdisjoint(options.baselines)
        with self._lock:
            request = {
                "op": "warm", "dsl": target.dsl, "backend": target.backend.value,
                "compiles": compiles and target.backend is not Backend.INTERPRETER, "ahead": ahead,
            }  # fmt: skip
            self._ask(request, None, "warm", 8 * DEADLINES.start, cancel, target.host)

    def prepare(self, task: Task, target: Target, options: VerifyOptions | None = None) -> bool:
        """Begin to build the baselines that a verification will need, and return at once: are they all built?

        The builds continue in the background, and halt while a kernel is timed.
        """
        request = {
            "op": "prepare", "task": task.text, "name": task.name, "dsl": target.dsl, "backend": target.backend.value,
            "options": (options or VerifyOptions()).model_dump(mode="json"),
        }  # fmt: skip
        with self._lock:
            return bool(self._ask(request, None, "prepared", 8 * DEADLINES.start, host=target.host)["prepared"])

    def release(self) -> None:
        """Make a running judge free what it stores for the next candidate of a task; it stays warm."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._ask({"op": "release"}, None, "released", 2 * DEADLINES.start)

    def verify(
        self, task: Task, source: Source, target: Target, *, options: VerifyOptions | None = None,
        progress: Progress | None = None, cancel: threading.Event | None = None,
    ) -> Verdict:  # fmt: skip
        """Verify ``source`` for ``task`` on ``target``. ``progress`` receives each stage's result as it arrives.

        At the level T4 a second judge, with separate processes and seeds, verifies it again. Setting ``cancel`` ends
        the judge, with all its descendants, within a tenth of a second.

        Raises:
            TaskError, TargetError: a task or target that cannot be used.
            VerifierError: the judge died, could not do its work, or was cancelled; the next call starts a new one.
        """
        options = options or VerifyOptions()
        if options.level is Trust.T4:
            return self._twice(task, source, target, options, progress, cancel)
        request: dict[str, Any] = {
            "op": "verify", "task": task.text, "name": task.name, "source": source.model_dump(mode="json"),
            "backend": target.backend.value, "chip": _measured_on(target),
            "options": options.model_dump(mode="json"),
        }  # fmt: skip
        with self._lock:
            answer = self._ask(request, progress, "verdict", options.deadline, cancel, target.host)
        verdict = Verdict.model_validate(answer["verdict"])
        if target.host:
            there = joined(verdict.conditions, [JudgedOn(host=answer["host"])])
            return verdict.model_copy(update={"conditions": there})
        if target.backend is Backend.CPU:
            from kernellab.dsls.machine import keep_judged

            keep_judged(verdict.environment)
        return verdict

    def rank(
        self, task: Task, source: Source, target: Target, *, options: RankOptions | None = None,
        progress: Progress | None = None, cancel: threading.Event | None = None,
    ) -> Ranking:  # fmt: skip
        """Rank ``source`` quickly, for a search that chooses among many: finds plain errors, and compares its time with
        eager's to a few percent. The result is not a verdict; call :meth:`verify` for the chosen ones.

        Raises as :meth:`verify`; TargetError also in Triton's interpreter.
        """
        options = options or RankOptions()
        request: dict[str, Any] = {
            "op": "rank", "task": task.text, "name": task.name, "source": source.model_dump(mode="json"),
            "backend": target.backend.value, "chip": _measured_on(target),
            "options": options.model_dump(mode="json"),
        }  # fmt: skip
        with self._lock:
            answer = self._ask(request, progress, "ranking", options.deadline, cancel, target.host)
            return Ranking.model_validate(answer["ranking"])

    def _twice(
        self, task: Task, source: Source, target: Target, options: VerifyOptions, progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Verdict:  # fmt: skip
        level = Trust.T3 if target.backend is Backend.CUDA else Trust.T2
        once = options.model_copy(update={"level": level})
        first = self.verify(task, source, target, options=once, progress=progress, cancel=cancel)
        if not first.passed:
            return first
        began = time.perf_counter()
        with Verifier() as fresh:
            again = fresh.verify(task, source, target, options=once, cancel=cancel)
        verdict = reproduced(first, again, time.perf_counter() - began)
        if progress is not None and len(verdict.stages) > len(first.stages):
            progress(verdict.stages[-1])
        return verdict

    def close(self) -> None:
        """End the judge and all its descendants. Safe to repeat; a later call starts a new judge."""
        for remote in self._remotes.values():
            remote.close()
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.close()
        if process is not None:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # what a killed judge leaves behind
            folders.clear(self._root)

    def rest(self, after: float) -> None:
        """End a judge of this machine (about 0.5 GB) that was idle for ``after`` seconds. The next call starts
        another."""
        if self._lock.acquire(blocking=False):
            try:
                if self._process is not None and not self._remotes and time.monotonic() - self._asked >= after:
                    self.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._finalizer()

    @property
    def judge_pid(self) -> int | None:
        """The judge's process; None while there is none."""
        return self._process.pid if self._process else None

    def relay(self, request: dict[str, Any], wanted: str, deadline: float, progress: Progress | None) -> dict[str, Any]:
        """The judge's message ``wanted`` for a request from another machine's client; raises what the judge raises."""
        with self._lock:
            return self._ask(request, progress, wanted, deadline)

    def _ask(
        self, request: dict[str, Any], progress: Progress | None, wanted: str, deadline: float,
        cancel: threading.Event | None = None, host: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        if host:
            remote = self._remotes[host] = self._remotes.get(host) or Remote(host)
            return remote.ask(request, progress, wanted, deadline, self.patience, cancel)
        channel = self._start()
        # where judges take turns, a judge is silent during the turns of the others
        seconds = deadline + self.patience + (TURNS if turns.environment() else 0.0)
        stages = _Stages(progress)
        message = None
        try:
            channel.settimeout(seconds)
            wire.send(channel, request)
            message = self._answer(channel, wanted, stages, seconds, cancel)
        except TimeoutError:
            if self._process is not None:
                raise self._silenced(seconds, stages.last) from None
        except (OSError, wire.Malformed):
            pass  # reported below as a judge that has ended
        except KernellabError:
            raise
        except BaseException:
            # an interrupted caller must not read this answer as that of its next request
            self.close()
            raise
        finally:
            self._asked = time.monotonic()
        if message is None:
            raise self._ended()
        return message

    def _answer(
        self, channel: socket.socket, wanted: str, stages: _Stages, seconds: float, cancel: threading.Event | None
    ) -> dict[str, Any] | None:
        """The judge's message ``wanted``; None if the judge has ended. Raises the error that it reports."""
        while True:
            if cancel is not None:
                self._hear(channel, cancel, seconds)
            message = wire.receive(channel)
            if message is None or wanted in message:
                return message
            if "progress" in message:
                stages.report(StageResult.model_validate(message["progress"]))
            elif "error" in message:
                if message.get("trace"):
                    # its own fault: its state is now unknown
                    self.close()
                raise raised(message)

    def _silenced(self, seconds: float, last: str) -> VerifierError:
        """End a judge that said nothing for ``seconds`` after its stage ``last``. Returns the error that says so."""
        if self._process is not None:
            self._process.kill()
        self.close()
        return VerifierError(
            silence(seconds, last),
            "Verify again (a new judge starts automatically); where it stays silent on a machine with nothing else "
            "to do, choose smaller sizes, and see that the reference ends at them.",
        )

    def _ended(self) -> VerifierError:
        """Clear up after a judge that has ended. Returns the error that says how."""
        code = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(2)
        self.close()
        how = f" by {signal.Signals(-code).name}" if code is not None and code < 0 else ""
        return VerifierError(
            f"The judge process was ended{how} in the middle of a verification.",
            "There is no verdict; verify again (a new judge starts automatically).",
        )

    def _hear(self, channel: socket.socket, cancel: threading.Event, patience: float) -> None:
        """Wait until the judge sends something.

        Raises:
            VerifierError: ``cancel`` was set; the judge is gone.
            TimeoutError: it was silent for ``patience`` seconds.
        """
        until = time.monotonic() + patience
        while not cancel.is_set():
            if wait([channel], _LOOK):
                return
            if time.monotonic() > until:
                raise TimeoutError
        if self._process is not None:
            self._process.kill()
        self.close()
        raise VerifierError("The verification was stopped.", "There is no verdict; verify again.")

    def _start(self) -> socket.socket:
        if sys.platform != "linux":
            # workers are controlled and timed by namespaces, event and process descriptors, and /proc
            raise VerifierError(
                f"This system ({sys.platform}) judges no kernels: the sandbox and its clock need Linux.",
                "Name a machine with Linux (--target ssh://HOST), or run kernellab in a container.",
            )
        if self._process is not None and self._process.poll() is not None:
            self.notice = "The judge had ended and was started again."
            self.close()
        if self._process is None or self._channel is None:
            if not os.path.isdir(self._root):
                self._finalizer()
                self._own_folder()
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    module_command("kernellab.verifier.judge.main", str(theirs.fileno()), self._root),
                    env=clean_environment(
                        {
                            **ALLOCATOR, "TMPDIR": self._root, "HOME": self._root, "OMP_WAIT_POLICY": "PASSIVE",
                            CACHE: _cache_folder(), **turns.environment(),
                        }
                    ),
                    pass_fds=(theirs.fileno(), self._held), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )  # fmt: skip
            self._channel = ours
        return self._channel

    def _own_folder(self) -> None:
        """Create a folder for the judge's files, locked for as long as this process or the judge lives."""
        self._root, self._held = folders.held(_PREFIX)
        if os.getuid() == 0:
            # a worker of another user must pass through it to its own folder, which no other user may enter
            os.chmod(self._root, 0o711)
        self._finalizer = weakref.finalize(self, _forget, self._root, self._held)


def verify(
    task: Task,
    source: Source,
    target: Target,
    *,
    options: VerifyOptions | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Verify once with a separate judge; use a :class:`Verifier` for several verifications."""
    with Verifier() as verifier:
        return verifier.verify(task, source, target, options=options, progress=progress)


def _measured_on(target: Target) -> str:
    """The chip of this machine: a design may target another one, whose name does not say where it ran."""
    if target.backend is not Backend.CPU:
        return target.chip.name
    from kernellab.dsls.machine import cpu_chip

    return cpu_chip().name


def _close(reference: weakref.ref[Verifier]) -> None:
    verifier = reference()
    if verifier is not None:
        with contextlib.suppress(OSError):
            verifier.close()


def _forget(folder: str, held: int) -> None:
    folders.clear(folder)
    sandbox.remove(folder)
    os.close(held)


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "kernellab")
