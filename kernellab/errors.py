"""Every error that a person can meet, each one sentence and a remedy.

The message says what and where; ``remedy`` says how to fix it. The notebook and the command line print both
without a traceback; a program can catch :class:`KernellabError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

#: bytes of a file that is read as one text (a task, a kernel, a sketch): more is weights or data, and would be parsed
#: for minutes
MOST_BYTES = 4_000_000


def counted(number: int, noun: str, many: str = "") -> str:
    """``1 error``, ``2 errors``: a number of things in a sentence; ``many`` where the plural is not made by an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {many or f'{noun}s'}"


def told_apart(got: float | str | None, want: float | str | None) -> str:
    """``got 1.5, want 2``: two values in as many digits as tell them apart."""

    def digits(value: float | str | None, count: int) -> str:
        return f"{value:.{count}g}" if isinstance(value, float) else str(value)

    pairs = [(digits(got, count), digits(want, count)) for count in (6, 9, 17)]
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
    return f"got {one}, want {other}"


def duration(ms: float) -> str:
    """A time in microseconds, from 10 ms on in milliseconds: ``1250 us``, ``12.5 ms``. A kernel's time and its bound,
    which stand next to each other, have one unit that way."""
    return f"{ms:.4g} ms" if ms >= 9.9995 else f"{1e3 * ms:.4g} us"


def kilobytes(count: float) -> str:
    """Bytes that are held, in the units of a cache: ``48.7 KiB``."""
    if count >= 1 << 20:
        return f"{count / (1 << 20):.4g} MiB"
    return f"{count / 1024:.4g} KiB" if count >= 1024 else f"{count:.0f} bytes"


def lasting(seconds: float) -> str:
    """``0.315 s``, ``90 s``: a time in a sentence, as exact as a reader needs it."""
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


#: what is wrong with a value, by pydantic's name for it
_FAULTS = {
    "missing": "is missing", "extra_forbidden": "is unknown", "literal_error": "should be {expected}",
    "enum": "should be {expected}", "greater_than_equal": "should be at least {ge}",
    "less_than_equal": "should be at most {le}", "greater_than": "should be more than {gt}",
    "less_than": "should be less than {lt}", "string_too_long": "should have at most {max_length} characters",
    "string_type": "should be a text", "string_unicode": "is no Unicode text", "finite_number": "should be finite",
    "bool_type": "should be true or false", "bool_parsing": "should be true or false",
    "int_type": "should be a whole number", "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number", "int_parsing_size": "is too large",
    "float_type": "should be a number", "float_parsing": "should be a number", "list_type": "should be a list",
    "tuple_type": "should be a list", "dict_type": "should be an object", "mapping_type": "should be an object",
    "model_type": "should be an object", "model_attributes_type": "should be an object",
}  # fmt: skip


def refused(found: Mapping[str, Any], subject: str = "It") -> str:
    """``It should be a whole number``: one of a pydantic error's faults; of a check of ours, its own words."""
    facts, kind = found.get("ctx", {}), found["type"]
    if "error" in facts:
        own = str(facts["error"]).rstrip(".")
        return own if subject in ("it", "It") else f"{subject}: {own}"
    words = _FAULTS[kind].format(**facts) if kind in _FAULTS else found["msg"].replace("Input should", "should")
    return f"{subject} {words}".rstrip(".")


class KernellabError(Exception):
    """What went wrong, in one sentence, with the remedy in another.

    >>> error = KernellabError("There is no task 'rms'.", "Did you mean 'rms_norm'?")
    >>> print(error)
    There is no task 'rms'. Did you mean 'rms_norm'?
    >>> error.remedy
    "Did you mean 'rms_norm'?"

    Raised for anything that a person can fix. ``exit_code`` is what the command line returns: 2 for a wrong call or
    input, 1 for work that was done and is not good.
    """

    exit_code = 2

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()

    @property
    def details(self) -> tuple[str, ...]:
        """Each fault by itself, where the message only counts or sums them up."""
        return ()

    @property
    def told(self) -> str:
        """The message, each fault on a separate line, the remedy: for a view that shows it whole."""
        return "\n".join(filter(None, [self.message, *self.details, self.remedy]))

    def _render_traceback_(self) -> list[str]:
        """Few lines in a notebook instead of a traceback; the cell still fails for nbclient and nbval."""
        lines = [f"{type(self).__name__}: {self.message}", *(f"  {line}" for line in self.details)]
        return [*lines, f"  -> {self.remedy}"] if self.remedy else lines


def names_of(*kinds: type[KernellabError]) -> frozenset[str]:
    """The names of these classes and of all that derive from them, as a failed turn's ``fault`` stores one."""
    found, rest = set[str](), list(kinds)
    while rest:
        kind = rest.pop()
        found.add(kind.__name__)
        rest += kind.__subclasses__()
    return frozenset(found)


class TaskError(KernellabError):
    """The Task cannot be used: no reference, a reference that raises, inputs that do not fit."""


class CaptureError(KernellabError):
    """The reference cannot be turned into a graph; the message names the line and the construct."""


class SketchError(KernellabError):
    """A sketch that is wrong; ``diagnostics`` holds each fault with its line."""

    def __init__(self, message: str, remedy: str = "", diagnostics: tuple[Any, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.diagnostics = diagnostics


class NotRunnable(SketchError):
    """A sketch that is legal but cannot be run (an opaque operation, a constexpr without a value)."""


class LoweringError(KernellabError):
    """A sketch that this DSL's lowering cannot express, with the statement and the reason.

    ``line`` is the sketch line at fault, which the message begins with; 0 where none is known.
    """

    def __init__(self, message: str, remedy: str = "", line: int = 0) -> None:
        super().__init__(f"Line {line}: {message}" if line else message, remedy)
        self.line = line


class DesignError(KernellabError):
    """The rules Designer cannot design this graph; the message names the node."""


class NodeError(DesignError):
    """No rule designs one ``node`` of a graph; a Designer that may fall back makes it by another way."""

    def __init__(self, message: str, remedy: str = "", node: str = "") -> None:
        super().__init__(message, remedy)
        self.node = node


class TargetError(KernellabError):
    """An unknown DSL, a missing compiler, or a DSL without its hardware."""


class VerifierError(KernellabError):
    """The judge could not do its work (not: the candidate failed)."""


class JudgeLost(VerifierError):
    """There is no connection to the machine of the judge: nothing is said of the kernel."""


class JudgeBusy(VerifierError):
    """The judge's machine had no time for the kernel: nothing is said of it."""


class SessionError(KernellabError):
    """A request that the session's state does not allow; the session is unharmed."""


class Killed(SessionError):
    """The machine ended a process, as one that is short of memory does: nothing is said of what ran in it."""


class Overtime(SessionError):
    """A call that used more of the processor's time than it may; on another machine it may use less."""


class JournalError(KernellabError):
    """The journal cannot be opened or written; the message names the file."""


class CourseError(KernellabError):
    """There is no such lesson, exercise or challenge, or its file cannot be read (named, with the key)."""


class ProfileError(KernellabError):
    """A model cannot be profiled, or a row of its profile cannot be designed; the message names the part."""


class SwapError(KernellabError):
    """A kernel cannot take the place of a model's part; the model is as it was."""

    exit_code = 1


class EvolveError(KernellabError):
    """A search cannot be begun, or cannot go on."""


class WorkersLost(EvolveError):
    """Who does the jobs of a search is gone. The run is as it was, and continues with another."""


class MemoryStoreError(KernellabError):
    """The retrieval memory cannot be opened, read or written; the message names its place."""


class ModelFault(str, Enum):
    """What went wrong between a role and its chat model."""

    AUTH = "auth"
    RATE_LIMIT = "rate-limit"
    #: the request is longer than the model's window
    CONTEXT = "context"
    TRUNCATED = "truncated"
    FILTERED = "filtered"
    EMPTY = "empty"
    #: connected, and then nothing came for too long
    STALLED = "stalled"
    SERVER = "server"
    NETWORK = "network"
    #: something came that is not a chat completion, or not the JSON that was asked for
    GARBAGE = "garbage"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    #: a recording that holds no answer to this request
    NO_ANSWER = "no-answer"
    CONFIG = "config"


class ModelError(KernellabError):
    """A chat model gave no usable answer.

    ``resumable``: the same request may be answered when it is asked again later; otherwise a person must change
    something first (``remedy`` says what). ``reply`` is what had come by then, a
    :class:`~kernellab.models.ChatReply` or None; it is for the record, never to be used as an answer.
    """

    exit_code = 1

    def __init__(
        self, kind: ModelFault, message: str, remedy: str = "", *, resumable: bool = False, reply: Any = None
    ) -> None:
        super().__init__(message, remedy)
        self.kind = kind
        self.resumable = resumable
        self.reply = reply
