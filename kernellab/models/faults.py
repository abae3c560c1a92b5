"""The meaning of a failed request: a kind, a sentence, a remedy, and whether to retry.

Compatible servers use one HTTP status for several faults, so the words of a refusal decide too. :func:`from_status`
asks one function for each subject, in an order in which the more certain signs come first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from kernellab.errors import ModelError, ModelFault, lasting
from kernellab.models.keys import scrub_error
from kernellab.models.settings import Endpoint

_CONTEXT = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}(context|prompt|input).{0,20}(length|tokens)|"
    r"(prompt|input|request).{0,30}too (long|large|many tokens)|too many (input )?tokens|exceeds?.{0,40}context",
    re.I | re.S,
)
_FILTER = re.compile(r"content.?(filter|policy|management)|responsible.?ai|safety (system|polic)|flagged", re.I)
_NO_CREDIT = re.compile(r"insufficient.?(quota|balance|credit|funds)|billing|payment|exceeded your current quota", re.I)
#: An organisation named in the request, not one that has to be verified.
_ORGANISATION = re.compile(r"^(?!.*verif).*organi[sz]ation", re.I | re.S)
#: Maximum length of a quotation of the server.
_QUOTE = 300


@dataclass(frozen=True)
class _Answer:
    """A reply with an unsuccessful HTTP status; ``words`` is the server's message."""

    status: int
    words: str
    body: Any
    headers: Mapping[str, str]
    endpoint: Endpoint

    @property
    def host(self) -> str:
        return self.endpoint.host

    def error(self, kind: ModelFault, sentence: str, remedy: str, resumable: bool = False) -> ModelError:
        """An error of ``sentence`` and a quotation of the server."""
        quoted = f' It says: "{self.words}".' if self.words else ""
        return ModelError(kind, f"{sentence}{quoted}", remedy, resumable=resumable)


def from_status(status: int, body: Any, headers: Mapping[str, str], endpoint: Endpoint) -> ModelError:
    """The error of a reply with an unsuccessful HTTP status."""
    answer = _Answer(status, words_of(body), body, headers, endpoint)
    errors = (explain(answer) for explain in (_redirect, _account, _web_page, _rights, _content, _load))
    return next((error for error in errors if error is not None), None) or _setting(answer)


def _redirect(answer: _Answer) -> ModelError | None:
    if not 300 <= answer.status < 400:
        return None
    target = scrub_error(answer.headers.get("location", "another address"))
    return ModelError(
        ModelFault.CONFIG,
        f"{answer.host} sends the request on to {target}; prompts and keys are not sent there unasked.",
        "If you trust it, set that address as base_url.",
    )


def _account(answer: _Answer) -> ModelError | None:
    if answer.status != 402 and not (answer.status in (400, 403, 429) and _NO_CREDIT.search(answer.words)):
        return None
    sentence = f"The account at {answer.host} has no credit left."
    return answer.error(ModelFault.RATE_LIMIT, sentence, "Pay in, or choose another model.")


def _web_page(answer: _Answer) -> ModelError | None:
    if answer.status not in (401, 403, 404, 405, 407) or "html" not in answer.headers.get("content-type", ""):
        return None
    page = f'a web page (HTTP {answer.status}), as a proxy or a login page does: "{answer.words}"'
    return garbage(answer.endpoint, page)


def _rights(answer: _Answer) -> ModelError | None:
    """The organisation, a proxy's password, or the key."""
    status, host, endpoint = answer.status, answer.host, answer.endpoint
    if status in (400, 401, 403) and endpoint.organisation and _ORGANISATION.search(answer.words):
        return answer.error(
            ModelFault.AUTH, f"{host} refuses the organisation {endpoint.organisation!r} (HTTP {status}).",
            "Correct `organisation` under [models], or leave it out; then resume.",
        )  # fmt: skip
    if status == 407:
        return answer.error(
            ModelFault.AUTH, f"A proxy in front of {host} asks for a name and a password (HTTP 407).",
            "Give them in HTTPS_PROXY (http://NAME:PASSWORD@PROXY), or go around it with NO_PROXY, then resume.",
        )  # fmt: skip
    if status == 403 and endpoint.key:
        return answer.error(
            ModelFault.AUTH, f"{host} does not allow the request with this key (HTTP 403).",
            "Ask for access to the model, give another key, or choose another model; then resume.",
        )  # fmt: skip
    if status in (401, 403):
        missing = "" if endpoint.key else " No key is configured."
        return answer.error(
            ModelFault.AUTH, f"{host} refuses the key (HTTP {status}).{missing}",
            "Put a valid key into the variable or file that the settings name, then resume.",
        )  # fmt: skip
    return None


def _content(answer: _Answer) -> ModelError | None:
    """A prompt that is too long, or that a filter refuses."""
    status, words = answer.status, answer.words
    if status == 413 or (status in (400, 422, 500) and _CONTEXT.search(words)):
        return answer.error(
            ModelFault.CONTEXT, f"The request is too long for {answer.endpoint.model}.",
            "Set `prompt_tokens` under [models] to less, or choose a model with a larger window.",
        )  # fmt: skip
    if status in (400, 403, 451) and _FILTER.search(words):
        return answer.error(
            ModelFault.FILTERED, f"The content filter of {answer.host} refused the request.",
            "Word the task or the notes differently, or choose another model.",
        )  # fmt: skip
    return None


def _load(answer: _Answer) -> ModelError | None:
    """Too many requests, or a server that fails."""
    status, host = answer.status, answer.host
    if status == 429:
        sentence = f"{host} allows no more requests for now (HTTP 429)."
        return answer.error(ModelFault.RATE_LIMIT, sentence, "Resume later, or lower `concurrency`.", resumable=True)
    if status >= 500 or status in (408, 409, 425):
        sentence = f"{host} failed (HTTP {status})."
        return answer.error(ModelFault.SERVER, sentence, "Resume when it works again.", resumable=True)
    return None


def _setting(answer: _Answer) -> ModelError:
    """A model's name, or another setting that the server refuses."""
    if answer.status in (404, 405):
        return answer.error(
            ModelFault.CONFIG, f"{answer.host} does not serve the model {answer.endpoint.model!r}.",
            "Check the model's name and base_url, which mostly ends in /v1.",
        )  # fmt: skip
    text = f"{param_of(answer.body)} {answer.words}".replace("max_completion_tokens", "max_tokens")
    names = sorted(name for name in answer.endpoint.asked if re.search(rf"\b{re.escape(name)}\b", text))
    change = f"Change {' or '.join(names)} under [models], or leave it out."
    return answer.error(
        ModelFault.CONFIG, f"{answer.host} refuses the request (HTTP {answer.status}).",
        change if names else "Change the setting that it names.",
    )  # fmt: skip


def without(endpoint: Endpoint, parts: Sequence[str]) -> str:
    """A warning that requests omit ``parts`` of the settings; empty if there are none."""
    if not parts:
        return ""
    return f"{endpoint.host} does not take {' and '.join(parts)}: requests go without."


def from_event(body: Any, endpoint: Endpoint) -> ModelError:
    """The error in a reply with status 200, with or without an HTTP status as its code."""
    code = str(body.get("code", "")) if isinstance(body, Mapping) else ""
    return from_status(_status_of(code, words_of(body)), body, {}, endpoint)


def _status_of(code: str, words: str) -> int:
    """The HTTP status that corresponds to an error inside a stream."""
    if re.fullmatch(r"[45]\d\d", code):
        return int(code)
    if _NO_CREDIT.search(words):
        return 429
    return 400 if _FILTER.search(words) else 500


def no_connection(endpoint: Endpoint, reason: str) -> ModelError:
    """The endpoint cannot be reached."""
    if "WRONG_VERSION_NUMBER" in reason:
        return ModelError(
            ModelFault.NETWORK, f"{endpoint.host} does not speak https.",
            "Write http:// in base_url, or for the proxy in HTTPS_PROXY if there is one, then resume.", resumable=True,
        )  # fmt: skip
    return ModelError(
        ModelFault.NETWORK, f"{endpoint.host} cannot be reached: {scrub_error(reason).rstrip('.')}.",
        "Check base_url and that the server runs, then resume.", resumable=True,
    )  # fmt: skip


def cut(endpoint: Endpoint, reason: str) -> ModelError:
    """The connection was lost during the reply."""
    detail = scrub_error(reason).rstrip(".")
    return ModelError(
        ModelFault.NETWORK,
        f"The reply of {endpoint.host} was cut off: {detail}.",
        "Resume to ask again.",
        resumable=True,
    )


def stalled(endpoint: Endpoint, seconds: float, began: bool, setting: str) -> ModelError:
    """No token arrived in time."""
    event = "sent nothing more" if began else "sent no first token"
    return ModelError(
        ModelFault.STALLED, f"{endpoint.host} {event} for {lasting(seconds)}.",
        f"Resume to ask again, or raise `{setting}` for a slow model.", resumable=True,
    )  # fmt: skip


def out_of_time(endpoint: Endpoint, seconds: float) -> ModelError:
    """The request exceeded its time limit."""
    return ModelError(
        ModelFault.STALLED, f"{endpoint.host} did not finish within {lasting(seconds)}.",
        "Resume to ask again, raise `total_s`, or lower `max_tokens`.", resumable=True,
    )  # fmt: skip


def garbage(endpoint: Endpoint, description: str) -> ModelError:
    """The reply is not a chat completion."""
    return ModelError(
        ModelFault.GARBAGE, f"{endpoint.host} answered with {description}, not with a chat completion.",
        "Check base_url, which mostly ends in /v1, and that no proxy answers instead; then resume.", resumable=True,
    )  # fmt: skip


def with_words(description: str, body: bytes) -> str:
    """A description of a reply, with its words."""
    return f'{description}: "{words_of(body.decode(errors="replace"))}"'


def tool_call(endpoint: Endpoint, names: str) -> ModelError:
    """The model called a tool that was not offered."""
    return ModelError(
        ModelFault.GARBAGE, f"{endpoint.model} called a tool ({names or 'without a name'}) although none was offered.",
        "Resume to ask again, or turn tools off at the server.", resumable=True,
    )  # fmt: skip


def odd_finish(endpoint: Endpoint, word: str) -> ModelError:
    """The reply has an unknown ending."""
    return ModelError(
        ModelFault.SERVER, f"{endpoint.host} ended the reply with {word!r}, which is not a known ending.",
        "Resume to ask again.", resumable=True,
    )  # fmt: skip


def cancelled() -> ModelError:
    """The request was cancelled."""
    return ModelError(ModelFault.CANCELLED, "The request was cancelled.", "Resume to ask again.", resumable=True)


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server requests to wait: ``Retry-After-Ms``, or ``Retry-After`` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            return max(float(value) * scale, 0.0)
        except ValueError:
            continue
    try:
        return max(parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return None


def param_of(body: Any) -> str:
    """The part of the request that a refusal names, if any."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    return str(inner.get("param") or "") if isinstance(inner, Mapping) else ""


def words_of(body: Any) -> str:
    """A server's own message, without keys, on one line."""
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            parts = [str(inner[name]) for name in ("message", "code", "detail") if inner.get(name)]
            inner = " / ".join(parts) or str(inner)
        body = inner
    text = " ".join(re.sub(r"<[^<>]*>", " ", scrub_error(str(body or ""))).split())
    return text if len(text) <= _QUOTE else text[:_QUOTE] + " ..."
