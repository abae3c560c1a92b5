"""Waits for a session, in a script or a cell, until it ends or needs a person."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kernellab.errors import KernellabError, SessionError, lasting
from kernellab.session.record.records import SessionStatus, Turn, TurnState
from kernellab.session.record.view import turn_line

if TYPE_CHECKING:
    from kernellab.session.memory_export import SessionMemory
    from kernellab.session.record.state import State
    from kernellab.session.trace import Trace


#: Interval at which a wait looks whether the session rests, besides at its changes; chosen, not measured.
_POLL_SECONDS = 0.2


class _Left:
    """A short traceback in a notebook instead of the waiting code's frames."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}", "  -> Wait again with await, or end it with %kernel_stop."]


class Interrupted(_Left, KeyboardInterrupt):
    """Ctrl-C, or an interrupt of the kernel, ended the wait; the session continues."""


class Abandoned(_Left, asyncio.CancelledError):
    """A task that awaited a session was cancelled, as an interrupt does in a cell; the session continues."""


class Awaited(Protocol):
    """The interface that waiting needs from a session."""

    @property
    def name(self) -> str: ...

    @property
    def turns(self) -> tuple[Turn, ...]: ...

    @property
    def state(self) -> State: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def resting(self) -> bool:
        """Whether it has ended or waits for a person."""

    @property
    def failure(self) -> KernellabError | None: ...

    @property
    def memory(self) -> SessionMemory: ...

    def subscribe(self, callback: Callable[[Any], None]) -> Callable[[], None]: ...


def wait(session: Awaited, changed: threading.Condition, timeout: float | None, on_change: Callable[[], None]) -> None:
    """Block until the session rests; call ``on_change`` after each change.

    Raises:
        TaskError, TargetError, JournalError: the error that ended the session.
        SessionError: it was still running after ``timeout`` seconds.
        Interrupted: a KeyboardInterrupt was raised.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        with changed:
            while not session.resting:
                seconds_left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
                if seconds_left <= 0:
                    message = f"{session.name} was still running after {lasting(timeout or 0)}."
                    raise SessionError(message, "Wait longer, or stop it.")
                changed.wait(seconds_left)
                on_change()
    except KeyboardInterrupt:
        raise Interrupted(_left(session)) from None
    on_change()
    if session.failure is not None:
        raise session.failure


async def rest(session: Awaited) -> None:
    """Wait like :func:`wait`, on the caller's event loop."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def poke(_: object) -> None:
        loop.call_soon_threadsafe(changed.set)

    end = session.subscribe(poke)
    try:
        with _cancelled_by_ctrl_c(loop):
            while not session.resting:
                try:
                    await asyncio.wait_for(changed.wait(), _POLL_SECONDS)
                except asyncio.TimeoutError:
                    continue
                changed.clear()
    except asyncio.CancelledError:
        raise Abandoned(_left(session)) from None
    finally:
        end()
    if session.failure is not None:
        raise session.failure


@contextmanager
def _cancelled_by_ctrl_c(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make Ctrl-C cancel the cell: in a terminal's IPython it would otherwise break the event loop and show its frames.

    A Jupyter kernel and ``asyncio.run`` have such handlers already.
    """
    task = asyncio.current_task()
    has_handler = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if task is None or has_handler or _shell() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    except NotImplementedError:  # this kind of loop has no signal handlers
        yield
        return
    try:
        yield
    finally:
        # this restores the default handler
        loop.remove_signal_handler(signal.SIGINT)


def _left(session: Awaited) -> str:
    return f"no longer waiting for {session.name}, which continues."


def why_missing(session: Awaited, what: str) -> SessionError:
    """Why the session has no ``what`` yet, and what brings it."""
    state, name = session.state, session.name
    if not session.resting:
        wait = f"Wait for it: `await {name}` in a cell, `wait()` in a script."
        return SessionError(f"{name} is still running and has no {what} yet.", wait)
    question = state.question
    if state.status is SessionStatus.WAITING and question is not None:
        return SessionError(f"{name} has no {what} yet: it waits for you. {question.text}", question.answer)
    may_continue = state.status in (SessionStatus.PAUSED, SessionStatus.STOPPED) and state.unanswered
    remedy = "Go on with run()." if may_continue else "Edit its sketch or code, or redirect it."
    remedy = "Use it there, or stop it there first." if state.elsewhere else remedy
    return SessionError(f"{name} is {state.status_words} and has no {what}. {state.reason}", remedy)


class ProgressPrinter:
    """Prints, once each: the line of each ended turn, its agent's requests with their answers, its notes, and why the
    memory is not used."""

    def __init__(self, session: Awaited) -> None:
        self._session = session
        self._printed: set[str] = set()

    def __call__(self) -> None:
        for turn in self._session.turns:
            for step in self._session.trace.steps(turn.id):
                if step.kind in ("permission", "note"):
                    step_text = f"{step.title}: {step.result}" if step.result else step.title
                    self._once(
                        f"{turn.id} {step.started} {step.title}", f"turn {turn.number} {turn.role.value}: {step_text}"
                    )
            if turn.state is not TurnState.RUNNING:
                self._once(turn.id, turn_line(turn))
        fault = self._session.memory.fault
        if fault:
            self._once("memory", f"continues without the memory. {fault}")

    def _once(self, id: str, line: str) -> None:
        if id not in self._printed:
            self._printed.add(id)
            # a notebook shows stderr as a red box; scripts and commands print progress there
            print(f"{self._session.name} {line}", file=sys.stdout if _in_notebook() else sys.stderr)


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process's code. An import of its package does not show that."""
    return getattr(_shell(), "kernel", None) is not None


def _shell() -> Any:
    """The IPython shell that runs this process's code; None in a script."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
