"""Which clock a figure on a CUDA device is taken from, and when clocks that contradict each other refuse it.

One ``go`` covers several calls of a short kernel, so that the handshake, which varies by tens of microseconds, is
shared out among them. What the judge's clock still cannot tell apart from the handshake is never given as a time.
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
    """The clocks of one side, medians in s; ``calls`` calls at a go.

    Args:
        judge: the judge's clock less the handshake, a call.
        gross: the judge's clock with it, a go: whatever happened between go and done took no longer.
        spread: by how much handshakes differ, a go.
        events: CUDA events on the worker's stream, a call.
        device: for how long the device was busy in a traced call; None without CUPTI.
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
        """Can the judge's clock tell these calls from a handshake?"""
        return self.judge > 0 and self.judge * self.calls >= DEVICE.resolve * self.spread

    @property
    def short(self) -> bool:
        """Does the judge's clock say less than the device worked, by more than the two may differ?"""
        if self.device is None:
            return False
        noise = min(DEVICE.clock_seconds, 2 * self.spread / self.calls)
        return self.device - self.judge > max(DEVICE.clock_share * self.device, noise)

    @property
    def launch_bound(self) -> bool:
        """Is most of a call the host's launching?"""
        return self.device is not None and self.device < DEVICE.launch_share * self.judge


def calls_at_a_go(fastest: float, slowest: float, size: int, free: int) -> int:
    """How many calls one go covers.

    Args:
        fastest, slowest: seconds of a call of the quickest and of the slowest side. The quickest decides, so that a
            side which claims to be slow gains nothing.
        size: bytes that one call's arguments and outputs take.
        free: bytes of device memory that are free.
    """
    wanted = ceil(DEVICE.go_seconds / max(fastest, _TINY))
    fits = min(DEVICE.go_bytes, free // DEVICE.go_copies) // max(size, 1)
    lasts = int(DEVICE.go_most / max(slowest, _TINY))
    return max(1, min(wanted, DEVICE.calls, fits, lasts))


def handshake(seconds: Sequence[float]) -> tuple[float, float]:
    """What is subtracted, the median, and by how much handshakes differ, from the lowest tenth to the highest (s).

    One value for all sides, so that no ratio gains by it; a lower one would leave what a go costs in each call."""
    ordered = sorted(seconds)
    tenth = len(ordered) // 10
    return ordered[len(ordered) // 2], ordered[-1 - tenth] - ordered[tenth]


def clock_of(readings: Sequence[Reading], ranking: bool = False) -> tuple[Clock, str]:
    """The clock that the figures of all sides are taken from, and why it is not the judge's ("" when it is).

    The judge's is the only clock that no candidate can reach. It gives way to the device's where a side is too short
    for it, or where it says less than the device worked: what the device's clock says is then the larger number. A
    ``ranking`` tells kernels apart, not launchers, and all of a task's by the same clock: the device's, where there is
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
    """Seconds of a go that the device worked on after the answer, beyond what turns of it differ by. They are the
    candidate's time: a go ends when the device has come to its end, whoever says so earlier.

    Args:
        tails: seconds of the judge's own kernel after the answer, the candidate's and the baselines'.
    """
    return max(0.0, tails[0] - tails[1] - DEVICE.turn_noise) if tails is not None else 0.0


def disagreement(r: Reading, tails: tuple[float, float] | None, beside: Sequence[Reading] = ()) -> str:
    """Which clock contradicts the judge's beyond what launches explain, in a sentence without its period; empty when
    none does. All in seconds of one go.

    Args:
        r: the candidate's clocks.
        tails: seconds of the judge's own kernel after the answer, the candidate's and the baselines'.
        beside: the baselines' clocks in the same rounds. What a busy machine adds between the worker's events and the
            judge's clock, it adds to them as well.
    """
    wall, events, device = r.judge * r.calls, r.events * r.calls, (r.device or 0.0) * r.calls
    most = max(DEVICE.clock_share * wall, DEVICE.clock_seconds, r.spread)
    # a little is counted, as left_running says; more may outlast the judge's kernel, since the device's processes share
    # it in slices of time
    left = max(DEVICE.turn_seconds, min(DEVICE.clock_share * wall, DEVICE.tail_seconds))
    if tails is not None and tails[0] - tails[1] > left:
        return f"work continues {(tails[0] - tails[1]) * 1e6:.0f} us after the answer"
    if events - r.gross > most:
        return f"events say {events * 1e6:.0f} us, the judge's clock {r.gross * 1e6:.0f} us"
    usual = max((b.calls * (b.judge - b.events) for b in beside), default=0.0)
    # of a call that its launches bound, what the host does after the last of them is the call's as well
    hosts = r.launch_bound and r.resolved
    if not hosts and wall - events - max(usual, 0.0) > DEVICE.turn_seconds + most:
        return f"the judge's clock says {wall * 1e6:.0f} us, events on the worker's stream {events * 1e6:.0f} us"
    # the traced calls are others, at other clocks
    if device - r.gross > 2 * most:
        return f"the device was busy for {device * 1e6:.0f} us, the judge's clock says {r.gross * 1e6:.0f} us"
    if device - events > 2 * most:
        return f"the device was busy for {device * 1e6:.0f} us, of which its stream's events saw {events * 1e6:.0f} us"
    return ""


def on_device(readings: Sequence[Reading]) -> float | None:
    """The ratio of eager's time to the candidate's by the device's clock; None where there is nothing to compare."""
    ours, eager = readings[0].device, next((r.device for r in readings[1:] if r.name == "eager"), None)
    return eager / ours if ours and eager else None
