"""The exam is another one for each student: every variant can be solved, and by no answer to another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from teach_parts import ROOT, toml

from kernellab.task import Task, load_task
from kernellab.teach.exercise import course, filled, solution, variants
from kernellab.teach.grading import seed_of
from kernellab.teach.judge import Reached, judge_sketch

ROWS = {row["id"]: row for row in toml(ROOT / "notebooks" / "exercises" / "exam.toml")["exercise"]}


def _task(exercise: str, values: dict[str, str]) -> Task:
    return load_task(filled(ROWS[exercise]["task"], values), course(ROOT).exercise(exercise).name)


def _near(row: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Each variant, with those that differ from it in one choice by one place."""
    every = variants(row["vary"])
    for at, values in enumerate(every):
        for group in row["vary"]:
            here = next(n for n, table in enumerate(group) if table.items() <= values.items())
            other = {**values, **group[(here + 1) % len(group)]}
            yield at, every.index(other)


@pytest.mark.parametrize(
    ("exercise", "at"), [(e, at) for e, r in ROWS.items() for at in range(len(variants(r["vary"])))]
)
def test_a_variant_is_solved_by_its_answer_and_not_by_that_of_the_next(exercise: str, at: int) -> None:
    every, goals = variants(ROWS[exercise]["vary"]), course(ROOT).exercise(exercise).goals
    task = _task(exercise, every[at])
    own = solution(exercise, every[at]) or ""
    assert not re.search(r"@[A-Z]+@", own + task.text), "a choice has no value"
    outcome, program = judge_sketch(own, task, goals)
    assert program is not None, outcome.sentence
    for other in (to for start, to in _near(ROWS[exercise]) if start == at):
        outcome, program = judge_sketch(solution(exercise, every[other]) or "", task, goals)
        assert program is None, (every[other], outcome.sentence)
        assert outcome.reached in (Reached.WRONG, Reached.UNREADABLE), (every[other], outcome.sentence)


@pytest.mark.parametrize("exercise", ROWS)
def test_no_two_variants_ask_for_the_same(exercise: str) -> None:
    every = variants(ROWS[exercise]["vary"])
    assert len(every) >= 12

    @cache
    def results(at: int, given: int) -> tuple[torch.Tensor, ...] | None:
        """Of variant ``at``, with the inputs of ``given``; None where they are not of its types and shapes."""
        names: list[dict[str, Any]] = [{}, {}]
        for one, number in zip(names, (at, given), strict=True):
            exec(_task(exercise, every[number]).text, one)
        torch.manual_seed(0)
        made, own = names[1]["inputs"](), names[0]["inputs"]()
        made, own = (x if isinstance(x, tuple) else (x,) for x in (made, own))
        if [(x.shape, x.dtype) for x in made] != [(x.shape, x.dtype) for x in own]:
            return None
        found = names[0]["reference"](*made)
        return found if isinstance(found, tuple) else (found,)

    for one in range(len(every)):
        for other in range(one):
            got, want = results(other, one), results(one, one)
            assert want is not None
            if got is not None:
                assert any((a - b).norm() > 1e-2 * b.norm() for a, b in zip(got, want, strict=True)), (one, other)


def test_a_secret_draws_every_variant_and_two_students_seldom_share_one() -> None:
    drawn = [course(ROOT, seed_of(f"student {n}", "a word")).lesson("exam") for n in range(60)]
    for exercise in ROWS:
        seen = [str(next(e.vary for e in lesson.exercise if e.id == exercise)) for lesson in drawn]
        assert len(set(seen)) >= 10 and max(map(seen.count, seen)) <= 15
    assert len({str([e.vary for e in lesson.exercise]) for lesson in drawn}) == 60
