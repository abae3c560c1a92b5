"""Limits for the calls that count which of a candidate's code runs. A number without a reason was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.sandbox.caps import MIB


@dataclass(frozen=True)
class CoverageRule:
    """Limits of calls, of their memory, and of time in seconds."""

    #: calls that are kept,
    kept_calls: int = 600
    #: bytes of the arguments of a small one,
    small_bytes: int = 256 * 1024
    #: and bytes of all small and of all large ones
    kept_bytes: int = 192 * MIB
    #: number of calls that are made at once between two looks at the counts,
    calls_per_look: int = 24
    #: and bytes of their arguments
    together_bytes: int = 16 * MIB
    #: seconds for the rest of the build,
    build_seconds: float = 60.0
    #: for the calls,
    replay_seconds: float = 4.0
    #: and for inputs that reach more
    reach_seconds: float = 1.5
    #: inputs that may be tried,
    proposals: int = 400
    #: inputs that are tried at once,
    proposals_at_once: int = 8
    #: bytes of their arguments,
    reach_bytes: int = 64 * MIB
    #: and pairs of operands of a comparison that lead to some
    operand_pairs: int = 6
    #: places that a verdict names
    named_regions: int = 6


COVERAGE = CoverageRule()
