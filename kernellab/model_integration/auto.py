"""Goes down a profile's list by itself: designs by rules, installs what is verified, and keeps what makes the model
faster, with the prediction next to the measurement for each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError, ProfileError
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.model_integration.gradient.pair import Pair
from kernellab.model_integration.measure import join
from kernellab.model_integration.ranked import Profile, Row
from kernellab.model_integration.regions import is_product
from kernellab.model_integration.swap.install import compared_in_place, install, installed, uninstall
from kernellab.model_integration.swap.swaps import Swap
from kernellab.task import load_task

if TYPE_CHECKING:
    from kernellab.session import Session
    from kernellab.session.kernel import BestKernel

#: minutes for all rows, where a call says nothing; chosen, not measured
USUAL_MINUTES = 30.0
#: a row is tried where a kernel at the bound would save this share of the step
_LEAST_GAIN = 0.01
#: a kernel is installed when it is so many times as fast as its region by itself
_LEAST_FACTOR = 1.03
#: seconds for one design, at most
_ONE = 240.0
#: a product by rules seldom beats the library's: of a region with one, this share of what its other operations could
#: gain counts, and this share of the whole's
_BESIDE_PRODUCT, _OF_PRODUCT = 0.6, 0.02


class Outcome(str, Enum):
    """What became of a row."""

    KEPT = "kept"
    TAKEN_OUT = "taken out"
    REFUSED = "refused"
    NO_KERNEL = "no kernel"
    NO_FASTER = "no faster"
    #: only of a row that was asked for by name
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Step:
    """A row that was tried; ``reason`` in a sentence.

    ``factor`` is of the kernel by itself, ``place`` in its places (on a CPU). ``predicted`` and ``measured`` are of the
    whole model with all kernels installed then, against none; None where nothing was installed."""

    row: Row
    outcome: Outcome
    seconds: float
    factor: float | None = None
    predicted: float | None = None
    measured: float | None = None
    reason: str = ""
    place: float | None = None
    #: 95 % interval of what the model gained by this kernel alone
    gained: tuple[float, float] | None = None
    #: the session's id: what ``kernellab export`` takes
    session: str = ""

    @property
    def error(self) -> float | None:
        """How far the predicted time of the model is from the measured, as a share of the measured."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured / self.predicted - 1

    @property
    def text(self) -> str:
        line = f"{self.row.number:>3} {self.row.name:<34.34} {self.outcome.value:<9}"
        if self.factor is not None:
            line += f" {self.factor:5.2f}x alone"
        if self.place is not None:
            line += f", {self.place:.2f}x in place"
        if self.predicted is not None and self.measured is not None:
            line += f"; model {self.predicted:.3f}x predicted, {self.measured:.3f}x measured"
        if self.gained is not None:
            line += f", by it [{self.gained[0]:.3f}, {self.gained[1]:.3f}]"
        return f"{line} {self.seconds:5.1f} s {self.reason}".rstrip()


def order(profile: Profile) -> list[Row]:
    """The rows that are worth a try, the likeliest gain first."""
    times = join(profile.measured, profile.captured.units)

    def likely(row: Row) -> float:
        cheap = sum(
            times[r.unit.path, op.index].forward
            for r in row.places for op in r.ops if not is_product(op) and (r.unit.path, op.index) in times
        )  # fmt: skip
        if any(is_product(op) for op in row.places[0].ops):
            return _BESIDE_PRODUCT * min(row.gain_ms, cheap) + _OF_PRODUCT * row.gain_ms
        return min(row.gain_ms, cheap)

    device = profile.measured.device_ms or 1.0
    worth = [row for row in profile.rows if row.gain_ms >= _LEAST_GAIN * device]
    return sorted(worth, key=likely, reverse=True)


def minutes_of(text: str) -> float:
    """``minutes=30`` or ``30`` as a number.

    Raises:
        ProfileError: it is no duration.
    """
    name, sign, value = text.partition("=")
    try:
        number = float(value if sign else name)
        if (sign and name != "minutes") or not number > 0:
            raise ValueError
    except ValueError:
        raise ProfileError(f"--auto {text} is not a duration.", "Write --auto minutes=30.") from None
    return number


def go_down(
    profile: Profile,
    *,
    minutes: float = USUAL_MINUTES,
    most: int | None = None,
    rows: Sequence[int | str] = (),
    tell: Callable[[Step], None] = lambda _: None,
    **options: Any,
) -> list[Step]:
    """Try rows (those named, else the list by what they are likely to gain) until the time is up or ``most`` kernels
    are in; ``options`` are :func:`kernellab.design`'s. The kernels stay installed: ``uninstall(model)`` takes them out.

    Raises:
        ProfileError: a named row is not there.
    """
    until = time.monotonic() + 60 * minutes
    steps: list[Step] = []
    kept = 0
    for row in [profile.row(which) for which in rows] or order(profile):
        left = until - time.monotonic()
        over = "the time was up" if left <= 0 else f"{most} kernels are in" if most is not None and kept >= most else ""
        if over and not rows:
            break
        there = next((swap for swap in installed(profile) if swap.row.taken & row.taken), None)
        if there is not None and not rows:
            continue
        if there is not None:
            over = f"{there.row.name}, which covers some of the same operations, is installed"
        # a row that was asked for is reported, whatever becomes of it
        step = (
            Step(row, Outcome.NOT_TRIED, 0.0, reason=f"{over}.") if over
            else _tried(profile, row, min(left, _ONE), options, named=bool(rows))
        )  # fmt: skip
        steps.append(step)
        kept += step.outcome is Outcome.KEPT
        tell(step)
    return steps


def _tried(profile: Profile, row: Row, seconds: float, options: dict[str, Any], named: bool) -> Step:
    begin = time.monotonic()
    session: Session | None = None

    def step(outcome: Outcome, reason: str = "", factor: float | None = None, swap: Swap | None = None) -> Step:
        took = time.monotonic() - begin
        session_id = session.id if session is not None else ""
        if swap is None:
            return Step(row, outcome, took, factor, reason=reason, session=session_id)
        in_place, previous = swap.gain.in_place, swap.against_previous
        return Step(
            row, outcome, took, swap.gain.speedup_alone, swap.predicted, swap.measured, reason,
            place=in_place.factor if in_place else None,
            gained=(previous.low, previous.high) if previous else None,
            session=session_id,
        )  # fmt: skip

    try:
        session = profile.open(row, **options)
        try:
            session.wait(timeout=seconds)
            best = session.best
        except KernellabError as error:
            if not session.status.ended:
                session.stop()
            return step(Outcome.NO_KERNEL, error.message)
        factor = best.verdict.speedup
        if factor is not None and factor < _LEAST_FACTOR and not named and not profile.workload.train:
            return step(Outcome.NO_FASTER, "", factor)
        pair = _trained(row, session, seconds, profile.usual(options)) if profile.workload.train else None
        swap = install(profile, row, _better(profile, row, best, pair))
    except KernellabError as error:
        return step(Outcome.REFUSED, error.message)
    if faster(swap):
        return step(Outcome.KEPT, swap=swap)
    previous = swap.against_previous
    assert previous is not None
    reason = f"the model is not faster with it: {previous.speedup:.3f}x ({previous.low:.3f} to {previous.high:.3f})"
    if named:
        return step(Outcome.KEPT, f"it was asked for by name; {reason}", swap=swap)
    uninstall(profile, row)
    return step(Outcome.TAKEN_OUT, reason, swap=swap)


def faster(swap: Swap) -> bool:
    """Is the model certainly faster with this kernel than it was with those before it? The step's own interval says so,
    or its median does where the kernel is certainly faster in its places, which shows smaller differences."""
    step, in_place = swap.against_previous, swap.gain.in_place
    if step is None or step.low > 1:
        return True
    return step.speedup > 1 and in_place is not None and in_place.low > 0


def _better(profile: Profile, row: Row, best: BestKernel, pair: Pair | None) -> BestKernel | Pair:
    """A backward kernel stays only where it is faster in the model's step than the reference's backward."""
    if pair is None:
        return best
    if (
        profile.workload.device.type != "cpu"
        or compared_in_place(profile, row, pair).share >= compared_in_place(profile, row, best).share
    ):
        return pair
    return best


def _trained(row: Row, forward: Session, seconds: float, options: dict[str, Any]) -> Pair | None:
    """The row with a backward kernel too; None where there is none, so that the backward stays the reference's."""
    from kernellab.session import design

    task = load_task(row.text, row.name)
    try:
        backward = design(backward_text(task), name=f"{row.name}_backward", **options)
    except KernellabError:
        return None
    try:
        backward.wait(timeout=seconds)
        backward.best.check_allowed()
    except KernellabError:
        if not backward.status.ended:
            backward.stop()
        return None
    return Pair(task, forward, backward)


__all__ = ["Outcome", "Step", "go_down", "minutes_of", "order"]
