"""How a worker fails its judge: kinds of failure, and an exception as a worker reports it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernellab.sandbox.caps import CAPS

#: kinds of failure of the exceptions that the worker's own checks raise; all others are "exception"
_KINDS = {"BadOutput": "output", "Trespass": "out-of-bounds", "Race": "race", "Limit": "launch-limit"}
#: largest numbers of characters, and of frames, that a report keeps
_MOST_TYPE, _MOST_PLACE, _MOST_TRACE, _MOST_FRAMES = 80, 400, 16000, 8


class WorkerFailure(Exception):
    """The worker did not do what was requested. ``kind``: crash, exit, hang, left-running, memory, processor, disk,
    processes, printed, protocol, exception, output, out-of-bounds, race, launch-limit, late-write."""

    def __init__(self, kind: str, message: str, detail: dict[str, Any] | None = None, log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail or {}
        self.log = log
        #: the role of the worker, if known: "candidate", or a baseline's name
        self.role = ""


@dataclass(frozen=True)
class ReportedError:
    """An exception as a worker reports it: unverified claims of a checked form."""

    type: str
    message: str
    frames: list[dict[str, Any]]
    inside: str
    trace: str

    @staticmethod
    def of(answer: dict[str, Any]) -> ReportedError | None:
        """The exception of ``answer``; None if it has no valid type."""
        if not isinstance(answer.get("type"), str):
            return None
        raw_frames = answer.get("frames")
        frames = [f for f in raw_frames if isinstance(f, dict)] if isinstance(raw_frames, list) else []
        return ReportedError(
            type=answer["type"][:_MOST_TYPE],
            message=str(answer.get("message", "")),
            frames=[
                {"file": str(f.get("file", ""))[:_MOST_PLACE], "line": _line(f.get("line"))}
                for f in frames[-_MOST_FRAMES:]
            ],
            inside=str(answer.get("inside") or "")[:_MOST_PLACE],
            trace=str(answer.get("trace") or "")[-_MOST_TRACE:],
        )

    @property
    def kind(self) -> str:
        return _KINDS.get(self.type, "exception")

    @property
    def words(self) -> str:
        """What happened. The worker's own checks say it all; another exception needs its type."""
        is_own = self.kind in ("out-of-bounds", "race", "launch-limit")
        return (self.message if is_own else f"{self.type}: {self.message}")[: CAPS.log]

    @property
    def detail(self) -> dict[str, Any]:
        return asdict(self)


def _line(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0
