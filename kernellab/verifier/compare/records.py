"""Inputs and results of a comparison: a reference's answer, the limits of its dtype, and the mismatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernellab.errors import TaskError
from kernellab.verifier.protocol.rules import ERROR

if TYPE_CHECKING:
    import torch

    from kernellab.capture.selection import Selection

    Tensor = torch.Tensor


@dataclass(frozen=True)
class Reference:
    """One output of the reference: in the declared dtype and in float64 (None for integers, or if unavailable)."""

    native: Tensor
    double: Tensor | None
    #: Float64 answer at inputs moved by a rounding error: no kernel of this dtype can be expected to be closer.
    nudged: Tensor | None = None
    #: Magnitudes summed for each element, if sums can cancel; its rounding is relative to them.
    summed: Tensor | None = None
    #: Error that adding each sum's terms one by one may leave, where equal terms follow larger ones.
    piled: Tensor | None = None
    #: For integers and bools: minimum and maximum of each element under intermediate roundings.
    between: tuple[Tensor, Tensor] | None = None
    #: For integers and bools: answers of the reference with random intermediate roundings, drawn on demand.
    chance: Callable[[], Iterator[Tensor]] | None = field(default=None, compare=False, repr=False)
    #: For indices: the values that they select from.
    selection: Selection | None = None
    #: Float64 answers with sums rounded as in another order of their terms, for thresholds and bins in the formula.
    #: Called only before a kernel is refused.
    either: Callable[[], Sequence[Tensor]] | None = field(default=None, compare=False, repr=False)
    #: Float64 answers with equal elements sorted in either order, if torch guarantees none; a whole row may match one
    #: of them. Called only before a kernel is refused.
    tied: Callable[[], Sequence[Tensor]] | None = field(default=None, compare=False, repr=False)

    @property
    def want(self) -> Tensor:
        """The float64 answer if there is one, else the native one."""
        return self.native if self.double is None else self.double


@dataclass(frozen=True)
class Errors:
    """An output next to the reference, both in float64; zero where either is not finite."""

    #: Distance of the kernel's output from the reference.
    error: Tensor
    #: Distance that roundings excuse: that of the reference at the declared dtype, and more where a problem is
    #: ill-conditioned. The limits allow ``framework_factor`` times as much.
    excused: Tensor
    #: The float64 answer of the reference.
    want: Tensor
    #: The kernel's output.
    have: Tensor


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong. ``rule`` is shape, dtype, count, exact, non-finite or one of ``NUMERIC``."""

    rule: str
    message: str
    #: True where an element is wrong; None for shape and dtype.
    wrong: Tensor | None = None
    rel_frobenius: float | None = None


#: Complex dtypes and the dtypes of their parts.
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_EXACT = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


@dataclass(frozen=True)
class Limits:
    """The limits of one output: floor and tau of its dtype, or as stated by the task.

    For a ``strict`` task's float32 output, TF32 widens neither. If torch's flags may have let eager use TF32, its own
    error counts once instead of ``framework_factor`` times.
    """

    floor: float
    tau: float
    #: Tau and a tile's norm are relative to at least this share of the whole output's rms.
    share: float = 0.0
    #: Factor of the framework's own error against float64.
    own: float = 1.0
    #: Whether the output must be as close to eager's as in KernelBench (:mod:`kernellab.verifier.compare.close`).
    close: bool = False
    #: Largest error of an element relative to |reference| + rms, however far its limit is widened.
    most: float = float("inf")

    @staticmethod
    def of(dtype: str, tolerance: dict[str, float] | None = None, tf32: bool = False) -> Limits:
        """Return the limits of a dtype by its name (``float32``). Raises TaskError if none are defined."""
        name = "float8" if dtype.startswith("float8") else _PARTS.get(dtype, dtype)
        if dtype in _EXACT:
            # Integers are compared exactly; any widening for them starts from float32's limits.
            name = "float32"
        if name not in ERROR.floor:
            raise TaskError(
                f"Outputs of dtype {dtype} cannot be judged: no limits are known for it.",
                f"Return one of {', '.join(ERROR.floor)}, a complex dtype, integers or bools.",
            )
        floor, tau = ERROR.floor[name], ERROR.tau[name]
        if tf32 and dtype == "float32":
            floor, tau = max(floor, ERROR.floor_tf32), max(tau, ERROR.tau_tf32)
        stated = tolerance or {}
        most = ERROR.element_error_max.get(name, float("inf"))
        return Limits(stated.get("floor", floor), stated.get("tau", tau), most=most)

    def element(self, limit: float | None = None) -> float:
        """Return the error allowed for an element, relative to |reference| + rms, under ``limit`` (default: the
        floor)."""
        return min(ERROR.element_factor * (self.floor if limit is None else limit), self.most)

    def wider(self, by: float) -> Limits:
        """Return the limits widened to ``by`` times float32's floor and tau, at most to the limits for offset
        inputs."""
        floor = min(by * ERROR.floor["float32"], ERROR.offset_floor)
        tau = min(by * ERROR.tau["float32"], ERROR.offset_tau)
        return replace(self, floor=max(self.floor, floor), tau=max(self.tau, tau))


#: Rules about the size of an error, which the problem's conditioning may widen; for integers, roundings and ties may.
NUMERIC = ("elements", "frobenius", "tile", "tau", "exact", "close", "scale")
