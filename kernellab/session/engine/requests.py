"""The requests of a person's thread, which the engine thread carries out in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kernellab.errors import KernellabError
from kernellab.session.engine.driver import Decision, Driver
from kernellab.session.engine.engine import Engine

#: seconds that a call waits for its decision to be in the journal; the engine may be slow while torch is imported
_ACKNOWLEDGE = 5.0


class Requests:
    """Those of one session; ``pending`` of them are not carried out yet."""

    def __init__(self, engine: Engine, driver: Driver) -> None:
        self._engine, self._driver = engine, driver
        self.pending = 0

    def decide(self, decision: Decision) -> None:
        """As :meth:`put`, for a decision, which the journal records."""
        self.put(lambda: self._driver.decide(decision))

    def later(self, request: Callable[[], None]) -> None:
        """Have ``request`` carried out; does not wait."""
        self._engine.call(request)

    def put(self, request: Callable[[], None]) -> None:
        """Wait until ``request`` is in the journal; on the engine thread only queue it. Raises what it raises."""
        done = threading.Event()
        problem: list[KernellabError] = []

        def carry_out() -> None:
            try:
                request()
            except KernellabError as error:
                problem.append(error)
                raise
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
