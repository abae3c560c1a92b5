"""What a numeric error pattern suggests as a fix: sentences, each with the condition under which it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from kernellab.records import Evidence
from kernellab.records.repeats import Repeats
from kernellab.records.tried import Tried
from kernellab.sketch.program.program import Apply, Const, Load, Program
from kernellab.sketch.program.walk import statements, subvalues
from kernellab.task import Task

#: Operations that divide by a value, or whose result may not be a number.
_DIVIDES = ("div", "reduce_mean", "welford", "rcp", "rsqrt")
_NO_NUMBER = (*_DIVIDES, "log", "log2", "log1p", "sqrt", "pow", "tan", "asin", "acos")
_GROWS = ("exp", "exp2")
_LARGEST = ("max", "reduce_max", "cummax")
_SUMS = ("reduce_sum", "reduce_mean", "welford", "gemm", "dot", "cumsum", "associative_scan", "softmax")
#: Share of wrong elements that counts as "everywhere".
_EVERYWHERE = 0.95
#: An error this small relative to the output's norm is one of single elements.
_SMALL = 1e-3


@dataclass(frozen=True)
class _Failure:
    """The known facts of a failure; ``operations`` are those of the sketch, None without a readable one."""

    evidence: Evidence
    task: Task
    operations: frozenset[str] | None
    #: whether the sketch has a literal or a pad of -inf
    infinite: bool = False

    def has(self, *names: str) -> bool:
        """Whether the computation may have one of these operations."""
        return self.operations is None or not self.operations.isdisjoint(names)

    @property
    def rank(self) -> int:
        outputs, index = self.task.outputs, self.evidence.output or 0
        return len(outputs[index].shape) if index < len(outputs) else 0

    @property
    def integer(self) -> bool:
        outputs, index = self.task.outputs, self.evidence.output or 0
        return index < len(outputs) and outputs[index].dtype.startswith(("int", "uint"))

    @property
    def is_changed(self) -> bool:
        """Whether the inputs were changed after generation, so that they may contain values outside the task's."""
        return self.evidence.seed is None and bool(self.evidence.family)

    @property
    def small(self) -> bool:
        return (self.evidence.rel_frobenius or 1.0) < _SMALL

    @property
    def everywhere(self) -> bool:
        """Whether nearly all elements of this case are wrong."""
        return self.evidence.wrong_fraction is None or self.evidence.wrong_fraction >= _EVERYWHERE

    @property
    def repeated(self) -> bool:
        """Whether the errors follow a period along a dimension."""
        return self.evidence.repeats is not None

    @property
    def right_at(self) -> list[Tried]:
        """The sizes at which it is right; so the formula, the first offset and the store are right."""
        return [case for case in self.evidence.tried if case.right and case.family in ("", "inputs")]

    @property
    def right_at_more(self) -> bool:
        """Whether it is right at sizes that are all at least those of the failure, and not the same."""
        failing = self.evidence.sizes or {}
        return any(
            case.sizes != failing and all(n >= failing.get(name, n + 1) for name, n in case.sizes.items())
            for case in self.right_at
        )

    @property
    def at_some_sizes(self) -> bool:
        return any(set(case.sizes.values()) != {1} for case in self.right_at)

    @property
    def at_one(self) -> bool:
        """Whether it is right only if every size is 1, and has other sizes."""
        return bool(self.right_at) and not self.at_some_sizes and set(self.evidence.sizes.values()) != {1}

    @property
    def always(self) -> bool:
        return self.everywhere and not self.right_at


#: For an index that is wrong in some places.
_TIE = "The result is of integers: check which of equal values the reference takes, and where it rounds."

#: For results that are wrong everywhere at some sizes, and right at others.
_OF_SIZES = (
    "At that size nearly all of it is wrong, and at some others nothing: look for what depends on the size, such as a "
    "loop's bound."
)
_AT_ONE = (
    "It is right where every size is 1 alone: look for an index or a loop that is wrong from the second element on."
)

_Fix = tuple[Callable[[_Failure], bool], str]


def _always(failure: _Failure) -> bool:
    return True


def _may_overflow(failure: _Failure) -> bool:
    """Whether an exp may have an argument from which the largest is not subtracted."""
    has_maximum = bool(failure.operations) and failure.has(*_LARGEST)
    return failure.has(*_GROWS) and not has_maximum and not failure.is_changed


def _may_subtract_infinities(failure: _Failure) -> bool:
    return failure.infinite and failure.has("sub") and failure.has(*_LARGEST) and not failure.is_changed


#: Signature -> sentences with their conditions; {where} is a place such as "the load of X at N".
_FIXES: Mapping[str, tuple[_Fix, ...]] = {
    "transposed": (
        (
            lambda failure: failure.rank > 1,
            "Two dimensions are exchanged: check the index order of {where} and of the output's strides.",
        ),
    ),
    "off-by-one": (
        (lambda failure: failure.always, "Everything is moved by one element: check the start offset of {where}."),
    ),
    "off-by-scale": (
        (_always, "Every value is off by one factor."),
        (lambda failure: failure.has(*_DIVIDES), "Check the divisor (the real extent, not the tile)."),
    ),
    "off-by-constant": (
        (_always, "Every value is off by one constant: check what is added."),
        (lambda failure: failure.has(*_SUMS), "That includes the initial value of the accumulator."),
    ),
    "accumulate-dtype": (
        (
            lambda failure: failure.has(*_SUMS) and not failure.right_at_more,
            "The error grows as if sums were kept in too narrow a dtype: accumulate in a wider one (f32 for f16 and "
            "bf16, f64 for f32), or in partial sums.",
        ),
        (
            lambda failure: failure.has("sub"),
            "A difference of near numbers loses their digits (of x * x and its mean's square, say): subtract before "
            "squaring or summing, or take that part in a wider dtype.",
        ),
        (
            lambda failure: failure.right_at_more and failure.has(*_DIVIDES),
            "It is right at larger sizes, so that the number of terms does not decide: look at what is divided by, "
            "which may be near zero for the wrong elements.",
        ),
    ),
    "all-zero": (
        (
            lambda failure: failure.always,
            "The output stays zero: check that each tile is stored, and that the grid covers the whole output.",
        ),
    ),
    "identity": ((_always, "The output is an input's copy: the computation's result is never stored."),),
    "nan": (
        (_always, "NaN or inf where the reference has none."),
        (
            lambda failure: failure.has(*_NO_NUMBER) and not failure.is_changed,
            "Guard the division, root or logarithm.",
        ),
        (
            _may_overflow,
            "Subtract the largest argument of an exp.",
        ),
        (
            _may_subtract_infinities,
            "Where a maximum has seen nothing but -inf, as in a tile or a row that is masked as a whole, "
            "-inf - (-inf) is NaN: take a large finite number for the mask and the maximum's first value.",
        ),
        (
            lambda failure: failure.is_changed,
            "These inputs are not as the task draws them: where they hold NaN, check which way each comparison, "
            "maximum and minimum decides (a comparison with NaN is false).",
        ),
    ),
    "unwritten": (
        (
            lambda failure: failure.integer,
            "The wrong elements hold -1, with which the judge fills fresh memory: nothing, or -1, was stored there.",
        ),
        (
            lambda failure: not failure.integer,
            "The NaN are those of fresh memory, which also lies before and after each input: nothing was stored there, "
            "or it was computed from memory that nothing was stored to, such as an accumulator without a first value, "
            "or from an input read outside its bounds, as with a weight of 0.",
        ),
    ),
    "narrow-store": (
        (
            _always,
            "The values are right and lie closer together than the output's elements: they are stored through a "
            "pointer of a narrower type.",
        ),
    ),
    "stale": ((_always, "The result belongs to an earlier call: compute from this call's inputs only."),),
    "race": (
        (
            _always,
            "Runs differ: parallel iterations write one element or share a variable, or something is read before it is "
            "written, such as a local array without a first value.",
        ),
    ),
    "scattered": (
        (
            lambda failure: not failure.everywhere and not failure.repeated,
            "Wrong elements follow no dimension: look for a step that depends on values, such as a branch or a limit, "
            "and for a tile that is not set.",
        ),
        (lambda failure: failure.integer and not failure.repeated, _TIE),
        (
            lambda failure: not failure.integer and failure.small,
            "The error is small next to the output as a whole: look for digits that are lost where values are small, "
            "as in a difference of near numbers.",
        ),
    ),
    "wrong-values": (
        (
            lambda failure: failure.always,
            "The values are wrong everywhere: an operation, or what it is applied to, is not the reference's.",
        ),
        (lambda failure: failure.integer and not failure.everywhere and not failure.repeated, _TIE),
        (
            lambda failure: failure.evidence.wrong_fraction == 0.0,
            "Look for digits that are lost: a difference of near numbers, or a long sum that is kept in one value.",
        ),
    ),
    "ties": (
        (
            _always,
            "It is right on other inputs, and wrong where values are equal: check each comparison (< against <=), and "
            "which of equal values is taken.",
        ),
    ),
    "shape": ((_always, "The output has another shape than the reference: derive it from the inputs' sizes."),),
    "dtype": ((_always, "The output has another dtype than the reference: cast once, at the store."),),
    "count": ((_always, "The number of outputs differs from the reference's: return them all, in its order."),),
}


def fixes(evidence: Evidence, task: Task, program: Program | None, where: str) -> str:
    """The applicable sentences of the evidence's signature about the place ``where``; empty if none applies."""
    failure = (
        _Failure(evidence, task, None)
        if program is None
        else _Failure(evidence, task, frozenset(_operations(program)), _has_infinity(program))
    )
    candidates = _FIXES.get(evidence.signature or "", ())
    sentences = [sentence.format(where=where) for holds, sentence in candidates if holds(failure)]
    if candidates and evidence.repeats is not None and not failure.at_one:
        sentences = [_of_repeats(evidence.repeats), *sentences]
    if sentences or not candidates or not failure.everywhere:
        return " ".join(sentences)
    return _OF_SIZES if failure.at_some_sizes else _AT_ONE if failure.at_one else ""


def _of_repeats(repeats: Repeats) -> str:
    return (
        f"Along dimension {repeats.dimension} elements are wrong only where {repeats.words}: look for what goes in "
        f"steps of {repeats.period}, and for the part of a step that is left out, as by a mask, a shift or an offset."
    )


def _operations(program: Program) -> Iterator[str]:
    """Names of a program's operations: of its values, and of its statements (gemm)."""
    for kernel in program.kernels:
        for statement in statements(kernel.body):
            yield type(statement).__name__.lower()
            for root in statement.values:
                yield from (value.op for value in subvalues(root) if isinstance(value, Apply))


def _has_infinity(program: Program) -> bool:
    """Whether a value or a pad of the program is -inf."""
    for kernel in program.kernels:
        for statement in statements(kernel.body):
            if isinstance(statement, Load) and statement.pad == -inf:
                return True
            values = (value for root in statement.values for value in subvalues(root))
            if any(isinstance(value, Const) and value.value == -inf for value in values):
                return True
    return False
