"""The reference's graph, recorded at torch's dispatcher during a run: each operation, and which of its edges it
reaches.

A recorded run needs no export. It also works for references with data-dependent control flow, and costs one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from kernellab.task.meta.operators import Operators
from kernellab.verifier.protocol.rules import DRAWN
from kernellab.verifier.survey.operations import COMPARISONS, Distance, Edge, distances, facts

#: Number of calls of one operation that are distinguished; later calls are merged (an unrolled loop).
_CALLS = 24
#: Operations whose result size, or the caller's branch, depends on integer values.
SIZED_BY_VALUES = frozenset((
    "repeat_interleave", "one_hot", "bincount", "histc", "_local_scalar_dense", "item", "nonzero",
    "masked_select", "segment_reduce", "_nested_tensor_from_mask", "unique_consecutive", "_unique2",
))  # fmt: skip

#: Largest number of significand bits of exact results; fewer than a float16 has.
_FEW = 10
Tensor = torch.Tensor

#: Key of a distance: operation, number of its call, name.
Place = tuple[str, int, str]


class Watch(Operators):  # type: ignore[no-untyped-call]
    """Context in which the edges of each operation are inspected before it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        #: Every edge of the operations that ran, and whether it was reached.
        self.edges: dict[Edge, bool] = {}
        #: Distances of the first calls, for the solver.
        self.distances: dict[Place, Distance] = {}

    @property
    def reached(self) -> frozenset[Edge]:
        return frozenset(edge for edge, is_reached in self.edges.items() if is_reached)

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        op = func.overloadpacket.__name__
        op = op.removesuffix("_") if not op.startswith("__") else op
        # Operands for which an edge has no meaning (complex, quantised) are skipped.
        with suppress(RuntimeError, TypeError, KeyError, IndexError, ValueError, NotImplementedError):
            self._look(op, _bound(func, args, kwargs))
        return func(*args, **kwargs)

    def _look(self, op: str, bound: Mapping[str, Any]) -> None:
        number = min(self.calls[op], _CALLS)
        self.calls[op] += 1
        for distance in distances(op, bound):
            self._sides(op, number, distance)
        for fact in facts(op, bound):
            self._note(Edge(op, number, fact.name, fact.purpose), fact.reached)

    def _sides(self, op: str, number: int, distance: Distance) -> None:
        """Note the edges below, at and above zero of a distance, and NaN."""
        d = distance.values
        for side, mask in (("below", d < 0), ("at", d == 0), ("above", d > 0)):
            self._note(Edge(op, number, f"{distance.name} {side}", distance.purpose), bool(mask.any()))
        if distance.is_float:
            self._note(Edge(op, number, f"{distance.name} NaN", distance.for_nan), bool(d.isnan().any()))
        if number < _CALLS:
            self.distances[op, number, distance.name] = distance

    def compares_two(self, edge: Edge) -> bool:
        """Return whether ``edge`` is reached by equal elements of two tensors, so that no value determines it."""
        distance = self.distances.get((edge.op, edge.number, edge.name.removesuffix(" at")))
        return edge.name.endswith(" at") and distance is not None and distance.two_sided

    def _note(self, edge: Edge, is_reached: bool) -> None:
        self.edges[edge] = self.edges.get(edge, False) or is_reached


class Turned(Operators):  # type: ignore[no-untyped-call]
    """Context in which the ``number``-th call of the comparison ``op`` answers the other way for equal elements.
    ``of_arguments``: it compares elements of ``args`` themselves, which are equal in any order of operations."""

    def __init__(self, op: str, number: int, args: Sequence[Any]) -> None:
        super().__init__()
        self.op, self.left = op, number
        self.of_arguments = False
        self._places = {_memory(a) for a in args if isinstance(a, Tensor)}

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if func.overloadpacket.__name__ == self.op:
            self.left -= 1
            if self.left == -1:
                self.of_arguments = {_memory(a) for a in args[:2] if isinstance(a, Tensor)} <= self._places
                return result ^ (args[0] == args[1])
        return result


def _memory(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


class Exact(Operators):  # type: ignore[no-untyped-call]
    """Context in which :attr:`holds` stays true while each float result has few bits, or the digits of one of
    ``inputs``, and all divisors are powers of two. Any right computation then gives bitwise equal results, even where a
    rounding breaks ties or equal values are compared. With a dtype ``numbers``, the reference's literals (0.9) are
    rounded to that dtype."""

    def __init__(self, inputs: Sequence[Tensor] = (), numbers: torch.dtype | None = None) -> None:
        super().__init__()
        self.holds = True
        self.numbers = numbers
        #: Literals of the reference seen in the run.
        self.floats: set[float] = set()
        #: Literals by which it divided.
        self.divisors: set[float] = set()
        #: Whether a divisor was no power of two while the quotient has few digits. Adding up the divided terms then
        #: gives another result, and a GPU's fast division may.
        self.divided = False
        #: Number of elements halfway between two integers before rounding, and of floats equal to their comparand.
        self.halves = self.ties = 0
        #: Significands of the inputs that have more than few bits.
        self._digits = torch.cat([torch.empty(0, dtype=torch.float64), *map(_long_digits, inputs)])

    @property
    def has_digits(self) -> bool:
        """Whether an input has more than few bits."""
        return bool(self._digits.numel())

    def ran(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        op = func.overloadpacket.__name__.removesuffix("_")
        self.floats.update(a for a in args if isinstance(a, float))
        if op in ("div", "true_divide"):
            # torch converts a number to a tensor.
            self.divisors.update(float(a) for a in args[1:2] if not isinstance(a, Tensor) or _is_number(a))
        if self.numbers is not None:
            args = [float(torch.tensor(a, dtype=self.numbers)) if isinstance(a, float) else a for a in args]
        result = func(*args, **kwargs)
        if not self.holds or func.is_view:
            return result
        if op == "round" and isinstance(args[0], Tensor):
            self.halves += int((args[0] - args[0].floor() == 0.5).sum())
        if op in COMPARISONS and isinstance(args[0], Tensor) and args[0].is_floating_point():
            self.ties += int((args[0] == args[1]).sum())
        if op == "histc":
            self._counts(_bound(func, args, kwargs))
        if op in ("div", "true_divide", "floor_divide", "remainder", "fmod"):
            whole = op not in ("div", "true_divide") or kwargs.get("rounding_mode") is not None
            self._divides(args[0], args[1], None if whole else result)
        if op in ("mean", "var", "std", "var_mean") and isinstance(args[0], Tensor) and isinstance(result, Tensor):
            self._divides(args[0], args[0].numel() / max(result.numel(), 1), result if op == "mean" else None)
        for output in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(output, Tensor) and output.is_floating_point() and _bits(output) > _FEW:
                self.holds &= self._is_of_inputs(output)
        return result

    def _divides(self, value: Any, by: Any, quotient: Tensor | None) -> None:
        """Record a division. It is exact if the result is 0, the divisor is a power of two, or a product with the
        reciprocal rounds to the same ``quotient``."""
        if _bits(by) <= 1 or not bool(torch.as_tensor(value).any()):
            return
        self.divided = True
        if quotient is None:
            self.holds = False
            return
        for dtype in (torch.float32, torch.float64):
            divisor, rounded = torch.as_tensor(by, dtype=dtype), quotient.to(dtype)
            self.holds &= torch.equal(rounded * divisor * (1 / divisor), rounded)

    def _counts(self, bound: Mapping[str, Any]) -> None:
        """Record a histogram, whose bins are exact if their width is a power of two and the first edge has few
        digits."""
        low, high, values = float(bound["min"]), float(bound["max"]), bound["self"]
        width = (high - low) / bound["bins"]
        self.holds &= width > 0 and _bits(width) <= 1 and _bits(low) <= _FEW
        if self.holds:
            inside = values[(values >= low) & (values <= high)].double() - low
            positions = inside / width
            for dtype in (torch.float32, torch.float64):
                # Dividing by the whole range first must give the same bins.
                share = inside.to(dtype) / torch.tensor(high - low, dtype=dtype)
                self.holds &= torch.equal((share * bound["bins"]).floor().double(), positions.floor())
            self.ties += int((positions == positions.round()).sum())

    def _is_of_inputs(self, value: Tensor) -> bool:
        """Return whether each element with more than few bits has the digits of an input."""
        finite = bool(self._digits.numel()) and bool(value.isfinite().all())
        return finite and bool(torch.isin(_long_digits(value), self._digits).all())


def _is_number(value: Tensor) -> bool:
    return not value.dim() and not value.is_complex()


def _long_digits(value: Tensor) -> Tensor:
    """Return the distinct significands of a tensor's elements that have more than few bits."""
    digits = torch.frexp(torch.unique(value).double()).mantissa.abs()
    return digits[digits * 2**_FEW != (digits * 2**_FEW).round()]


def _bits(value: Any) -> int:
    """Return an upper bound on the longest significand in bits: 1, few, or 64 (also for non-finite values)."""
    x = value.double() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if not bool(x.isfinite().all()):
        return 64
    scaled = torch.frexp(x).mantissa.abs()
    return next((n for n in (1, _FEW) if bool((scaled * 2**n == (scaled * 2**n).round()).all())), 64)


def watched(reference: Callable[[Sequence[Any]], Any], args: Sequence[Any]) -> Watch:
    """Return the watch of a run of ``reference`` on ``args``; exceptions propagate."""
    watch = Watch()
    with watch:
        reference(args)
    return watch


@cache
def warmed() -> None:
    """Run once before the first survey, so that the setup of a watched run (20 ms, half of a survey's time) does not
    count. Without this, the first verdict of a judge had 15 cases of a small task, and the next 24."""
    watched(lambda args: torch.relu(args[0]) < 0.5, [torch.rand(2, 2, generator=torch.Generator().manual_seed(1))])


@dataclass(frozen=True)
class TurnedAnswers:
    """The reference's answers with a comparison decided the other way for equal elements, and where they differ."""

    answers: tuple[Tensor, ...]
    decided: tuple[Tensor, ...]
    of_arguments: bool

    @property
    def matters(self) -> bool:
        return any(bool(mask.any()) for mask in self.decided)


def turned(
    reference: Callable[[Sequence[Any]], Sequence[Tensor]], args: Sequence[Any], native: Sequence[Tensor], edge: Edge
) -> TurnedAnswers:
    """Return the answers of the reference (normally ``native``) with the comparison of ``edge`` turned."""
    with Turned(edge.op, edge.number, args) as mode:
        answers = tuple(reference(args))
    return TurnedAnswers(answers, tuple(map(apart, answers, native)), mode.of_arguments)


def apart(one: Tensor, two: Tensor) -> Tensor:
    """Return where two answers differ by more than any tolerance."""
    differ = (one != two) & ~(one.isnan() & two.isnan())
    if not one.is_floating_point() or not differ.any():
        return differ
    both_finite = one.isfinite() & two.isfinite()
    size = two[both_finite].double().square().mean().sqrt()
    return differ & (~both_finite | ((one.double() - two.double()).abs() > DRAWN.tie_rms_share * size))


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    named = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    named |= {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)}
    return named | dict(kwargs)


__all__ = [
    "SIZED_BY_VALUES",
    "Edge",
    "Exact",
    "Place",
    "TurnedAnswers",
    "Watch",
    "apart",
    "turned",
    "warmed",
    "watched",
]
