"""The clock that gives the figures on a CUDA device, and the contradictions between clocks that refuse them.

In: for each side (the candidate first, then the baselines) the medians of its clocks, a :class:`Reading`. Out: the
clock whose times are reported (:func:`clock_of`), and a sentence if clocks contradict each other
(:func:`disagreement`).

One ``go`` covers several calls of a short kernel, so that the handshake (the path from the judge's signal to the answer
without any call), which varies by tens of microseconds, is divided among them. What the judge's clock still cannot
distinguish from the handshake is never reported as a time::

    judge   |--handshake--|--call--|--call--|...|--call--|      gross, minus the handshake: judge
    worker                |---- events on its stream ----|      events
    device                | busy |  | busy |     | busy |       device (traced in other calls)
    judge's tiny kernel                                  |-|    tail: longer if work was left running
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from kernellab.errors import counted
from kernellab.verifier.protocol.rules import DEVICE

Clock = Literal["judge", "device", "events"]
JUDGE: Clock = "judge"
DEVICES: Clock = "device"
EVENTS: Clock = "events"
#: seconds below which a call's time counts as this, so that nothing divides by zero
_TINY = 1e-7


class Handshake(NamedTuple):
    """Seconds of a go without a call: the median, which is subtracted, and the spread from the lowest tenth to the
    highest."""

    median: float
    spread: float


class Tails(NamedTuple):
    """Seconds of the judge's own kernel after the answer, medians after the candidate's goes and the baselines'."""

    candidate: float
    baselines: float

    @property
    def excess(self) -> float:
        """Seconds for which the device worked longer after the candidate's answers."""
        return self.candidate - self.baselines


class ChosenClock(NamedTuple):
    """The clock that gives the figures of all sides, and why it is not the judge's ("" if it is)."""

    clock: Clock
    reason: str


@dataclass(frozen=True)
class Reading:
    """The clocks of one side, medians in s, with ``calls`` calls per go.

    Args:
        judge: the judge's clock minus the handshake, per call.
        gross: the judge's clock with it, per go: an upper bound for everything between go and done.
        spread: the spread of handshakes, per go.
        events: CUDA events on the worker's stream, per call.
        device: time for which the device was busy in a traced call; None without CUPTI.
    """

    name: str
    judge: float
    gross: float
    spread: float
    events: float
    device: float | None
    calls: int = 1

    @property
    def is_resolved(self) -> bool:
        """Can the judge's clock distinguish these calls from a handshake?"""
        return self.judge > 0 and self.judge * self.calls >= DEVICE.resolved_spreads * self.spread

    @property
    def hides_device_work(self) -> bool:
        """Does the judge's clock show less than the device's work, by more than the allowed difference?"""
        if self.device is None:
            return False
        noise = min(DEVICE.clock_seconds, 2 * self.spread / self.calls)
        return self.device - self.judge > max(DEVICE.clock_share * self.device, noise)

    @property
    def launch_bound(self) -> bool:
        """Is most of a call the host's launching?"""
        return self.device is not None and self.device < DEVICE.launch_share * self.judge


def calls_at_a_go(fastest: float, slowest: float, size: int, free: int) -> int:
    """The number of calls in one go.

    Args:
        fastest, slowest: seconds of a call of the fastest and of the slowest side. The fastest decides, so that a side
            which claims to be slow gains nothing.
        size: bytes of one call's arguments and outputs.
        free: bytes of free device memory.
    """
    wanted = ceil(DEVICE.go_seconds / max(fastest, _TINY))
    fits_in_memory = min(DEVICE.go_bytes, free // DEVICE.go_copies) // max(size, 1)
    fits_in_time = int(DEVICE.go_max_seconds / max(slowest, _TINY))
    return max(1, min(wanted, DEVICE.go_calls, fits_in_memory, fits_in_time))


def handshake(seconds: Sequence[float]) -> Handshake:
    """The handshake that is subtracted: one for all sides, so that no ratio gains by it. A lower one than the median
    would leave part of a go's cost in each call."""
    ordered = sorted(seconds)
    tenth = len(ordered) // 10
    return Handshake(ordered[len(ordered) // 2], ordered[-1 - tenth] - ordered[tenth])


def clock_of(readings: Sequence[Reading], ranking: bool = False) -> ChosenClock:
    """The clock that gives the figures of all sides.

    The judge's is the only clock that no candidate can influence. The device's replaces it if a side is too short for
    it, or if it shows less than the device's work: the device's clock then gives the larger number. A ``ranking``
    compares kernels, not launchers, and uses the same clock for all candidates of a task: the device's, if there is
    one.
    """
    has_device = all(r.device is not None for r in readings)
    for r in readings:
        if not r.is_resolved or r.hides_device_work:
            return ChosenClock(DEVICES if has_device else EVENTS, _not_by_judge(r))
    if ranking and has_device:
        return ChosenClock(DEVICES, "a ranking tells kernels apart, not launches")
    return ChosenClock(JUDGE, "")


def _not_by_judge(r: Reading) -> str:
    """Why the judge's clock cannot time a side, as a sentence without its period."""
    if not r.is_resolved:
        takes = f"{counted(r.calls, 'call')} of {r.name} {'takes' if r.calls == 1 else 'take'}"
        return f"{takes} {r.judge * r.calls * 1e6:.0f} us next to a handshake that varies by {r.spread * 1e6:.0f} us"
    assert r.device is not None
    return (
        f"{r.name} keeps the device busy for {r.device * 1e6:.1f} us a call, of which the judge's clock shows "
        f"{r.judge * 1e6:.1f} us"
    )


def left_running(tails: Tails | None) -> float:
    """Seconds of a go for which the device worked after the answer, beyond the noise of its turns. They count as the
    candidate's time: a go ends when the device has finished, even if the worker answers earlier."""
    return max(0.0, tails.excess - DEVICE.turn_noise) if tails is not None else 0.0


@dataclass(frozen=True)
class _Go:
    """The candidate's clocks in seconds of one go, what may differ between them, and what the baselines' differ by."""

    #: the judge's clock without the handshake, and with it
    wall: float
    gross: float
    events: float
    device: float
    tolerance: float
    #: seconds between the baselines' events and the judge's clock: a busy machine adds the same to all sides
    usual_delay: float
    #: in a launch-bound call, the host's work after the last launch also belongs to the call
    host_decides: bool


def _work_continues(go: _Go, tails: Tails | None) -> str:
    # a little is counted (see left_running); more may outlast the judge's kernel, since the device's processes share
    # it in time slices
    limit = max(DEVICE.turn_seconds, min(DEVICE.clock_share * go.wall, DEVICE.tail_seconds))
    if tails is None or tails.excess <= limit:
        return ""
    return f"work continues {tails.excess * 1e6:.0f} us after the answer"


def _events_beyond_judge(go: _Go) -> str:
    if go.events - go.gross <= go.tolerance:
        return ""
    return f"events say {go.events * 1e6:.0f} us, the judge's clock {go.gross * 1e6:.0f} us"


def _judge_beyond_events(go: _Go) -> str:
    if go.host_decides or go.wall - go.events - go.usual_delay <= DEVICE.turn_seconds + go.tolerance:
        return ""
    return f"the judge's clock says {go.wall * 1e6:.0f} us, events on the worker's stream {go.events * 1e6:.0f} us"


# the traced calls are other calls, at other clock rates: twice the tolerance


def _device_beyond_judge(go: _Go) -> str:
    if go.device - go.gross <= 2 * go.tolerance:
        return ""
    return f"the device was busy for {go.device * 1e6:.0f} us, the judge's clock says {go.gross * 1e6:.0f} us"


def _device_beyond_events(go: _Go) -> str:
    if go.device - go.events <= 2 * go.tolerance:
        return ""
    return (
        f"the device was busy for {go.device * 1e6:.0f} us, of which its stream's events saw {go.events * 1e6:.0f} us"
    )


#: the contradictions between two clocks, in the order in which they are reported
_CONTRADICTIONS: tuple[Callable[[_Go], str], ...] = (
    _events_beyond_judge,
    _judge_beyond_events,
    _device_beyond_judge,
    _device_beyond_events,
)


def disagreement(r: Reading, tails: Tails | None, baselines: Sequence[Reading] = ()) -> str:
    """The clock that contradicts the judge's beyond what launches explain, as a sentence without its period; empty if
    none does.

    Args:
        r: the candidate's clocks.
        tails: None if there are no baselines.
        baselines: the baselines' clocks in the same rounds.
    """
    wall = r.judge * r.calls
    go = _Go(
        wall=wall,
        gross=r.gross,
        events=r.events * r.calls,
        device=(r.device or 0.0) * r.calls,
        tolerance=max(DEVICE.clock_share * wall, DEVICE.clock_seconds, r.spread),
        usual_delay=max([0.0, *(b.calls * (b.judge - b.events) for b in baselines)]),
        host_decides=r.launch_bound and r.is_resolved,
    )
    continues = _work_continues(go, tails)
    return continues or next(filter(None, (contradicts(go) for contradicts in _CONTRADICTIONS)), "")


def on_device(readings: Sequence[Reading]) -> float | None:
    """The ratio of eager's time to the candidate's by the device's clock; None if either is missing."""
    ours, eager = readings[0].device, next((r.device for r in readings[1:] if r.name == "eager"), None)
    return eager / ours if ours and eager else None
