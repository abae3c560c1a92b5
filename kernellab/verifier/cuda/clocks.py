"""The clock that gives the figures on a CUDA device, and the contradictions between clocks that refuse them.

One ``go`` covers several calls of a short kernel, so that the handshake, which varies by tens of microseconds, is
divided among them. What the judge's clock still cannot distinguish from the handshake is never reported as a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from kernellab.errors import counted
from kernellab.verifier.protocol.rules import DEVICE

Clock = Literal["judge", "device", "events"]
JUDGE: Clock = "judge"
DEVICES: Clock = "device"
EVENTS: Clock = "events"
_TINY = 1e-7


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
    def resolved(self) -> bool:
        """Can the judge's clock distinguish these calls from a handshake?"""
        return self.judge > 0 and self.judge * self.calls >= DEVICE.resolved_spreads * self.spread

    @property
    def short(self) -> bool:
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
    fits = min(DEVICE.go_bytes, free // DEVICE.go_copies) // max(size, 1)
    lasts = int(DEVICE.go_max_seconds / max(slowest, _TINY))
    return max(1, min(wanted, DEVICE.go_calls, fits, lasts))


def handshake(seconds: Sequence[float]) -> tuple[float, float]:
    """The subtracted handshake, the median, and the spread of handshakes, from the lowest tenth to the highest (s).

    One value for all sides, so that no ratio gains by it; a lower one would leave part of a go's cost in each call."""
    ordered = sorted(seconds)
    tenth = len(ordered) // 10
    return ordered[len(ordered) // 2], ordered[-1 - tenth] - ordered[tenth]


def clock_of(readings: Sequence[Reading], ranking: bool = False) -> tuple[Clock, str]:
    """The clock that gives the figures of all sides, and why it is not the judge's ("" if it is).

    The judge's is the only clock that no candidate can influence. The device's replaces it if a side is too short for
    it, or if it shows less than the device's work: the device's clock then gives the larger number. A ``ranking``
    compares kernels, not launchers, and uses the same clock for all candidates of a task: the device's, if there is
    one.
    """
    for r in readings:
        if not r.resolved:
            takes = f"{counted(r.calls, 'call')} of {r.name} {'takes' if r.calls == 1 else 'take'}"
            why = f"{takes} {r.judge * r.calls * 1e6:.0f} us next to a handshake that varies by {r.spread * 1e6:.0f} us"
        elif r.short:
            assert r.device is not None
            why = (
                f"{r.name} keeps the device busy for {r.device * 1e6:.1f} us a call, of which the judge's clock shows "
                f"{r.judge * 1e6:.1f} us"
            )
        else:
            continue
        return (DEVICES if all(r.device is not None for r in readings) else EVENTS), why
    if ranking and all(r.device is not None for r in readings):
        return DEVICES, "a ranking tells kernels apart, not launches"
    return JUDGE, ""


def left_running(tails: tuple[float, float] | None) -> float:
    """Seconds of a go for which the device worked after the answer, beyond the noise of its turns. They count as the
    candidate's time: a go ends when the device has finished, even if the worker answers earlier.

    Args:
        tails: seconds of the judge's own kernel after the answer, the candidate's and the baselines'.
    """
    return max(0.0, tails[0] - tails[1] - DEVICE.turn_noise) if tails is not None else 0.0


def disagreement(r: Reading, tails: tuple[float, float] | None, baselines: Sequence[Reading] = ()) -> str:
    """The clock that contradicts the judge's beyond what launches explain, as a sentence without its period; empty if
    none does. All in seconds of one go.

    Args:
        r: the candidate's clocks.
        tails: seconds of the judge's own kernel after the answer, the candidate's and the baselines'.
        baselines: the baselines' clocks in the same rounds. A busy machine adds the same to the baselines between the
            worker's events and the judge's clock.
    """
    wall, events, device = r.judge * r.calls, r.events * r.calls, (r.device or 0.0) * r.calls
    tolerance = max(DEVICE.clock_share * wall, DEVICE.clock_seconds, r.spread)
    # a little is counted (see left_running); more may outlast the judge's kernel, since the device's processes share
    # it in time slices
    tail_limit = max(DEVICE.turn_seconds, min(DEVICE.clock_share * wall, DEVICE.tail_seconds))
    if tails is not None and tails[0] - tails[1] > tail_limit:
        return f"work continues {(tails[0] - tails[1]) * 1e6:.0f} us after the answer"
    if events - r.gross > tolerance:
        return f"events say {events * 1e6:.0f} us, the judge's clock {r.gross * 1e6:.0f} us"
    usual = max((b.calls * (b.judge - b.events) for b in baselines), default=0.0)
    # in a launch-bound call, the host's work after the last launch also belongs to the call
    host_decides = r.launch_bound and r.resolved
    if not host_decides and wall - events - max(usual, 0.0) > DEVICE.turn_seconds + tolerance:
        return f"the judge's clock says {wall * 1e6:.0f} us, events on the worker's stream {events * 1e6:.0f} us"
    # the traced calls are other calls, at other clock rates
    if device - r.gross > 2 * tolerance:
        return f"the device was busy for {device * 1e6:.0f} us, the judge's clock says {r.gross * 1e6:.0f} us"
    if device - events > 2 * tolerance:
        return f"the device was busy for {device * 1e6:.0f} us, of which its stream's events saw {events * 1e6:.0f} us"
    return ""


def on_device(readings: Sequence[Reading]) -> float | None:
    """The ratio of eager's time to the candidate's by the device's clock; None if either is missing."""
    ours, eager = readings[0].device, next((r.device for r in readings[1:] if r.name == "eager"), None)
    return eager / ours if ours and eager else None
