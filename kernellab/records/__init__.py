"""The records that rooms exchange and that the journal stores.

Each is a frozen pydantic model: they are plain data, and a change makes a new record. The folder has a module for each
kind of record; its users import most of them from here.
"""

from kernellab.records.base import Record
from kernellab.records.gate import Diagnostic, Fix, GateResult, GateState
from kernellab.records.measured import Comparison, Coverage, Environment, Replay, ReplayStep, Timing
from kernellab.records.route import Route, RouteFact, RouteKind
from kernellab.records.source import Author, Candidate, Files, Role, Source
from kernellab.records.verdict import (
    BOUND_PASSED,
    NO_BOUND,
    CompilerLine,
    Evidence,
    Ranking,
    Stage,
    StageResult,
    StageState,
    Trust,
    Verdict,
)

__all__ = [
    "BOUND_PASSED",
    "NO_BOUND",
    "Author",
    "Candidate",
    "Comparison",
    "CompilerLine",
    "Coverage",
    "Diagnostic",
    "Environment",
    "Evidence",
    "Files",
    "Fix",
    "GateResult",
    "GateState",
    "Ranking",
    "Record",
    "Replay",
    "ReplayStep",
    "Role",
    "Route",
    "RouteFact",
    "RouteKind",
    "Source",
    "Stage",
    "StageResult",
    "StageState",
    "Timing",
    "Trust",
    "Verdict",
]
