"""What a comparison takes and gives: a reference's answer, the limits of its dtype, and what is wrong."""

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
    """One output of the reference: at the declared dtype, and in float64 (None for integers, and where it has none)."""

    native: Tensor
    double: Tensor | None
    #: float64 again, at inputs moved by a rounding error: what no kernel of this dtype can be asked to beat
    nudged: Tensor | None = None
    #: the magnitudes that were added up for each element, where sums may cancel: what its rounding is relative to
    summed: Tensor | None = None
    #: of integers and bools: the least and the most that roundings on the way make of each element
    between: tuple[Tensor, Tensor] | None = None
    #: of integers and bools: answers of the reference with roundings on the way, each by chance; drawn as asked for
    chance: Callable[[], Iterator[Tensor]] | None = field(default=None, compare=False, repr=False)
    #: of indices: what they select from
    selection: Selection | None = None
    #: float64's answers with sums rounded as another order of their terms may round them: what a cut in the formula
    #: (a threshold, a bin) makes of that. Only asked for when a kernel is about to be refused
    either: Callable[[], Sequence[Tensor]] | None = field(default=None, compare=False, repr=False)
    #: float64's answers with equal elements sorted in either order, where torch promises none: a row may be one of them
    #: as a whole. Asked for when a kernel is about to be refused
    tied: Callable[[], Sequence[Tensor]] | None = field(default=None, compare=False, repr=False)

    @property
    def want(self) -> Tensor:
        return self.native if self.double is None else self.double


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong. ``rule`` is shape, dtype, count, exact, non-finite or one of ``NUMERIC``."""

    rule: str
    message: str
    #: True where an element is judged wrong; None for shape and dtype
    wrong: Tensor | None = None
    rel_frobenius: float | None = None


#: complex dtypes, by the dtype of their parts
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_EXACT = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


@dataclass(frozen=True)
class Limits:
    """The numbers of one output: floor and tau of its dtype, or what the task states.

    Of a ``strict`` task's float32 output TF32 widens neither, and where torch's flags may have let eager take it, its
    own error counts once and not ``framework_factor`` times.
    """

    floor: float
    tau: float
    #: tau and a tile's norm are relative to at least this share of the whole output's rms
    share: float = 0.0
    #: how much of the framework's own error against float64 counts
    own: float = 1.0
    #: is it to be as near eager's as KernelBench asks (:mod:`kernellab.verifier.compare.close`)?
    close: bool = False
    #: the most that an element may be off of |reference| + rms, however far its limit is widened
    most: float = float("inf")

    @staticmethod
    def of(dtype: str, tolerance: dict[str, float] | None = None, tf32: bool = False) -> Limits:
        """The limits of a dtype by its name (``float32``). Raises TaskError for one that has none."""
        name = "float8" if dtype.startswith("float8") else _PARTS.get(dtype, dtype)
        if dtype in _EXACT:
            # whole numbers are compared as such: what is widened of them is widened from float32's
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
        most = ERROR.element_most.get(name, float("inf"))
        return Limits(stated.get("floor", floor), stated.get("tau", tau), most=most)

    def element(self, limit: float | None = None) -> float:
        """What an element may be off of |reference| + rms under ``limit``, by default the floor."""
        return min(ERROR.element_factor * (self.floor if limit is None else limit), self.most)

    def wider(self, by: float) -> Limits:
        """So many times float32's floor and tau, neither beyond what holds of offset inputs."""
        floor = min(by * ERROR.floor["float32"], ERROR.offset_floor)
        tau = min(by * ERROR.tau["float32"], ERROR.offset_tau)
        return replace(self, floor=max(self.floor, floor), tau=max(self.tau, tau))


#: rules that ask how large an error is, and so may be widened by the problem's conditioning; of integers, by what
#: roundings and ties leave open
NUMERIC = ("elements", "frobenius", "tile", "tau", "exact", "close", "scale")
