"""The judge of another machine: requests travel by ssh or through Dask, in the form that the local judge gets.

``ssh://[USER@]HOST[:PORT][/PYTHON]`` runs :mod:`kernellab.verifier.judge.afar` there, which answers on its standard
output; ``dask://HOST:PORT`` sends each request to a worker that offers ``device``. A request changes nothing, so it is
repeated if its connection was lost.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import wait
from typing import Any, Protocol

from pydantic import TypeAdapter

from kernellab import errors
from kernellab.content import installed
from kernellab.errors import EvolveError, JudgeLost, KernellabError, TargetError, VerifierError
from kernellab.records import StageResult
from kernellab.target import Target
from kernellab.verifier.protocol import wire

#: the resource that a Dask worker offers for each device on which it may measure
DEVICE = "device"
#: the module that answers there
_SERVER = "kernellab.verifier.judge.afar"
#: seconds that a request waits for a lost connection, and between two attempts
WAIT, _PAUSE = 300.0, 1.0
#: number of times that a request is repeated after its connection ended while it was judged
_CUTS = 2
#: seconds between two checks for cancellation
_LOOK = 0.1
#: seconds to connect by ssh, and to a Dask scheduler
_SSH_CONNECT, _DASK_CONNECT = 15, 10.0
#: seconds for a worker's finished answer to arrive from Dask
_DASK_RESULT = 15
#: seconds for a machine to report what it is
_DETECT = 180.0
#: prefix of the address of a judge behind ssh
SSH = "ssh://"
_SSH = re.compile(SSH + r"((?:[\w.+][\w.+-]*@)?[\w.][\w.-]*)(?::(\d+))?(/[\w./+-]+)?")
_DASK = re.compile(r"dask://([\w.][\w.-]*:\d+)")
_FORMS = "Write ssh://HOST, ssh://USER@HOST:PORT/PATH/TO/PYTHON or dask://HOST:8786."


class Lost(Exception):
    """There is no connection, or it was lost."""


class _Link(Protocol):
    def ask(self, message: dict[str, Any], heard: _Heard, progress: _Progress) -> dict[str, Any]: ...

    def close(self) -> None: ...


_Progress = Callable[[StageResult], None] | None


class _Heard:
    """Called while waiting, and with ``alive`` when the other end shows that it works.

    Raises:
        VerifierError: ``cancel`` was set, or the other end was silent for ``seconds``.
    """

    def __init__(self, where: str, seconds: float, cancel: threading.Event | None) -> None:
        self._where, self._seconds, self._cancel = where, seconds, cancel
        self._until = time.monotonic() + seconds

    def __call__(self, alive: bool = False) -> None:
        if alive:
            self._until = time.monotonic() + self._seconds
        if self._cancel is not None and self._cancel.is_set():
            raise VerifierError("The verification was stopped.", "There is no verdict; verify again.")
        if time.monotonic() > self._until:
            raise VerifierError(
                f"The judge at {self._where} said nothing for {self._seconds:.0f} s.",
                "See that a device is free there, and verify again.",
            )


class Remote:
    """The judge of one machine, or those of a cluster, at ``where``. Handles one request at a time.

    Raises:
        TargetError: ``where`` has no known form.
    """

    def __init__(self, where: str) -> None:
        check(where)
        self.where = where
        self._link: _Link | None = None
        #: has it answered once, so that a lost connection is worth waiting for?
        self._has_answered = False
        self._client = uuid.uuid4().hex

    def ask(
        self, request: dict[str, Any], progress: _Progress, wanted: str, deadline: float, patience: float,
        cancel: threading.Event | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the remote judge's answer, with its ``host``. A lost connection is re-established for up to WAIT
        seconds; ``deadline`` and ``patience`` (seconds) start again at each sign of life.

        Raises:
            VerifierError: no connection, no answer, or cancelled; and what the judge there raises.
        """
        message = {
            "version": installed(), "client": self._client, "request": request, "wanted": wanted, "deadline": deadline,
        }  # fmt: skip
        try:
            answer = self._ask_until_answered(message, _Heard(self.where, deadline + patience, cancel), progress)
        except BaseException:
            # a late answer must not be read as the answer to the next request
            self.close()
            raise
        if "error" in answer:
            raise raised(answer)
        return answer

    def _ask_until_answered(self, message: dict[str, Any], heard: _Heard, progress: _Progress) -> dict[str, Any]:
        """Ask, and connect again if the connection is lost. Raises VerifierError."""
        lost_at: float | None = None
        cuts = 0
        while True:
            is_judging = False
            try:
                if self._link is None:
                    self._link = _open(self.where)
                    self._link.ask({**message, "request": {"op": "hello"}}, heard, None)
                    self._has_answered, lost_at = True, None
                is_judging = True
                return self._link.ask(message, heard, progress)
            except Lost as lost:
                self.close()
                cuts += is_judging
                lost_at = time.monotonic() if lost_at is None else lost_at
                self._require_hope(lost, cuts, lost_at)
                heard(alive=True)  # the repeated request gets its full time
                time.sleep(_PAUSE)
            except wire.Malformed as fault:
                raise VerifierError(
                    f"What answers at {self.where} is no judge: it sent {fault}.",
                    "See that the shell there prints nothing of itself to what ssh runs.",
                ) from None

    def _require_hope(self, lost: Lost, cuts: int, lost_at: float) -> None:
        """Raises VerifierError if a request was cut off too often, or the connection was lost for too long."""
        if cuts > _CUTS:
            raise VerifierError(
                f"The connection to {self.where} ended {cuts} times during this request: {lost}",
                "See that machine's memory and logs, and ask again.",
            ) from None
        if not self._has_answered or time.monotonic() - lost_at > WAIT:
            raise JudgeLost(
                f"There is no connection to {self.where}: {lost}",
                "See that the machine is up, and ask again: nothing else is lost.",
            ) from None

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def check(where: str) -> None:
    """Raises TargetError if ``where`` has no known form."""
    if not (_SSH.fullmatch(where) or _DASK.fullmatch(where)):
        raise TargetError(f"There is no target {where!r}.", _FORMS)


def target_at(where: str, dsl: str | None = None, chip: str | None = None) -> Target:
    """The Target for ``dsl`` on the machine ``where``; "" is this machine. Raises TargetError, VerifierError."""
    if not where:
        from kernellab.dsls.machine import detect_target

        return detect_target(dsl, chip)
    remote = Remote(where)
    try:
        answer = remote.ask({"op": "target", "dsl": dsl, "chip": chip}, None, "target", _DETECT, 0.0)
    finally:
        remote.close()
    return TypeAdapter(Target).validate_python({**answer["target"], "host": where})


def _open(where: str) -> _Link:
    """Open a link to ``where``. Raises Lost."""
    return _Ssh(where) if where.startswith("ssh:") else _Dask(where)


class _Ssh:
    """A kernellab process at the other end of ssh, as long as the connection lasts."""

    def __init__(self, where: str) -> None:
        match = _SSH.fullmatch(where)
        assert match is not None
        host, port, python = match.groups()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the link)
        self._channel, theirs = socket.socketpair()
        # only a key or an agent may answer, no prompt; a lost machine is detected within 15 s
        options = ["BatchMode=yes", f"ConnectTimeout={_SSH_CONNECT}", "ServerAliveInterval=5", "ServerAliveCountMax=3"]
        there = f"exec {shlex.quote(python or 'python3')} -m {_SERVER}"
        command = ["ssh", "-T", *(word for o in options for word in ("-o", o)), *(["-p", port] if port else []), host]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*command, there],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._errors.fileno(),
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise VerifierError("This machine has no ssh.", "Install OpenSSH's client.") from None

    def ask(self, message: dict[str, Any], heard: _Heard, progress: _Progress) -> dict[str, Any]:
        try:
            wire.send(self._channel, message)
            while True:
                while not wait([self._channel], _LOOK):
                    heard()
                answer = wire.receive(self._channel)
                if answer is None:
                    raise Lost(self._why())
                heard(alive=True)
                if "progress" not in answer:
                    return answer
                if progress is not None:
                    progress(StageResult.model_validate(answer["progress"]))
        except OSError:
            raise Lost(self._why()) from None

    def close(self) -> None:
        self._channel.close()
        with suppress(OSError):
            self._process.terminate()
        self._process.wait()
        self._errors.close()

    def _why(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "the connection was closed")


class _Dask:
    """Sends each request to a worker of a cluster; Dask moves the requests of a worker that died to another."""

    def __init__(self, where: str) -> None:
        match = _DASK.fullmatch(where)
        assert match is not None
        try:
            self._client = connected(match[1])
        except EvolveError as error:
            raise Lost(f"{error.message} {error.remedy}".strip()) from None

    def ask(self, message: dict[str, Any], heard: _Heard, progress: _Progress) -> dict[str, Any]:
        topic, alive = f"kernellab-{uuid.uuid4().hex}", threading.Event()
        try:
            self._client.subscribe_topic(topic, lambda _: alive.set())
            future = self._client.submit(
                import_module(_SERVER).at_worker, message, topic, pure=False, retries=1, resources={DEVICE: 1}
            )
            while not future.done():
                if self._client.status != "running":
                    raise Lost("the scheduler is gone")
                is_alive = alive.is_set()
                if is_alive:
                    alive.clear()
                heard(is_alive)
                time.sleep(_LOOK)
            answer: dict[str, Any] = future.result(timeout=_DASK_RESULT)
        except (Lost, KernellabError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # Dask's exceptions have no stable base class
            if type(error).__name__ == "KilledWorker":
                raise VerifierError(
                    "Several workers died while they judged it.", "See the workers' logs, and verify again."
                ) from None
            raise Lost(f"the cluster failed ({type(error).__name__}: {error})") from None
        finally:
            with suppress(Exception):  # the client may be gone
                self._client.unsubscribe_topic(topic)
        for part in answer.get("parts", ()):
            if progress is not None:
                progress(StageResult.model_validate(part))
        return answer

    def close(self) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self._client.close()


def connected(address: str) -> Any:
    """A client of the Dask scheduler at ``HOST:PORT``. Raises EvolveError."""
    try:
        client: Any = import_module("distributed").Client
    except ImportError as error:
        raise EvolveError(
            f"A cluster needs {error.name}, which is not installed.", "pip install 'kernellab[cluster]'."
        ) from None
    try:
        return client(f"tcp://{address}", timeout=_DASK_CONNECT)
    except OSError as error:
        raise EvolveError(
            f"No Dask scheduler answers at {address}: {error}", "Start one with `dask scheduler`."
        ) from None


def raised(message: dict[str, Any]) -> KernellabError:
    """The error that a judge's message describes."""
    error_class = getattr(errors, str(message["error"]), None)
    kind = error_class if isinstance(error_class, type) and issubclass(error_class, KernellabError) else VerifierError
    error = kind(str(message.get("message", "")), str(message.get("remedy", "")))
    if message.get("trace"):
        # like add_note, which needs Python 3.11
        error.__notes__ = [str(message["trace"])]
    return error
