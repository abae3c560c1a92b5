"""Facts without a parameter: each is a word of :data:`MarkKind`, with its texts in one table."""

from __future__ import annotations

from typing import Literal, NamedTuple

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


class MarkTexts(NamedTuple):
    """What is said of a fact: next to the trust level (``label``), and as a sentence below the figures (``flag``);
    ``concern``: what the fact speaks of."""

    label: str = ""
    flag: str = ""
    concern: Concern = "kernel"


#: the texts of each kind
_MARKS: dict[MarkKind, MarkTexts] = {
    "expanded-inputs-unsupported": MarkTexts("expanded inputs not read"),
    "tensor-given-twice": MarkTexts("one tensor given twice not handled"),
    "constructor-parameters": MarkTexts(
        "parameters of its constructor only",
        flag="parameters: right with those that its constructor draws under a new seed; it ignores loaded ones",
    ),
    "non-deterministic": MarkTexts("non-deterministic"),
    "denormals-flushed": MarkTexts("denormals flushed"),
    "denormals-left-flushed": MarkTexts(flag="denormals: a call leaves the calling thread flushing them to zero"),
    "zeros-unsigned": MarkTexts(
        flag="zeros: 0 where the reference has -0, or -0 where it has 0, by which a caller may divide"
    ),
    "threads-left": MarkTexts(flag="threads: a call leaves another number of threads to its caller"),  # older journals
    "random-left": MarkTexts(flag="random: a call changes the state of torch's generator"),  # older journals
    "memory-grows": MarkTexts("memory grows with each call"),
    "prints": MarkTexts(flag="output: each call writes to standard output or error"),
    "one-thread": MarkTexts(flag="threads: fails in another thread than the one that imported it"),
    "one-call-at-a-time": MarkTexts("one call at a time only"),
    "no-gradients": MarkTexts(flag="gradients: fails for inputs that require one"),
    "no-inference-tensors": MarkTexts(flag="inference: fails for inputs that torch's inference mode made"),
    "default-dtype": MarkTexts(
        flag="default dtype: wrong numbers while torch's is float64; name the dtype of what is allocated"
    ),
    "conjugates-misread": MarkTexts("conjugated or negated views misread"),
    "written-copied": MarkTexts("returns a copy of an argument that it writes into"),
    "view-copied": MarkTexts(flag="views: a new tensor where the reference returns an argument's own memory"),
    "results-cut-off": MarkTexts("results cut off, not rounded to the nearest"),
    "inexact-near-zeros": MarkTexts(
        flag="precision: next to zeros of the result, its error is larger than what a rounding of the arguments "
        "explains"
    ),
    "outputs-oversized": MarkTexts("outputs hold much more memory than they need"),
    "output-in-a-file": MarkTexts("outputs in a file"),
    "hazards-in-shared-memory": MarkTexts(
        flag="racecheck: hazards in shared memory, between barriers that it may not know"
    ),
    "buffers-not-compared": MarkTexts(flag="buffers: what the reference writes into its own is not compared"),
    "one-mode": MarkTexts(flag="modes: called in the mode that the reference is built in; the other has other answers"),
    "reference-not-in-float64": MarkTexts("reference not in float64", concern="task"),
    "unsandboxed": MarkTexts("unsandboxed", concern="measurement"),
    "algebra": MarkTexts("algebra"),
    "ghost": MarkTexts("ghost"),
    "launches-not-seen": MarkTexts(flag="ghost: no launch of an own kernel could be seen"),
    "task-not-discriminating": MarkTexts("task not discriminating", concern="task"),
    "busy-machine": MarkTexts("busy machine", concern="measurement"),
    "clocks-disagree": MarkTexts("clocks disagree"),
    "shared-clock": MarkTexts("shared clock", concern="measurement"),
    "two-clocks": MarkTexts("two clocks", concern="measurement"),
    "outputs-read-late": MarkTexts("outputs read late"),
    "outputs-copied": MarkTexts("outputs copied by the worker"),
    "contents-repeated": MarkTexts("contents repeated", concern="measurement"),
    "slower-on-new-contents": MarkTexts("slower on new contents, by which it is told"),
    "stream-order-not-seen": MarkTexts("order of streams not seen"),
    "below-byte-floor": MarkTexts("under the byte floor, ask for T4"),
    "below-cached-bytes": MarkTexts("under the memory's bound, in the caches"),
    "below-arithmetic": MarkTexts("under the bound of the reference's arithmetic"),
    "interpreted": MarkTexts("interpreted", concern="measurement"),
    "one-configuration": MarkTexts(
        flag="autotuned: one configuration ran, the first; others are tried on a GPU", concern="measurement"
    ),
    "sealed": MarkTexts("sealed"),
    "native": MarkTexts("replayed as native code"),
    "agent-shared-machine": MarkTexts("agent shared the machine", concern="measurement"),
}


class Mark(_Condition):
    """A fact that its kind says completely."""

    kind: MarkKind

    @property
    def concern(self) -> Concern:
        return _MARKS[self.kind].concern

    @property
    def label(self) -> str:
        return _MARKS[self.kind].label

    @property
    def flag(self) -> str:
        return _MARKS[self.kind].flag
