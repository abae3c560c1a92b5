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
#: seconds: between two checks for cancellation; to connect by ssh; for a machine to report what it is
_LOOK, _THROUGH, _DETECT = 0.1, 15, 180.0
#: seconds to connect to a Dask scheduler
_CONNECT = 10.0
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


class _Heard(Protocol):
    """Called while waiting, and with ``alive`` when the other end shows that it works. Raises VerifierError."""

    def __call__(self, alive: bool = False) -> None: ...


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
        self._known = False
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
        who = {"version": installed(), "client": self._client}
        message = {**who, "request": request, "wanted": wanted, "deadline": deadline}
        until = time.monotonic() + deadline + patience
        lost_at, cuts = 0.0, 0

        def heard(alive: bool = False) -> None:
            nonlocal until
            if alive:
                until = time.monotonic() + deadline + patience
            if cancel is not None and cancel.is_set():
                raise VerifierError("The verification was stopped.", "There is no verdict; verify again.")
            if time.monotonic() > until:
                raise VerifierError(
                    f"The judge at {self.where} said nothing for {deadline + patience:.0f} s.",
                    "See that a device is free there, and verify again.",
                )

        try:
            while True:
                judging = False
                try:
                    if self._link is None:
                        self._link = _open(self.where)
                        self._link.ask({**message, "request": {"op": "hello"}}, heard, None)
                        self._known, lost_at = True, 0.0
                    judging = True
                    answer = self._link.ask(message, heard, progress)
                    break
                except Lost as lost:
                    self.close()
                    cuts += judging
                    if cuts > _CUTS:
                        raise VerifierError(
                            f"The connection to {self.where} ended {cuts} times during this request: {lost}",
                            "See that machine's memory and logs, and ask again.",
                        ) from None
                    now = time.monotonic()
                    lost_at = lost_at or now
                    if not self._known or now - lost_at > WAIT:
                        raise JudgeLost(
                            f"There is no connection to {self.where}: {lost}",
                            "See that the machine is up, and ask again: nothing else is lost.",
                        ) from None
                    heard(alive=True)  # the repeated request gets its full time
                    time.sleep(_PAUSE)
                except wire.Malformed as fault:
                    raise VerifierError(
                        f"What answers at {self.where} is no judge: it sent {fault}.",
                        "See that the shell there prints nothing of itself to what ssh runs.",
                    ) from None
        except BaseException:
            # a late answer must not be read as the answer to the next request
            self.close()
            raise
        if "error" in answer:
            raise raised(answer)
        return answer

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
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the link)
        self._channel, theirs = socket.socketpair()
        # only a key or an agent may answer, no prompt; a lost machine is detected within 15 s
        options = ["BatchMode=yes", f"ConnectTimeout={_THROUGH}", "ServerAliveInterval=5", "ServerAliveCountMax=3"]
        there = f"exec {shlex.quote(python or 'python3')} -m {_SERVER}"
        command = ["ssh", "-T", *(word for o in options for word in ("-o", o)), *(["-p", port] if port else []), host]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*command, there],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._said.fileno(),
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
        self._said.close()

    def _why(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
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
            answer: dict[str, Any] = future.result(timeout=_THROUGH)
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
        return client(f"tcp://{address}", timeout=_CONNECT)
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
