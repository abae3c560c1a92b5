"""Limits for the calls that count which of a candidate's code runs."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True)
class CoverageRule:
    """Limits of calls, of their memory, and of time in seconds."""

    #: calls that are kept, bytes of the arguments of a small one, and bytes of all small and of all large ones
    calls: int = 600
    small_bytes: int = 256 * 1024
    kept_bytes: int = 192 * _MIB
    #: number of calls that are made at once between two looks at the counts, and bytes of their arguments
    look: int = 24
    together_bytes: int = 16 * _MIB
    #: seconds for the rest of the build, for the calls, and for inputs that reach more
    build_seconds: float = 60.0
    replay_seconds: float = 4.0
    reach_seconds: float = 1.5
    #: inputs that may be tried, bytes of their arguments, pairs of operands of a comparison that lead to
    #: some, and inputs that are tried at once
    proposals: int = 400
    reach_bytes: int = 64 * _MIB
    pairs: int = 6
    at_once: int = 8
    #: places that a verdict names
    told: int = 6


COVERAGE = CoverageRule()
