"""A person's requests, which the engine thread runs in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kernellab.errors import KernellabError, SessionError
from kernellab.session.engine.driver import Decision, Driver
from kernellab.session.engine.engine import Engine

log = logging.getLogger(__name__)

#: Seconds that a call waits for its decision to be in the journal; the engine may be slow while torch is imported.
_ACKNOWLEDGE = 5.0


class Requests:
    """The requests of one session; ``pending`` of them have not run yet."""

    def __init__(self, engine: Engine, driver: Driver) -> None:
        self._engine, self._driver = engine, driver
        self.pending = 0

    def decide(self, decision: Decision) -> None:
        """Like :meth:`put`, for a decision, which the journal records."""
        self.put(lambda: self._driver.decide(decision))

    def later(self, request: Callable[[], None]) -> None:
        """Run ``request`` on the engine thread; does not wait."""
        self._engine.call(request)

    def put(self, request: Callable[[], None]) -> None:
        """Wait until ``request`` is in the journal; on the engine thread, only queue it. Raises the request's error."""
        done = threading.Event()
        problem: list[KernellabError] = []

        def carry_out() -> None:
            try:
                request()
            except KernellabError as error:
                problem.append(error)
                raise
            except Exception as error:
                # nothing was written: a text that cannot be handled must not end the session that it is given to
                log.exception("a request to a session failed")
                problem.append(SessionError(f"That failed: {type(error).__name__}: {error}", "Nothing was changed."))
                raise problem[0] from error
            finally:
                self.pending -= 1
                done.set()

        self.pending += 1
        self._engine.call(self._driver.post, carry_out)
        if self._engine.is_here:
            return
        done.wait(_ACKNOWLEDGE)
        if problem:
            raise problem[0]
