"""The request and the answer of a dry call; both are sent as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """``arguments`` are {"shape": [...], "dtype": "float32"} of a tensor, or {"value": 3} of a scalar, in order; a
    scalar with "default" may be left out."""

    files: dict[str, str]
    entry_file: str
    entry: str
    arguments: list[dict[str, Any]]
    #: compute capability: 90 for sm_90
    capability: int
    #: SMs, from which persistent kernels derive their grid
    cores: int
    #: the source may run without a sandbox: kernellab's rules wrote it, or a person allowed it
    allowed: bool = False
    #: also return what Triton builds for its host, if the driver's library exists
    host: bool = False
    #: limit of the call's CPU time in seconds; 0 means no limit
    processor: int = 0
    #: further calls with other arguments, in the same process
    others: list[list[dict[str, Any]]] = field(default_factory=list)
    #: only Triton's texts, nothing is disassembled; each call also runs in its interpreter: after this many seconds of
    #: CPU time, and with other arguments, only the first program of each launch
    watched: int = 0


@dataclass(frozen=True)
class Built:
    """One kernel that a dry call would launch. ``texts`` are the compiler's, by level; ``shared`` is dynamic shared
    memory in bytes."""

    name: str
    texts: dict[str, str]
    grid: list[int] = field(default_factory=list)
    block: int = 0
    shared: int = 0
    #: the name of the launch's text, and the text itself, if it is not a file of the source
    source: str = ""
    #: ``REG:32 STACK:0 SHARED:0 LOCAL:0``, as cuobjdump says it
    resources: str = ""
    stages: int = 0


@dataclass(frozen=True)
class Ran:
    """The record of a call in Triton's interpreter; ``error`` is the exception that ended it. Without ``whole``,
    programs were left out, and ``sharing`` is not valid. Without ``drawn``, numbers were zeros, and ``products`` is not
    valid."""

    #: names and grids, in order
    launches: list[list[Any]] = field(default_factory=list)
    #: number of places in the source that load, in all kernels; atomic operations count
    loads: int = 0
    #: elements of the largest array that one program loaded repeatedly at the same place
    again: int = 0
    #: bytes of the largest tile of floats, or of the largest that is loaded
    tile: int = 0
    #: number of products of which both factors have rows and columns with more than one number
    products: int = 0
    #: elements that a launch loads divided by those of its busiest program: how many programs share the work
    sharing: float = 0.0
    whole: bool = True
    drawn: bool = True
    error: str = ""
    #: its process was killed from outside
    killed: bool = False


@dataclass(frozen=True)
class Answer:
    """``error`` is the reason (what, remedy) if there is no result. ``refused`` is the error of the compiler or the
    call, which may follow compiled kernels."""

    kernels: list[Built] = field(default_factory=list)
    #: number of launches; a kernel that is launched twice is in ``kernels`` once
    launches: int = 0
    #: the launches of Triton's kernels by name and grid, in order
    calls: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: list[str] = field(default_factory=list)
    refused: str = ""
    held: list[str] = field(default_factory=list)
    #: the record of a call in the interpreter
    ran: Ran | None = None
