"""Why an output is wrong: the evidence of its numbers, corrected by more calls at sizes and contents that are public.

The pattern of the wrong elements suggests a signature (:mod:`kernellab.verifier.compare.signature`), for example
``edge-tile`` for errors at the end of a dimension. Several causes leave one pattern, so that the candidate is then run
at other sizes: an error of the last tile does not show at whole tiles, a race differs between two calls, and values
that matter, not sizes, are wrong in constant contents too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kernellab.records import Evidence
from kernellab.records.tried import Tried, fails_at_whole_tiles, right_at_ragged_sizes
from kernellab.task.dtypes import alike, computable, finite
from kernellab.task.sample.constants import constants
from kernellab.task.sample.inputs import Family
from kernellab.verifier.boundary_checks.attempt import outputs_of
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.contrast import contrast, whole_near
from kernellab.verifier.cases.judged import Wrong
from kernellab.verifier.compare import error_places, signature
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.remedies import right_with_own_inputs
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages

#: Signatures that a comparison of aligned and ragged sizes must not override.
_CERTAIN = ("shape", "dtype", "count", "stale", "all-zero", "identity", "narrow-store")
#: Signatures whose cause shows in every draw: if other draws are right, the values decide.
_OF_ALL_VALUES = ("edge-tile", "accumulate-dtype")
#: Seconds to spend on constant contents after a wrong answer, and number of wrong ones named in the evidence.
_CONSTANTS_SECONDS, _CONSTANTS_NAMED = 1.0, 2
#: Edge of the usual tiles.
_TILE = 64


class Diagnosis:
    """Runs the candidate of ``stages`` again to find the cause of a wrong output."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def refusal(self, wrong: Wrong) -> Refused:
        """Return the refusal of a wrong output, with its evidence."""
        case, report = wrong.case, self._evidence(wrong)
        tried = contrast(self._stages.task, case, self._is_right, self._stages.context.end)
        smaller = [other for other in tried if other.sizes != dict(case.sizes)]
        if report.signature == "edge-tile":
            report = self._checked_edge(wrong, report, tried, smaller)
        report = report.model_copy(update={"tried": tried})
        if self._only_values(wrong, report, smaller):
            report = _signed(report, "wrong-values")
        if report.signature not in _CERTAIN and report.signature != "edge-tile":
            report = _signed(report, self._signature_by_calls(wrong, report) or report.signature)
        is_special = case.family is not Family.OWN or case.change or case.held
        if is_special and all(other.right for other in report.tried):
            # The values matter, not the sizes.
            report = report.model_copy(update={"tried": [*report.tried, *self.wrong_constants()]})
        return Refused(self._sentence(wrong, report), report)

    def _evidence(self, wrong: Wrong, edge: bool = True) -> Evidence:
        """Return the evidence of the numbers alone; without ``edge``, no partial tile is named as the cause."""
        stages, reference = self._stages, wrong.case.references[wrong.output]
        return evidence.of_mismatch(
            stages.source, wrong.case, wrong.output, wrong.got, reference, wrong.mismatch, earlier=stages.answers,
            edge=edge,
        )  # fmt: skip

    def _checked_edge(self, wrong: Wrong, report: Evidence, tried: list[Tried], smaller: Sequence[Tried]) -> Evidence:
        """Return the ``report`` of an edge error, or that of another cause if whole tiles are wrong too. What is run
        for it is added to ``tried``."""
        if fails_at_whole_tiles(tried):
            # Reads past an input and missing stores show at an output's end at every size.
            without_edge = self._evidence(wrong, edge=False)
            is_edge = without_edge.signature != "unwritten" and not right_at_ragged_sizes(tried)
            return report if is_edge else without_edge
        if smaller and all(other.right for other in smaller):
            # Each small ragged size is right, so that what lies at the end may be what lies beyond a size.
            whole = self._whole_above(wrong.case)
            if whole is not None and not self._is_right(whole):
                tried.append(Tried(sizes=dict(whole.sizes), family=whole.family.value, right=False))
                return self._evidence(wrong, edge=False)
        return report

    def _only_values(self, wrong: Wrong, report: Evidence, smaller: Sequence[Tried]) -> bool:
        """Return whether the case's values are the cause, not a tile or a narrow sum."""
        if wrong.mismatch.rule == "tau" and report.signature in _OF_ALL_VALUES and right_with_own_inputs(report):
            return True
        return report.signature == "accumulate-dtype" and self._loses_more_than_digits(smaller)

    def _loses_more_than_digits(self, tried: Sequence[Tried]) -> bool:
        """Return whether the smallest wrong one of the sizes that were tried is off by more than lost digits: a step
        left out is a small part of a long sum, and a large part of a short one."""
        wrong_sizes = [other.sizes for other in tried if not other.right]
        if not wrong_sizes:
            return False
        least = min(wrong_sizes, key=lambda sizes: math.prod(sizes.values()))
        wrong = self._wrong_output(cases.case(self._stages.task, dict(least), Family.OWN))
        return wrong is not None and (wrong.mismatch.rel_frobenius or 0.0) > signature.LOST_DIGITS

    def _signature_by_calls(self, wrong: Wrong, report: Evidence) -> str | None:
        """Return the signature that other calls show, whatever the numbers say: an edge error, or a race; else None."""
        differs = self._differs_again(wrong)
        # A tail error follows a dimension: its end, whole rows, or the start of the next row.
        mask = wrong.mismatch.wrong
        clustered = mask is None or (bool(mask.any()) and not error_places.scattered(mask))
        shown, expected = (
            t.abs() if t.is_complex() else computable(t)
            for t in (wrong.got, wrong.case.references[wrong.output].want)
        )  # fmt: skip
        clustered = clustered and not signature.of_rounding(shown, expected, wrong.mismatch)
        if clustered and not right_with_own_inputs(report) and self.is_edge(wrong.case):
            return "edge-tile"
        return "race" if differs else None

    def _sentence(self, wrong: Wrong, report: Evidence) -> str:
        stages, mismatch = self._stages, wrong.mismatch
        which = f"Output {wrong.output}: " if len(stages.limits) > 1 else ""
        if wrong.output >= len(stages.task.outputs):
            position = stages.written[wrong.output - len(stages.task.outputs)]
            which = f"Argument {stages.task.args[position].name!r}, which the reference writes into: "
        place = error_places.where(mismatch.wrong, wrong.got) if mismatch.wrong is not None else ""
        place = f", {place}" if place and place != report.signature else ""
        message = mismatch.message[:1].upper() + mismatch.message[1:]
        return f"{which}{message} ({wrong.case.words}){place}; {report.signature}."

    # -- sizes

    def is_edge(self, failing: Case) -> bool:
        """Return whether the candidate is right at multiples of the usual tiles (small ones and the nearest) and wrong
        next to them. Restarts the worker if it has ended."""
        task, interpreted = self._stages.task, self._stages.context.interpreted
        pairs = selection.aligned_and_ragged(task) if not interpreted or not task.dims else []
        if not pairs or all(size % _TILE == 0 for _, size in failing.sizes):
            return False  # a failure at whole tiles already answers this
        right: dict[str, list[bool]] = {"aligned": [], "ragged": []}
        if failing.family is Family.OWN and (failing.held or failing.change):
            # The pairs do not have these contents, for which a kernel may be wrong at any size.
            failing = cases.case(task, dict(failing.sizes), Family.OWN)
        for kind, case in pairs:
            if kind == "aligned" or False not in right["ragged"]:
                right[kind].append(self._is_right(case))
        if not right["aligned"] or not all(right["aligned"]):
            return False
        fails_when_small = False in right["ragged"]
        if not fails_when_small and self._is_right(failing):
            return False
        # A failure at all large sizes is not an edge error: a whole size above it is right, or small ragged ones fail.
        above = self._whole_above(failing)
        if above is not None:
            return self._is_right(above)
        near = whole_near(task, failing)
        return fails_when_small and (near is None or self._is_right(near))

    def _whole_above(self, failing: Case) -> Case | None:
        """Return the task's own inputs at the multiples of a tile above the failing sizes; None if no such case can
        run."""
        near = whole_near(self._stages.task, failing)
        sizes = dict(failing.sizes)
        above = near is not None and all(size >= sizes[name] for name, size in near.sizes)
        return near if above else None

    # -- constant contents

    def wrong_constants(self) -> list[Tried]:
        """Return the first wrong answers for constant contents at one small size, within a time limit. Neither sizes
        nor contents are secret, so all of it may be reported. Empty if the candidate is right."""
        stages = self._stages
        base = selection.public(stages.task, stages.context.interpreted)
        if base is None:
            return []
        failures: list[Tried] = []
        fresh = False
        end = min(time.monotonic() + _CONSTANTS_SECONDS, stages.context.end)
        for content in constants(stages.task, base.args):
            if time.monotonic() > end or len(failures) == _CONSTANTS_NAMED:
                break
            case = base.given(content.args).judged_as(Family.EDGES)
            if not cases.has_answer(case) or not all(map(finite, case.native)) or self._is_right(case):
                continue
            if not fresh:
                # Compute the evidence in a process that has received no secret case.
                stages.worker.close()
                fresh = True
            element = self._wrong_element(case)
            if element is not None:
                sizes = dict(case.sizes) or evidence.static_sizes(stages.task)
                contents = dict(content.contents)
                failures.append(Tried(sizes=sizes, family=case.family.value, right=False, contents=contents, **element))
        return failures

    def _wrong_element(self, case: Case) -> dict[str, Any] | None:
        """Return the first wrong element of a case as fields of :class:`Tried`, empty if there is no answer; None if it
        is right or time has run out."""
        outputs = self._outputs(case)
        if outputs is None:
            return {} if time.monotonic() < self._stages.context.end else None
        wrong = self._stages.comparison.first_wrong(case, outputs, counted=False)
        if wrong is None:
            return None
        return evidence.of_element(wrong.output, wrong.got, case.native[wrong.output], wrong.mismatch.wrong)

    # -- calls

    def _differs_again(self, wrong: Wrong) -> bool:
        """Return whether another call with the same arguments gives other values."""
        try:
            again = self._stages.worker.read(self._stages.call(wrong.case).outputs[wrong.output])
        except (WorkerFailure, IndexError):
            return False
        return again.shape == wrong.got.shape and not alike(again, wrong.got)

    def _is_right(self, case: Case) -> bool:
        outputs = self._outputs(case)
        return outputs is not None and self._stages.comparison.first_wrong(case, outputs, counted=False) is None

    def _wrong_output(self, case: Case) -> Wrong | None:
        """Return the first wrong output; None if all are right, or there is no answer."""
        outputs = self._outputs(case)
        return None if outputs is None else self._stages.comparison.first_wrong(case, outputs, counted=False)

    def _outputs(self, case: Case) -> list[Tensor] | None:
        """Return the candidate's outputs for a case, or None if they lack the reference's form or break a rule."""
        try:
            return outputs_of(self._stages, case)
        except (WorkerFailure, Refused):
            return None


def _signed(report: Evidence, name: str | None) -> Evidence:
    """Return the report with another signature."""
    return report.model_copy(update={"signature": name})
