"""The process's single engine thread: an asyncio loop on which every session's driver runs.

Blocking work (a role, the gate, a verification) runs in separate daemon threads, so the loop and the interpreter's
exit never wait for it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import threading
import uuid
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.session.record.journal import LEASE_SECONDS, Journal

if TYPE_CHECKING:
    from kernellab.journal import Holder
    from kernellab.verifier import Verifier

T = TypeVar("T")
log = logging.getLogger("kernellab.session")


class Engine:
    """The engine thread. There is one per process; ``owner`` is its name in lease rows."""

    def __init__(self) -> None:
        self.owner = uuid.uuid4().hex
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="kernellab-engine", daemon=True)
        self._leased: dict[str, Journal] = {}
        self._verifier: Verifier | None = None
        self._more: list[Verifier] = []
        self._verifier_lock = threading.Lock()
        #: The connections of agents' programs that started themselves and use sessions here, until each is closed.
        self.agents: weakref.WeakSet[object] = weakref.WeakSet()
        #: Idle seconds after which a judge is ended: longer than its longest build without a request.
        self.judge_idle_seconds = 600.0
        #: One verification at a time: a timing needs the whole machine.
        self.verifying = threading.Lock()
        self.thread.start()
        atexit.register(self._close)

    @property
    def has_agents(self) -> bool:
        """Whether an agent's program that started itself uses sessions here: it runs while a kernel is judged."""
        return len(self.agents) > 0

    def submit(self, work: Coroutine[Any, Any, None]) -> None:
        """Start ``work`` on the loop, from any thread."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Run a quick function on the loop, from any thread."""
        self.loop.call_soon_threadsafe(function, *args)

    def run(self, function: Callable[[], T]) -> T:
        """Call ``function`` on the loop and return its result. Do not call on the engine thread."""
        done: Future[T] = Future()

        def body() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self.call(body)
        return done.result()

    @property
    def closing(self) -> bool:
        """Whether the process is ending, which cuts work off. A live non-daemon thread keeps the process alive."""
        return not any(thread.is_alive() and not thread.daemon for thread in threading.enumerate())

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the engine thread."""
        return threading.current_thread() is self.thread

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Call ``work`` in a separate daemon thread. Call this on the loop."""
        future: asyncio.Future[T] = self.loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def body() -> None:
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: the interpreter is exiting
                self.loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=body, name="kernellab-work", daemon=True).start()
        return future

    def verifier(self) -> Verifier:
        """Return the process's warm verifier, started on first use."""
        from kernellab.verifier import Verifier

        with self._verifier_lock:
            if self._verifier is None:
                self._verifier = Verifier().__enter__()
            return self._verifier

    def more_verifiers(self, count: int) -> list[Verifier]:
        """Return ``count`` additional verifiers, shared by all callers. Judges of one GPU build and check in parallel,
        and take turns to measure times."""
        from kernellab.verifier import Verifier

        with self._verifier_lock:
            while len(self._more) < count:
                self._more.append(Verifier().__enter__())
            return self._more[:count]

    def drop_verifier(self) -> None:
        """Close the verifier, so that the next verification starts a fresh one."""
        with self._verifier_lock:
            verifier, self._verifier = self._verifier, None
        if verifier is not None:
            verifier.__exit__(None, None, None)

    def hold(self, journal: Journal, session: str) -> Holder | None:
        """Take the session's lease and keep it alive. Return None on success, otherwise the holder."""
        if session in self._leased:
            return None
        holder = journal.acquire(session, self.owner)
        if holder is None:
            self._leased[session] = journal
        return holder

    def let_go(self, session: str) -> None:
        """Release the session's lease, if held."""
        journal = self._leased.pop(session, None)
        if journal is not None:
            journal.release(session, self.owner)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.create_task(self._heartbeat())
        self.loop.run_forever()

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for verifier in filter(None, (self._verifier, *self._more)):
                self.in_thread(functools.partial(verifier.rest, self.judge_idle_seconds))
            for session, journal in list(self._leased.items()):
                if journal.removed:  # the session's next event reports it
                    continue
                try:
                    journal.renew([session], self.owner)
                except Exception:  # the disk may be back at the next beat; appends report the error
                    log.exception("the lease of %s could not be renewed", session)

    def _close(self) -> None:
        for session in list(self._leased):
            # exiting: a lease that remains is taken over because its process is dead
            with contextlib.suppress(Exception):
                self.let_go(session)
        self.drop_verifier()
        for verifier in self._more:
            verifier.__exit__(None, None, None)
        asyncio.run_coroutine_threadsafe(self._leave(), self.loop)
        self.thread.join(1)

    async def _leave(self) -> None:
        """Cancel every task, so that none is pending when the loop is collected."""
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.loop.stop()


_ENGINE: Engine | None = None
_STARTING = threading.Lock()


def engine() -> Engine:
    """Return the process's engine, started on first use."""
    global _ENGINE
    with _STARTING:
        if _ENGINE is None or not _ENGINE.thread.is_alive():
            _ENGINE = Engine()
        return _ENGINE
