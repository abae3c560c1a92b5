"""Every cheat and error is refused, every honest kernel passes: the part that runs without a GPU.

The exhibits that a run has chosen are shown side by side on a few warm Verifiers; each test waits for its own.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.breadth import asked

from .coverage import coverage
from .exhibit import catalogue, exhibits
from .show import Finding, Keeper

ON_CPU = [e for e in exhibits() if "cpu" in e.card.where]
#: exhibits that the Verifier does not meet yet, and what it needs to
NOT_YET: dict[str, str] = {
    "blas_behind_ending_threads": "without samples within timed calls a busy machine leaves few looks",
}
#: compile torch's headers for a minute or two, as a test of the room dsls does with a model of the same kind
BY_COMMAND = ("aten_from_cpp", "model_with_load_inline")


class Findings:
    """What was found of each exhibit. One that is not as it must be is looked at once more, with other draws and on a
    calmer machine by then; that it flickers is a warning, that it stays is a failure."""

    def __init__(self, keeper: Keeper, coming: dict[str, Future[Finding]]) -> None:
        self.keeper, self.coming = keeper, coming

    def of(self, name: str) -> Finding:
        found = self.coming[name].result()
        if not found.ok and name not in NOT_YET:
            exhibit = next(e for e in ON_CPU if e.name == name)
            again = self.keeper.submit(exhibit).result()
            if again.ok:
                warnings.warn(f"{name} flickers: {found.outcome}, {found.reason}", stacklevel=2)
            found = again
        return found


@pytest.fixture(scope="module")
def findings(request: pytest.FixtureRequest) -> Iterator[Findings]:
    """Findings to come of those exhibits that this run asks for."""
    with Keeper(jobs=min(4, len(os.sched_getaffinity(0)))) as keeper:
        names = asked(request, "name")
        chosen = [e for e in ON_CPU if e.name in names and e.name not in BY_COMMAND]
        yield Findings(keeper, {e.name: keeper.submit(e) for e in chosen})


def _params(honest: bool) -> list[object]:
    return [pytest.param(e.name, marks=_marks(e.name)) for e in ON_CPU if e.honest is honest]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.xfail(reason=NOT_YET[name], strict=False)] if name in NOT_YET else []
    return marks + ([pytest.mark.skip(reason="shown by python -m tests.zoo")] if name in BY_COMMAND else [])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _params(False))
def test_a_cheat_or_an_error_is_refused(name: str, findings: Findings) -> None:
    found = findings.of(name)
    assert found.ok, f"{found.outcome}: {found.reason} (expected {found.expected}, found {found.found})"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _params(True))
def test_an_honest_kernel_passes(name: str, findings: Findings) -> None:
    found = findings.of(name)
    assert found.ok, f"{found.outcome}: {found.reason} ({found.signature}; label {found.label!r})"


def test_each_exploit_of_the_catalogue_is_shown_or_its_absence_explained() -> None:
    shown = {n for e in exhibits() for n in e.card.catalogue}
    for entry in catalogue():
        assert entry.number in shown or entry.out_of_reach, entry
    assert {e.number for e in catalogue()} == set(range(1, 62))
    assert shown <= {e.number for e in catalogue()}
    assert "of 61 are shown" in coverage()


def test_there_are_sixty_of_each() -> None:
    kinds = exhibits()
    assert sum(not e.honest for e in kinds) >= 60
    assert sum(e.honest for e in kinds) >= 60
