"""When a session asks, as a person writes it: ``routing``, ``all``, a role, or what a turn may cost."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.errors import SessionError
from kernellab.options.entry import amount

#: policies of one word
APPROVALS = ("none", "routing", "all")
_WORDS = (*APPROVALS, "permission", "designer", "coder", "verifier", "conductor")
_LIMITS = ("tokens", "usd", "minutes")
_REMEDY = f"Write {', '.join(APPROVALS)}, a role, or limits of a turn: coder,tokens=10k,minutes=1."


@dataclass(frozen=True)
class Approval:
    """``words`` name turns to ask after (``routing``, ``all``, a role; ``permission``: none, but what an agent asks is
    a question as with each of them); a turn that is expected to cost more than
    ``tokens``, ``usd`` or ``minutes`` is asked for first. None is no limit."""

    words: frozenset[str] = frozenset()
    tokens: float | None = None
    usd: float | None = None
    minutes: float | None = None

    @classmethod
    def parse(cls, text: str) -> Approval:
        """From ``none``, ``routing``, ``all``, or words and limits such as ``coder,tokens=10k,minutes=1``.

        Raises:
            SessionError: an unknown word or limit, or no positive number.
        """
        parts = [part for part in (part.strip() for part in text.split(",")) if part]
        words = {part for part in parts if "=" not in part}
        if unknown := sorted(words - set(_WORDS)):
            raise SessionError(f"There is no approval policy {unknown[0]!r}.", _REMEDY)
        if "none" in words and len(parts) > 1:
            raise SessionError(f"The approval policy {text!r} asks for nothing and for more.", "Leave 'none' out.")
        limits = dict(_limit(part) for part in parts if "=" in part)
        return cls(frozenset(words - {"none"}), **limits)


def _limit(part: str) -> tuple[str, float]:
    name, _, number = (piece.strip() for piece in part.partition("="))
    if name not in _LIMITS:
        raise SessionError(f"An approval policy limits {', '.join(_LIMITS)}, not {part!r}.", _REMEDY)
    value = amount(number)
    if value is None:
        raise SessionError(f"The limit {part!r} is no number above zero.", _REMEDY)
    return name, value
