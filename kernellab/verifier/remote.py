"""The judge of another machine: requests travel as the local judge gets them, by ssh or through Dask.

``ssh://[USER@]HOST[:PORT][/PYTHON]`` runs :mod:`kernellab.verifier.judge.afar` there, which answers on its standard
output; ``dask://HOST:PORT`` gives each request to a worker that offers ``device``. A request changes nothing, so that
one whose connection was lost is made again when there is a connection.
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

#: what a Dask worker offers for each device that it may time on
DEVICE = "device"
#: what answers there
_SERVER = "kernellab.verifier.judge.afar"
#: seconds that a request waits for a connection that was lost, and between two tries
WAIT, _PAUSE = 300.0, 1.0
#: times that a request is made again after its connection ended while it was judged
_CUTS = 2
#: seconds between two looks at a cancelled request; until ssh is through; until a machine has said what it is
_LOOK, _THROUGH, _DETECT = 0.1, 15, 180.0
#: how the place of a judge behind ssh begins
SSH = "ssh://"
_SSH = re.compile(SSH + r"((?:[\w.+][\w.+-]*@)?[\w.][\w.-]*)(?::(\d+))?(/[\w./+-]+)?")
_DASK = re.compile(r"dask://([\w.][\w.-]*:\d+)")
_FORMS = "Write ssh://HOST, ssh://USER@HOST:PORT/PATH/TO/PYTHON or dask://HOST:8786."


class Lost(Exception):
    """There is no connection (any more)."""


class _Link(Protocol):
    def ask(self, message: dict[str, Any], heard: _Heard, progress: _Progress) -> dict[str, Any]: ...

    def close(self) -> None: ...


_Progress = Callable[[StageResult], None] | None


class _Heard(Protocol):
    """Called while one waits, and with ``alive`` when the other end shows that it works. Raises VerifierError."""

    def __call__(self, alive: bool = False) -> None: ...


class Remote:
    """One machine's judge, or those of a cluster, at ``where``. One request at a time.

    Raises:
        TargetError: ``where`` has no known form.
    """

    def __init__(self, where: str) -> None:
        check(where)
        self.where = where
        self._link: _Link | None = None
        #: it has answered once, so that a connection that ends is worth waiting for
        self._known = False
        self._client = uuid.uuid4().hex

    def ask(
        self, request: dict[str, Any], progress: _Progress, wanted: str, deadline: float, patience: float,
        cancel: threading.Event | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What the judge there answers, with its ``host``. A connection that ends meanwhile is made again, for WAIT
        seconds; ``deadline`` and ``patience`` (seconds) begin again at each sign of life.

        Raises:
            VerifierError: no connection, no answer, or it was cancelled; and what the judge there raises.
        """
        who = {"version": installed(), "client": self._client}
        message = {**who, "request": request, "wanted": wanted, "deadline": deadline}
        until = time.monotonic() + deadline + patience
        lost_at, cut = 0.0, 0

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
                    found = self._link.ask(message, heard, progress)
                    break
                except Lost as lost:
                    self.close()
                    cut += judging
                    if cut > _CUTS:
                        raise VerifierError(
                            f"The connection to {self.where} ended {cut} times during this request: {lost}",
                            "See that machine's memory and logs, and ask again.",
                        ) from None
                    now = time.monotonic()
                    lost_at = lost_at or now
                    if not self._known or now - lost_at > WAIT:
                        raise JudgeLost(
                            f"There is no connection to {self.where}: {lost}",
                            "See that the machine is up, and ask again: nothing else is lost.",
                        ) from None
                    heard(alive=True)  # the next request has its whole time
                    time.sleep(_PAUSE)
                except wire.Malformed as fault:
                    raise VerifierError(
                        f"What answers at {self.where} is no judge: it sent {fault}.",
                        "See that the shell there prints nothing of itself to what ssh runs.",
                    ) from None
        except BaseException:
            # an answer that comes later is not that to the next request
            self.close()
            raise
        if "error" in found:
            raise raised(found)
        return found

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def check(where: str) -> None:
    """Raises TargetError: it has no known form."""
    if not (_SSH.fullmatch(where) or _DASK.fullmatch(where)):
        raise TargetError(f"There is no target {where!r}.", _FORMS)


def target_at(where: str, dsl: str | None = None, chip: str | None = None) -> Target:
    """The Target for ``dsl`` on the machine ``where``; "" is this one. Raises TargetError, VerifierError."""
    if not where:
        from kernellab.dsls.machine import detect_target

        return detect_target(dsl, chip)
    remote = Remote(where)
    try:
        found = remote.ask({"op": "target", "dsl": dsl, "chip": chip}, None, "target", _DETECT, 0.0)
    finally:
        remote.close()
    return TypeAdapter(Target).validate_python({**found["target"], "host": where})


def _open(where: str) -> _Link:
    """Raises Lost."""
    return _Ssh(where) if where.startswith("ssh:") else _Dask(where)


class _Ssh:
    """A process of kernellab at the other end of ssh, for as long as the connection."""

    def __init__(self, where: str) -> None:
        found = _SSH.fullmatch(where)
        assert found is not None
        host, port, python = found.groups()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the link)
        self._channel, theirs = socket.socketpair()
        # a key or an agent answers, never a person; a machine that is gone is known within 15 s
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
                found = wire.receive(self._channel)
                if found is None:
                    raise Lost(self._why())
                heard(alive=True)
                if "progress" not in found:
                    return found
                if progress is not None:
                    progress(StageResult.model_validate(found["progress"]))
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
    """A worker of a cluster for each request; Dask gives that of a worker that died to another."""

    def __init__(self, where: str) -> None:
        found = _DASK.fullmatch(where)
        assert found is not None
        try:
            self._client = connected(found[1])
        except EvolveError as error:
            raise Lost(f"{error.message} {error.remedy}".strip()) from None

    def ask(self, message: dict[str, Any], heard: _Heard, progress: _Progress) -> dict[str, Any]:
        topic, alive = f"kernellab-{uuid.uuid4().hex}", threading.Event()
        try:
            self._client.subscribe_topic(topic, lambda _: alive.set())
            theirs = self._client.submit(
                import_module(_SERVER).at_worker, message, topic, pure=False, retries=1, resources={DEVICE: 1}
            )
            while not theirs.done():
                if self._client.status != "running":
                    raise Lost("the scheduler is gone")
                shown = alive.is_set()
                if shown:
                    alive.clear()
                heard(shown)
                time.sleep(_LOOK)
            found: dict[str, Any] = theirs.result(timeout=_THROUGH)
        except (Lost, KernellabError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # Dask's own have no stable base
            if type(error).__name__ == "KilledWorker":
                raise VerifierError(
                    "Several workers died while they judged it.", "See the workers' logs, and verify again."
                ) from None
            raise Lost(f"the cluster failed ({type(error).__name__}: {error})") from None
        finally:
            with suppress(Exception):  # the client may be gone
                self._client.unsubscribe_topic(topic)
        for part in found.get("parts", ()):
            if progress is not None:
                progress(StageResult.model_validate(part))
        return found

    def close(self) -> None:
        with suppress(Exception):  # a scheduler that is gone answers nothing
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
        return client(f"tcp://{address}", timeout=10)
    except OSError as error:
        raise EvolveError(
            f"No Dask scheduler answers at {address}: {error}", "Start one with `dask scheduler`."
        ) from None


def raised(message: dict[str, Any]) -> KernellabError:
    """The error of a judge's message."""
    named = getattr(errors, str(message["error"]), None)
    kind = named if isinstance(named, type) and issubclass(named, KernellabError) else VerifierError
    error = kind(str(message.get("message", "")), str(message.get("remedy", "")))
    if message.get("trace"):
        # as add_note does, which Python has from 3.11 on
        error.__notes__ = [str(message["trace"])]
    return error
