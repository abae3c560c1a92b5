"""Facts without a parameter."""

from __future__ import annotations

from typing import Literal

from kernellab.conditions.base import Concern
from kernellab.conditions.base import ConditionBase as _Condition

MarkKind = Literal[
    "expanded-inputs-unsupported", "tensor-given-twice", "constructor-parameters", "non-deterministic",
    "denormals-flushed", "denormals-left-flushed", "zeros-unsigned", "memory-grows", "output-in-a-file", "threads-left",
    "random-left", "buffers-not-compared", "one-mode", "reference-not-in-float64", "unsandboxed", "algebra", "ghost",
    "launches-not-seen", "task-not-discriminating", "busy-machine", "clocks-disagree", "shared-clock", "two-clocks",
    "outputs-read-late", "outputs-copied", "contents-repeated", "slower-on-new-contents", "stream-order-not-seen",
    "below-byte-floor", "below-cached-bytes", "below-arithmetic", "interpreted", "sealed", "native",
    "one-configuration", "agent-shared-machine", "prints", "one-thread", "one-call-at-a-time", "no-gradients",
    "no-inference-tensors", "default-dtype", "outputs-oversized", "conjugates-misread", "hazards-in-shared-memory",
    "written-copied", "view-copied", "results-cut-off", "inexact-near-zeros",
]  # fmt: skip

#: label and flag of each
_MARKS: dict[MarkKind, tuple[str, str]] = {
    "expanded-inputs-unsupported": ("expanded inputs not read", ""),
    "tensor-given-twice": ("one tensor given twice not handled", ""),
    "constructor-parameters": (
        "parameters of its constructor only",
        "parameters: right with those that its constructor draws under a new seed; it ignores loaded ones",
    ),
    "non-deterministic": ("non-deterministic", ""),
    "denormals-flushed": ("denormals flushed", ""),
    "denormals-left-flushed": ("", "denormals: a call leaves the calling thread flushing them to zero"),
    "zeros-unsigned": ("", "zeros: 0 where the reference has -0, or -0 where it has 0, by which a caller may divide"),
    "threads-left": ("", "threads: a call leaves another number of threads to its caller"),  # older journals
    "random-left": ("", "random: a call changes the state of torch's generator"),  # older journals
    "memory-grows": ("memory grows with each call", ""),
    "prints": ("", "output: each call writes to standard output or error"),
    "one-thread": ("", "threads: fails in another thread than the one that imported it"),
    "one-call-at-a-time": ("one call at a time only", ""),
    "no-gradients": ("", "gradients: fails for inputs that require one"),
    "no-inference-tensors": ("", "inference: fails for inputs that torch's inference mode made"),
    "default-dtype": ("", "default dtype: wrong numbers while torch's is float64; name the dtype of what is allocated"),
    "conjugates-misread": ("conjugated or negated views misread", ""),
    "written-copied": ("returns a copy of an argument that it writes into", ""),
    "view-copied": ("", "views: a new tensor where the reference returns an argument's own memory"),
    "results-cut-off": ("results cut off, not rounded to the nearest", ""),
    "inexact-near-zeros": (
        "",
        "precision: next to zeros of the result, its error is larger than what a rounding of the arguments explains",
    ),
    "outputs-oversized": ("outputs hold much more memory than they need", ""),
    "output-in-a-file": ("outputs in a file", ""),
    "hazards-in-shared-memory": ("", "racecheck: hazards in shared memory, between barriers that it may not know"),
    "buffers-not-compared": ("", "buffers: what the reference writes into its own is not compared"),
    "one-mode": ("", "modes: called in the mode that the reference is built in; the other has other answers"),
    "reference-not-in-float64": ("reference not in float64", ""),
    "unsandboxed": ("unsandboxed", ""),
    "algebra": ("algebra", ""),
    "ghost": ("ghost", ""),
    "launches-not-seen": ("", "ghost: no launch of an own kernel could be seen"),
    "task-not-discriminating": ("task not discriminating", ""),
    "busy-machine": ("busy machine", ""),
    "clocks-disagree": ("clocks disagree", ""),
    "shared-clock": ("shared clock", ""),
    "two-clocks": ("two clocks", ""),
    "outputs-read-late": ("outputs read late", ""),
    "outputs-copied": ("outputs copied by the worker", ""),
    "contents-repeated": ("contents repeated", ""),
    "slower-on-new-contents": ("slower on new contents, by which it is told", ""),
    "stream-order-not-seen": ("order of streams not seen", ""),
    "below-byte-floor": ("under the byte floor, ask for T4", ""),
    "below-cached-bytes": ("under the memory's bound, in the caches", ""),
    "below-arithmetic": ("under the bound of the reference's arithmetic", ""),
    "interpreted": ("interpreted", ""),
    "one-configuration": ("", "autotuned: one configuration ran, the first; others are tried on a GPU"),
    "sealed": ("sealed", ""),
    "native": ("replayed as native code", ""),
    "agent-shared-machine": ("agent shared the machine", ""),
}

#: those that speak of the task, and of the measurement
_OF_TASK: tuple[MarkKind, ...] = ("reference-not-in-float64", "task-not-discriminating")
_OF_MEASUREMENT: tuple[MarkKind, ...] = (
    "busy-machine", "shared-clock", "two-clocks", "contents-repeated", "interpreted", "one-configuration",
    "unsandboxed", "agent-shared-machine",
)  # fmt: skip


class Mark(_Condition):
    """A fact that its kind says completely."""

    kind: MarkKind

    @property
    def concern(self) -> Concern:
        return "task" if self.kind in _OF_TASK else "measurement" if self.kind in _OF_MEASUREMENT else "kernel"

    @property
    def label(self) -> str:
        return _MARKS[self.kind][0]

    @property
    def flag(self) -> str:
        return _MARKS[self.kind][1]
