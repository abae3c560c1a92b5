"""A chat model at an OpenAI-compatible endpoint.

Reads are timed between tokens, and attempts are repeated here: the openai package's retries handle neither a deadline
nor a stream that breaks in the middle.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

from kernellab.errors import ModelError, ModelFault
from kernellab.models import faults
from kernellab.models.chat import THINKING, WAITING, ChatReply, ChatRequest, FunctionCall
from kernellab.models.dialect import dialect
from kernellab.models.exchanges import Finish, Usage
from kernellab.models.keys import scrub
from kernellab.models.ledger import added
from kernellab.models.loop import Line, loop
from kernellab.models.partial_reply import Partial, split_thinking
from kernellab.models.settings import Endpoint, ModelSettings, Price

#: Interval in seconds between checks for a cancellation and updates of the shown text.
_TICK_S = 0.05
#: Characters per requested token above which the server does not respect the limit.
_MOST_CHARS_A_TOKEN = 8
#: The packages below openai that send requests.
_TRANSPORTS = ("httpx", "httpx2", "httpcore", "httpcore2", "anyio", "ssl")
#: A stall has already cost a minute or more, so it is retried only once.
_STALL_RETRIES = 1


class EndpointModel:
    """One model at one endpoint. Safe to use from several threads; ``settings.concurrency`` requests at a time."""

    def __init__(self, endpoint: Endpoint, settings: ModelSettings) -> None:
        self.endpoint = endpoint
        self.settings = settings

    @property
    def name(self) -> str:
        return self.endpoint.model

    @property
    def price(self) -> Price | None:
        return self.settings.price(self.endpoint.model)

    @property
    def free(self) -> bool:
        return False

    @property
    def prompt_tokens(self) -> int | None:
        """The length of the longest prompt, from the settings."""
        return self.endpoint.prompt_tokens

    def __repr__(self) -> str:
        return f"EndpointModel({self.name!r} at {self.endpoint.host})"

    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """See :meth:`kernellab.models.ChatModel.ask`."""
        pending = _PendingRequest(self.endpoint, self.settings, request)
        future = loop().submit(pending.run())
        try:
            _wait(future, pending, cancel, on_text)
        except BaseException as error:
            future.cancel()
            if isinstance(error, ModelError):
                error.reply = pending.reply()
            raise
        try:
            return future.result()
        except ModelError as error:
            error.reply = pending.reply()
            raise


def _wait(
    future: Future[ChatReply],
    pending: _PendingRequest,
    cancel: threading.Event | None,
    on_text: Callable[[str], None] | None,
) -> None:
    """Wait until ``future`` is done, and show the text on this thread.

    Raises:
        ModelError: ``cancel`` was set.
    """
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    last_text = None
    while True:
        is_done = done.wait(_TICK_S)
        if on_text is not None:
            text = pending.visible()
            if text and text != last_text:
                last_text = text
                on_text(text)
        if is_done:
            return
        if cancel is not None and cancel.is_set():
            raise faults.cancelled()


class _Wait(NamedTuple):
    """Why an attempt waits, and until when (monotonic time)."""

    reason: str
    until: float


class _Refusal(NamedTuple):
    """A reply with an unsuccessful HTTP status, and its error. It may quote a key, so no frame that raises holds it."""

    error: ModelError
    status: int
    headers: Mapping[str, str]
    body: Any


class _Failure(NamedTuple):
    """An attempt's error, and the seconds that the server requests to wait."""

    error: ModelError
    pause: float | None = None


class _PendingRequest:
    """One request with all its attempts. ``run`` works on the loop; the caller's thread reads the other members."""

    def __init__(self, endpoint: Endpoint, settings: ModelSettings, request: ChatRequest) -> None:
        self.endpoint, self.settings, self.request = endpoint, settings, request
        self.partial = Partial(offered=bool(request.functions))
        self.attempts = 0
        self.spent = Usage()
        self.began = time.monotonic()
        self.deadline = float("inf")
        #: Time of the attempt's start, later of its last token.
        self.heard = 0.0
        #: What the next attempt waits for; None if none does.
        self.waits: _Wait | None = None

    def visible(self) -> str:
        if self.waits is not None:
            seconds_left = max(self.waits.until - time.monotonic(), 0)
            return scrub(f"{WAITING}{self.waits.reason} The next try is in {seconds_left:.0f} s.")
        text, thoughts = "".join(self.partial.pieces), "".join(self.partial.thoughts)
        answer, inline = split_thinking(text)
        return scrub(answer or (THINKING + (thoughts or inline) if thoughts or inline else ""))

    def reply(self, finish: Finish | None = None) -> ChatReply:
        """The reply so far: complete if ``finish`` is given, otherwise the partial reply for the record."""
        text, reasoning = self.partial.answer()
        model = self.partial.model or self.endpoint.model
        seconds = time.monotonic() - self.began
        usage = added(self.spent, self.partial.spent(self.request.messages, self.request.called))
        price = self.settings.price(self.endpoint.model) or self.settings.price(model)
        usd = price.of(usage) if price else None
        return ChatReply(
            text=scrub(text) or scrub(self.partial.refusal),
            reasoning=scrub(reasoning),
            finish=finish or Finish.ERROR,
            usage=usage.model_copy(update={"usd": usd, "seconds": seconds}),
            model=scrub(model),
            seconds=seconds,
            attempts=max(self.attempts, 1),
            warning=faults.without(self.endpoint, dialect(self.endpoint).left_out(self.endpoint)),
            calls=tuple(
                FunctionCall(call.id or f"call-{slot}", call.name, call.arguments)
                for slot, call in self.partial.calls.items()
            ),
        )

    async def run(self) -> ChatReply:
        await asyncio.to_thread(importlib.import_module, "openai")  # takes a second the first time
        line = loop().line(self.endpoint, self.settings.concurrency, self.settings.connect_s)
        retries = stalls = 0
        while True:
            async with line.slots:
                if self.deadline == float("inf"):  # waiting for other requests does not count
                    self.deadline = time.monotonic() + self.settings.total_s
                await self._quiet(line)
                failure = await self._attempt(line)
            if failure is None:
                return self.reply(self.partial.ending())
            stalls += failure.error.kind is ModelFault.STALLED
            if retries >= self.settings.retries or not self._may_succeed(failure.error, stalls):
                raise failure.error
            await self._pause(failure, retries, line)
            retries += 1
            self.spent = added(self.spent, self.partial.spent(self.request.messages, self.request.called))
            self.partial = Partial(offered=self.partial.offered)

    def _may_succeed(self, error: ModelError, stalls: int) -> bool:
        """Whether repeating the same request now may succeed."""
        transient = (ModelFault.NETWORK, ModelFault.SERVER, ModelFault.RATE_LIMIT)
        is_transient = error.kind in transient or (error.kind is ModelFault.STALLED and stalls <= _STALL_RETRIES)
        return is_transient and error.resumable and time.monotonic() < self.deadline

    async def _attempt(self, line: Line) -> _Failure | None:
        """One attempt, repeated at once for each part of the request that the server does not support; None for a
        complete reply in ``partial``."""
        learned: set[str] = set()
        endpoint_dialect = dialect(self.endpoint)
        while True:
            self.attempts += 1
            body = endpoint_dialect.body(self.request, self.endpoint)
            outcome = await self._once(line, body)
            if not isinstance(outcome, _Refusal):
                return _Failure(outcome) if outcome is not None else None
            error, words = outcome.error, faults.words_of(outcome.body)
            part = endpoint_dialect.learn(error, outcome.status, faults.param_of(outcome.body), words, body)
            if part is None:
                if error.kind is ModelFault.CONFIG:
                    endpoint_dialect.forget(learned)
                return _Failure(error, faults.asked_pause(outcome.headers))
            learned.add(part)

    async def _once(self, line: Line, body: dict[str, Any]) -> _Refusal | ModelError | None:
        """One HTTP request; None for a complete reply."""
        import openai

        try:
            await self._in_time(self._read(line, body))
            return self._incomplete()
        except ModelError as error:
            return error
        except openai.APIStatusError as error:
            reply_body = error.body if error.body is not None else error.response.text
            status, headers = error.response.status_code, error.response.headers
            fault = faults.from_status(status, reply_body, headers, self.endpoint)
            return _Refusal(fault, status, headers, reply_body)
        except openai.APIConnectionError as error:
            return self._broken(error)
        except openai.APIError as error:  # an error inside the stream
            return faults.from_event(error.body or error.message, self.endpoint)
        except (json.JSONDecodeError, UnicodeError):
            return faults.garbage(self.endpoint, "something that is not JSON")
        except Exception as error:
            if type(error).__module__.split(".")[0] not in _TRANSPORTS:
                raise
            return self._broken(error)  # older openai packages raise these while reading a stream

    async def _in_time(self, work: Coroutine[Any, Any, None]) -> None:
        """Await ``work`` as long as tokens arrive in time.

        Raises:
            ModelError: the reply stalled.
        """
        settings = self.settings
        self.heard = time.monotonic()
        reading = asyncio.ensure_future(work)
        try:
            while not reading.done():
                patience = settings.stall_s if self.partial.chars else settings.first_token_s
                seconds_left = min(self.heard + patience, self.deadline) - time.monotonic()
                if seconds_left <= 0:
                    raise self._late()
                # not wait_for, which before Python 3.12 loses a cancellation when the work ends at the same time
                # checked again after stall_s: the first token may have arrived meanwhile
                await asyncio.wait({reading}, timeout=min(seconds_left, settings.stall_s))
            reading.result()
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # retrieved, so that asyncio does not report it

    async def _read(self, line: Line, body: dict[str, Any]) -> None:
        """Fold the stream into ``partial``."""
        stream = await line.client.chat.completions.create(**body)
        try:
            kind = stream.response.headers.get("content-type", "").split(";")[0].strip().lower()
            if kind in ("application/json", "text/html"):
                return await self._unstreamed(stream.response.aiter_bytes(), kind)
            has_choices = False
            async for chunk in stream:
                self.partial.add(chunk)
                has_choices = has_choices or bool(getattr(chunk, "choices", None))
                if self.partial.chars:
                    self.heard = time.monotonic()
                if self.partial.chars > self._most_chars():
                    self.partial.finish = "length"
                    return
            if not has_choices:
                # the connection ended normally without any part of a chat completion
                description = (
                    "a stream without any choice" if "event-stream" in kind else f"text of the kind {kind or 'unknown'}"
                )
                raise faults.garbage(self.endpoint, description)
        finally:
            await stream.response.aclose()

    def _most_chars(self) -> int:
        """The maximum length of a reply. A server that ignores the request's limit must not exceed a budget."""
        max_tokens = self.request.max_tokens
        max_chars = self.settings.max_reply_chars
        return max_chars if max_tokens is None else min(max_chars, _MOST_CHARS_A_TOKEN * max_tokens)

    async def _unstreamed(self, pieces: AsyncIterator[bytes], kind: str) -> None:
        """Read a completion from a server that does not stream."""
        body = b""
        async for piece in pieces:
            body += piece
            if len(body) > 8 * self.settings.max_reply_chars:
                raise faults.garbage(self.endpoint, f"more than {len(body):,} bytes")
        if kind == "text/html":
            raise faults.garbage(self.endpoint, faults.with_words("a web page", body))
        completion = json.loads(body, object_hook=lambda entries: SimpleNamespace(**entries))
        if isinstance(fault := getattr(completion, "error", None), SimpleNamespace):
            raise faults.from_event(vars(fault), self.endpoint)
        if not isinstance(getattr(completion, "choices", None), list):
            raise faults.garbage(self.endpoint, faults.with_words("JSON", body))
        if not completion.choices:
            raise faults.garbage(self.endpoint, "a completion without any choice")
        self.partial.add(completion)

    def _late(self) -> ModelError:
        if time.monotonic() >= self.deadline:
            return faults.out_of_time(self.endpoint, self.settings.total_s)
        if self.partial.chars:
            return faults.stalled(self.endpoint, self.settings.stall_s, True, "stall_s")
        return faults.stalled(self.endpoint, self.settings.first_token_s, False, "first_token_s")

    def _incomplete(self) -> ModelError | None:
        """The error of a stream that ended without one; None if it is a reply."""
        partial = self.partial
        names = ", ".join(call.name for call in partial.calls.values())
        if not partial.offered and (names or partial.finish in ("tool_calls", "function_call")):
            return faults.tool_call(self.endpoint, names)
        if partial.finish is None:
            return faults.cut(self.endpoint, "the stream ended before the reply did")
        if partial.ending() is Finish.ERROR:
            return faults.odd_finish(self.endpoint, partial.finish)
        return None

    def _broken(self, error: Exception) -> ModelError:
        cause = error.__cause__ or error
        reason = str(cause) or "the connection was lost"
        if self.partial.chars:
            return faults.cut(self.endpoint, reason)
        return faults.no_connection(self.endpoint, reason)

    async def _quiet(self, line: Line) -> None:
        """Wait while a rate limit of this endpoint applies, whichever request received it."""
        while time.monotonic() < line.quiet_until < self.deadline:
            seconds_left = line.quiet_until - time.monotonic()
            await self._sleep(seconds_left, f"{self.endpoint.host} limits the rate of requests.")

    async def _pause(self, failure: _Failure, tries: int, line: Line) -> None:
        """Back off: the pause doubles each time, with jitter, or is slightly longer than the server requests.

        Raises:
            ModelError: the server requests a longer pause than the settings allow.
        """
        settings, error, requested = self.settings, failure.error, failure.pause
        pause = settings.retry_s * 2**tries * random.uniform(0.5, 1.0)
        if requested is not None:
            if requested > settings.retry_max_s or time.monotonic() + requested > self.deadline:
                error.message += f" It asks to wait {requested:.0f} s."
                raise error
            pause = requested + random.uniform(0, 0.1 * requested + 0.05)
            line.quiet_until = max(line.quiet_until, time.monotonic() + requested)
        await self._sleep(min(pause, settings.retry_max_s, max(self.deadline - time.monotonic(), 0)), error.message)

    async def _sleep(self, seconds: float, why: str) -> None:
        """Wait, and show the reason and the duration."""
        self.waits = _Wait(why, time.monotonic() + seconds)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.waits = None
