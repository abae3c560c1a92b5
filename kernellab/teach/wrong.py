"""Which elements of an output are wrong: the failing case of the gate run once more, as a map that can be drawn.

A map has a mark for each element of a small output (``..x.`` is a row with one error). Of a larger one each mark stands
for a band of rows and columns, so that smaller sizes which fail alike are looked for first: a learner sees each element
there. Known mistakes are found the same way, by comparing a sketch with a wrong reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING

from kernellab.errors import KernellabError
from kernellab.sketch.gate.cases import Case, cases
from kernellab.sketch.gate.compare import wrong64, wrong_declared
from kernellab.sketch.gate.reference import reference64
from kernellab.sketch.gate.run_case import in_tf32
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.program import Program
from kernellab.sketch.run import execute
from kernellab.sketch.run.confined import one_worker
from kernellab.task import Task
from kernellab.task.dtypes import parts

if TYPE_CHECKING:
    import torch

    from kernellab.teach.exercise import Mistake

    Tensor = torch.Tensor

#: an output of fewer elements says little of the pattern: another failing case is looked for
_FEW = 24
#: elements from which a pattern shows, and the most that are looked at
_ENOUGH, _MANY = 128, 4096
#: the fault of an output that holds another of the reference's results
EXCHANGED = "exchanged"
#: rows and columns that are drawn; a larger output is shown in bands, each wrong where anything in it is
ROWS, COLUMNS = 24, 64
#: cases of the gate that are tried, at most
_CASES = 12


@dataclass(frozen=True)
class ErrorMap:
    """The errors of one output. A Verifier's map has no ``shape`` and no ``count``: of its output only the map is
    known."""

    output: str
    #: the case, in words
    at: str
    shape: tuple[int, ...]
    #: marks over the last two dimensions of ``shape``: '.' right, 'x' wrong, 'n' not finite, 'u' never stored
    rows: tuple[str, ...]
    #: index of the first wrong element, and both sides' values there
    first: tuple[int, ...]
    got: float
    want: float
    #: number of wrong elements
    count: int
    signature: str
    #: the number, from 1, of the reference's result that ``output`` holds instead; 0 where it holds none
    other: int = 0

    @property
    def words(self) -> str:
        """The picture as a sentence, for those who do not see it."""
        place = f", first at {list(self.first)}" if self.first else ""
        if not self.count:
            return f"Where {self.output} is wrong at {self.at}{place}; a mark may stand for several elements."
        where = f"{self.output}{list(self.shape)}"
        return f"{self.count} of {prod(self.shape)} elements of {where} are wrong at {self.at}{place}."


@one_worker()
def wrong_elements(program: Program, task: Task, sizes: Mapping[str, int]) -> ErrorMap | None:
    """The map at the gate's failing ``sizes``; at a failing size that shows more where these are too small to show a
    pattern, or too large to draw each element. None where none fails again."""
    at_gate = next(_failures(program, task, sizes), None)
    if at_gate is not None and not _drawn_whole(at_gate):
        return _smaller(at_gate, program, task, sizes)
    if at_gate is not None and prod(at_gate.shape) >= _FEW:
        return at_gate
    largest = at_gate
    for failure in _failures(program, task):
        if largest is None or prod(largest.shape) < prod(failure.shape) <= _MANY:
            largest = failure
        if prod(largest.shape) >= _ENOUGH:
            break  # a learner waits
    return largest


def _drawn_whole(wrong: ErrorMap) -> bool:
    """Has each element of the output a mark?"""
    wide = wrong.shape[-1] if wrong.shape else 1
    return wide <= COLUMNS and prod(wrong.shape) // wide <= ROWS


def _smaller(wrong: ErrorMap, program: Program, task: Task, sizes: Mapping[str, int]) -> ErrorMap:
    """The map at sizes below ``sizes`` where as much fails, at least half as large a share: each is halved until it
    fits, or no smaller one does. With the signature of ``wrong``, which shows more of the fault's kind."""
    smallest, failing = wrong, dict(sizes)
    least_share = wrong.count / prod(wrong.shape) / 2
    for dim in sorted(task.dims, key=lambda one: -failing.get(one.name, 0)):
        # a search by halves between the smallest size that shows the fault and the largest that does not
        hides = dim.min - 1
        while failing.get(dim.name, 0) > ROWS and failing[dim.name] - hides > 1 and not _drawn_whole(smallest):
            tried = {**failing, dim.name: (failing[dim.name] + hides) // 2}
            failure = _failure_at(program, task, tried)
            if failure is None or prod(failure.shape) < _FEW or failure.count < least_share * prod(failure.shape):
                hides = tried[dim.name]
            else:
                smallest, failing = replace(failure, signature=wrong.signature), tried
    return smallest


def _failure_at(program: Program, task: Task, sizes: Mapping[str, int]) -> ErrorMap | None:
    """The map of usual inputs at ``sizes``; None where the program is right there or does not run."""
    for binding in _bindings(program, task):
        with suppress(KernellabError, RuntimeError):
            case = Case(task.module().sample(sizes, seed=0), sizes)
            error_map = _error_at(program, binding, task, case)
            if error_map is not None:
                return error_map
    return None


def _failures(program: Program, task: Task, sizes: Mapping[str, int] | None = None) -> Iterator[ErrorMap]:
    """The first cases that fail, or those of ``sizes`` alone."""
    for binding in _bindings(program, task):
        with suppress(KernellabError, RuntimeError):
            for case in islice(cases(program, binding, task), _CASES):
                if sizes is None or dict(case.sizes) == dict(sizes):
                    error_map = _error_at(program, binding, task, case)
                    if error_map is not None:
                        yield error_map


@one_worker()
def fails(program: Program, task: Task) -> bool:
    """Is the program wrong at some of the gate's cases?"""
    return next(_failures(program, task), None) is not None


@one_worker()
def ends(program: Program, task: Task) -> bool:
    """Does the program end in an error at one of the gate's cases?"""
    for binding in _bindings(program, task):
        try:
            for case in islice(cases(program, binding, task), _CASES):
                _error_at(program, binding, task, case)
        except (KernellabError, RuntimeError):
            return True
    return False


def mistake_key(number: int) -> str:
    return f"mistake-{number}"


def mistake_of(program: Program, task: Task, mistakes: Sequence[Mistake]) -> int | None:
    """Which known wrong reference the sketch computes, by its numbers at the gate's cases; None for none of them."""
    from kernellab.task import load_task

    for number, mistake in enumerate(mistakes):
        with suppress(KernellabError):
            other = load_task(f"{task.text}\n{mistake.reference}", task.name)
            if not fails(program, other):
                return number
    return None


def _bindings(program: Program, task: Task) -> Iterator[Binding]:
    """With the smallest tiles, and with the sketch's own."""
    for values in ({c.name: min(c.choices) for c in program.tunables}, {}):
        with suppress(KernellabError):
            yield bind(program, task, dict(values))


def _error_at(program: Program, binding: Binding, task: Task, case: Case) -> ErrorMap | None:
    """The map of the first output that is wrong at ``case``; None where all are right."""
    declared = tuple(map(parts, task.module().results(case.args)))
    exact = reference64(task, case.args)
    symbols = binding.sizes(lambda position, dim: case.args[position].shape[dim])
    symbols |= {name: int(declared[number].shape[dim]) for name, (number, dim) in binding.of_outputs.items()}
    constexpr = {**binding.constexpr, **{name: case.args[place] for name, place in binding.scalars.items()}}
    sizes, inputs = {**dict(program.sizes), **symbols}, binding.inputs(case.args)
    # by the gate's rules: float64 shows wrong arithmetic, the declared types what their range and rounding do to it
    for f64 in (True, False) if exact is not None else (False,):
        run = execute(program, inputs, symbols=sizes, constexpr=constexpr, f64=f64)
        results = exact if f64 and exact is not None else declared
        for number, bound in enumerate(binding.outputs):
            exact_result = exact[number] if exact is not None else None
            want = exact_result if f64 and exact_result is not None else declared[number]
            got = run.outputs[bound.tensor].reshape(want.shape)
            if f64:
                _, wrong = wrong64(got, want)
            else:
                _, wrong = wrong_declared(got, want, exact_result, tf32=in_tf32(program))
            if bool(wrong.any()):
                written = run.written[bound.tensor].reshape(want.shape)
                error_map = _map_of(bound.tensor, case, got.double(), want.double(), wrong, written)
                other = _exchanged_with(got, results, number)
                return error_map if other is None else replace(error_map, other=other + 1, signature=EXCHANGED)
    return None


def _exchanged_with(got: Tensor, results: Sequence[Tensor], number: int) -> int | None:
    """The number of the reference's result, other than ``number``, that ``got`` equals: outputs are matched in the
    order of their declarations. None where it equals none, or is too small to tell."""
    if got.numel() < 2:
        return None
    for at, result in enumerate(results):
        if at != number and result.shape == got.shape and not bool(wrong64(got.double(), result.double())[1].any()):
            return at
    return None


def _map_of(name: str, case: Case, got: Tensor, want: Tensor, wrong: Tensor, written: Tensor) -> ErrorMap:
    """The map of output ``name``; ``wrong`` and ``written`` mark its elements."""
    import torch

    from kernellab.verifier.compare.error_places import first_wrong
    from kernellab.verifier.compare.records import Mismatch
    from kernellab.verifier.compare.signature import numeric

    first = first_wrong(wrong)
    tensors = [a.double() for a in case.args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    rule = "non-finite" if bool((~got.isfinite() & wrong).any()) else "elements"
    missing = wrong & ~written
    if bool(missing.any()) and bool((missing == wrong).all()):
        signature = "unwritten"
    else:
        signature = numeric(got, want, Mismatch(rule, "", wrong), inputs=tensors)
    place = tuple(first)
    return ErrorMap(
        output=name, at=case.at, shape=tuple(want.shape), rows=_picture(wrong, got, written), first=place,
        got=float(got[place]), want=float(want[place]), count=int(wrong.sum()), signature=signature,
    )  # fmt: skip


def _picture(wrong: Tensor, got: Tensor, written: Tensor) -> tuple[str, ...]:
    """A mark for each element of the last two dimensions, or for each of at most ROWS x COLUMNS bands of them: the
    first of never stored, not finite, wrong that holds of a wrong element in it."""
    wide = wrong.shape[-1] if wrong.dim() else 1
    flat = (-1, wide) if wrong.dim() > 1 else (1, -1)
    wrong, got, written = (t.reshape(flat) for t in (wrong, got, written))
    marks = (("u", wrong & ~written), ("n", wrong & ~got.isfinite()), ("x", wrong))
    columns = _bands(wrong.shape[1], COLUMNS)
    return tuple(
        "".join(next((mark for mark, where in marks if bool(where[row, column].any())), ".") for column in columns)
        for row in _bands(wrong.shape[0], ROWS)
    )


def _bands(length: int, most: int) -> list[slice]:
    """``length`` places cut into at most ``most`` slices of nearly one length, none of them empty."""
    count = min(length, most)
    return [slice(n * length // count, (n + 1) * length // count) for n in range(count)]
