"""What goes into a dry call and what comes out of it; both travel as JSON."""

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
    #: 90 for sm_90
    capability: int
    #: SMs, by which persistent kernels choose their grid
    cores: int
    #: the source may run without a sandbox: our own rules wrote it, or a person allowed it
    allowed: bool = False
    #: what Triton builds for its host is wanted too, where the driver's library is there
    host: bool = False
    #: seconds of the processor's time that the call may use; 0 means no limit
    processor: int = 0
    #: further calls with other arguments, in the same process
    others: list[list[dict[str, Any]]] = field(default_factory=list)
    #: Triton's own texts are enough, nothing is disassembled; and each call runs in its interpreter as well, after so
    #: many seconds of the processor's time, and with other arguments, the first program of each launch alone
    watched: int = 0


@dataclass(frozen=True)
class Built:
    """One kernel that a dry call would launch. ``texts`` are the compiler's own, by level; ``shared`` is dynamic."""

    name: str
    texts: dict[str, str]
    grid: list[int] = field(default_factory=list)
    block: int = 0
    shared: int = 0
    #: of the device code: what the launch's text is called, and its text, where it is no file of the source
    source: str = ""
    #: ``REG:32 STACK:0 SHARED:0 LOCAL:0``, as cuobjdump says it
    resources: str = ""
    stages: int = 0


@dataclass(frozen=True)
class Ran:
    """What a call did in Triton's interpreter; ``error`` is what it ended with. Not ``whole``: programs were left out,
    so that ``sharing`` says nothing. Not ``drawn``: its numbers were zeros, and so does ``products``."""

    #: names and grids, in order
    launches: list[list[Any]] = field(default_factory=list)
    #: places of the source that load, of all its kernels
    loads: int = 0
    #: elements of the largest array that one program has loaded again at the same place
    again: int = 0
    #: bytes of the largest tile of floats
    tile: int = 0
    #: products of which both sides have rows and columns of more than one number
    products: int = 0
    #: elements that a launch loads, over those that the busiest of its programs does: how many share the work
    sharing: float = 0.0
    whole: bool = True
    drawn: bool = True
    error: str = ""


@dataclass(frozen=True)
class Answer:
    """``error`` is why there is nothing: (what, remedy). ``refused`` is what the compiler or the call ended with, also
    where some kernels were compiled before."""

    kernels: list[Built] = field(default_factory=list)
    #: of all kernels; one that is launched twice stands once in ``kernels``
    launches: int = 0
    #: the launches of Triton's kernels by name and grid, in order
    calls: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: list[str] = field(default_factory=list)
    refused: str = ""
    held: list[str] = field(default_factory=list)
    #: of a call that was watched
    ran: Ran | None = None
