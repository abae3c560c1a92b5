"""API keys: reads them, and keeps them out of everything that is written.

Settings contain the name of an environment variable or the path of a file, never a key. The keys that were read are
stored here only for :func:`scrub`, which removes them from any text that is stored or shown.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from urllib.parse import quote

from kernellab.errors import ModelError, ModelFault

REMOVED = "[key removed]"

#: Keys that this process has read.
_READ: set[str] = set()
#: Minimum length of a key; shorter ones are words such as EMPTY that local servers require.
_SHORTEST = 8
#: Keys that servers quote in their errors, including others than the one that was sent.
_LIKE_A_KEY = re.compile(
    r"(?i)\bbearer\s+[^\s\"',}]+|\b(?:sk|pk|gsk|xai|hf|api|key|ak)[-_][\w*.\-]{8,}|\b[\w\-]{2,}\*{3,}[\w\-]*"
)


def read_key(env: str = "", file: Path | None = None) -> str | None:
    """Return the key from the environment variable ``env``, otherwise from ``file``; None if neither is named.

    Raises:
        ModelError: the variable is not set, or the file is unreadable or empty.
    """
    if env:
        key = os.environ.get(env, "").strip()
        if not key:
            raise ModelError(
                ModelFault.CONFIG, f"The environment variable {env}, which should hold the model's key, is not set.",
                "Set it before JupyterLab or the command starts.",
            )  # fmt: skip
    elif file is not None:
        try:
            key = file.expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ModelError(
                ModelFault.CONFIG, f"The key file {file} cannot be read: {reason}.", "Fix the path in key_file."
            ) from None
        if not key or "\n" in key:
            raise ModelError(
                ModelFault.CONFIG, f"The key file {file} should hold one line, the key.", "Write the key alone into it."
            )
    else:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelError(
            ModelFault.CONFIG, f"What {env or file} holds is not a key: it has characters that a key cannot have.",
            "Copy the key again.",
        )  # fmt: skip
    if len(key) >= _SHORTEST:
        _READ.add(key)
    return key


def scrub(text: str) -> str:
    """Return ``text`` without any key that this process has read."""
    for key in sorted(_READ, key=len, reverse=True):  # a key may begin with another
        text = text.replace(key, REMOVED)
        escaped = quote(key, safe="")
        if escaped != key:
            text = text.replace(escaped, REMOVED)
    return text


def scrub_error(text: str) -> str:
    """Apply :func:`scrub` to a server's message, which may quote a part of a key or another key."""
    return scrub(_LIKE_A_KEY.sub(REMOVED, text))


class _Scrubbed(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (clean := scrub(text)) != text:
            record.msg, record.args = clean, ()
        return True


def scrub_logs() -> None:
    """Keep keys out of the transport's debug logs, which quote a server's headers unchanged."""
    transports = [f"{name}.{part}" for name in ("httpcore", "httpcore2") for part in ("http11", "http2", "proxy")]
    for name in ("openai._base_client", *transports):
        logger = logging.getLogger(name)
        if not any(isinstance(each, _Scrubbed) for each in logger.filters):
            logger.addFilter(_Scrubbed())
