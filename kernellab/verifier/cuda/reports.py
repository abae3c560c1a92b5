"""What is known of a worker's calls on a device: those of one go, and the device's activity in traced ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.verifier.protocol.control import Answer, Output

if TYPE_CHECKING:
    from typing import TypeGuard


@dataclass(frozen=True)
class TimedCalls:
    """The calls of one go: the judge's time from go to done (s), the worker's event time (in ``answer``, s of all
    calls), and the time of the judge's own kernel afterwards."""

    answer: Answer
    seconds: float
    tail: float
    calls: int = 1

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs of all calls, in order."""
        return self.answer.outputs

    def outputs_of(self, call: int) -> tuple[Output, ...]:
        """The outputs of one call."""
        each = len(self.outputs) // self.calls
        return self.outputs[call * each : (call + 1) * each]


@dataclass(frozen=True)
class Traced:
    """Device activity in traced calls, as the worker reports it: these seconds prove nothing."""

    #: seconds for which the device was busy in each call
    samples: list[float] = field(default_factory=list)
    #: the same in the median call (s); None if unknown
    activity: float | None = None
    #: host seconds for the launches of a call
    launching: float | None = None
    #: a kernel that the caller's stream does not order
    unordered: str = ""
    #: was the order of streams not visible?
    unseen: bool = False

    @staticmethod
    def of(answer: Mapping[str, Any]) -> Traced:
        """The plausible values of a worker's ``answer``; the rest is dropped."""
        busy, samples, host = answer.get("busy"), answer.get("samples"), answer.get("host")
        claimed = samples[:1000] if isinstance(samples, list) else []
        return Traced(
            samples=[float(s) for s in claimed if _is_number(s) and 0 < s < 1e4],
            activity=float(busy) if _is_number(busy) and 0 < busy < 1e4 else None,
            launching=float(host) if _is_number(host) and host > 0 else None,
            unordered=str(answer.get("unordered") or "")[:200],
            unseen=answer.get("unseen") is True,
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float))
