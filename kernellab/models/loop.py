"""The process's single thread for model traffic: an asyncio loop, its connections and the limits of each endpoint.

Roles run on worker threads and block; all socket waits run here, so that the limits are shared and a cancellation does
not depend on the server. A connection lasts one request.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ipaddress
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from kernellab.models.keys import scrub_logs

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from kernellab.models.settings import Endpoint

T = TypeVar("T")


@dataclass
class Line:
    """The shared state of requests to one address. Used only on the loop."""

    client: AsyncOpenAI
    slots: asyncio.Semaphore
    #: The loop's time until which a rate limit applies.
    quiet_until: float = 0.0


class Loop:
    """The thread of the asyncio loop, and the connections per endpoint."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        scrub_logs()
        self._lines: dict[tuple[object, ...], Line] = {}
        self.thread = threading.Thread(target=self._run, name="kernellab-models", daemon=True)
        self.thread.start()
        atexit.register(self._close)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work``, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def line(self, endpoint: Endpoint, concurrency: int, connect_s: float) -> Line:
        """Return the line to ``endpoint``. Call this on the loop."""
        name = (endpoint.base_url, endpoint.key, concurrency, connect_s)
        if name not in self._lines:
            self._lines[name] = Line(_client(endpoint, connect_s), asyncio.Semaphore(concurrency))
        return self._lines[name]

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _close(self) -> None:
        if self.pid != os.getpid() or not self.thread.is_alive():
            return
        with contextlib.suppress(Exception):  # the interpreter is exiting: errors cannot be reported
            self.submit(self._leave()).result(1)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1)
        if not self.thread.is_alive():
            self.loop.close()

    async def _leave(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for line in self._lines.values():
            await line.client.close()


def _client(endpoint: Endpoint, connect_s: float) -> AsyncOpenAI:
    import openai

    limits = openai.DEFAULT_CONNECTION_LIMITS
    return openai.AsyncOpenAI(
        # the package requires a key; a server without one ignores it
        api_key=endpoint.key or "none",
        base_url=endpoint.base_url,
        # reads are timed elsewhere: between tokens, not between bytes
        timeout=openai.Timeout(None, connect=connect_s),
        # its retries handle neither a deadline nor a broken stream
        max_retries=0,
        # a prompt and a key are sent only to the configured address,
        # and a local address needs no proxy
        http_client=openai.DefaultAsyncHttpxClient(
            follow_redirects=False,
            trust_env=not _is_here(endpoint.base_url),
            # a session that ends leaves no connection open; a new one is cheap compared with a reply
            limits=type(limits)(max_connections=limits.max_connections, max_keepalive_connections=0),
        ),
    )


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


_LOOP: Loop | None = None
_STARTING = threading.Lock()


def loop() -> Loop:
    """Return the process's loop, started on first use and again after a fork."""
    global _LOOP
    with _STARTING:
        if _LOOP is None or _LOOP.pid != os.getpid() or not _LOOP.thread.is_alive():
            _LOOP = Loop()
        return _LOOP
