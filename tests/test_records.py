"""Records that rooms hand to each other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kernellab.records import Source, Stage, StageResult, StageState
from kernellab.verifier.protocol.stats import one_line_each


def part(name: Stage, state: StageState, note: str = "") -> StageResult:
    return StageResult(name=name, state=state, seconds=0.5, note=note)


def test_a_stage_with_a_skipped_part_is_one_passed_line_that_says_what_is_missing() -> None:
    parts = [
        part(Stage.CORRECT, StageState.PASSED),
        part(Stage.ROBUST, StageState.SKIPPED, "not done yet: metamorphic checks"),
        part(Stage.ROBUST, StageState.PASSED, "no out-of-bounds writes"),
    ]
    correct, robust = one_line_each(parts)
    assert correct == parts[0]
    assert (robust.state, robust.seconds) == (StageState.PASSED, 1.0)
    assert robust.note == "not done yet: metamorphic checks; no out-of-bounds writes"


def test_a_failed_part_fails_its_stage_and_a_stage_skipped_whole_stays_skipped() -> None:
    failed = [part(Stage.HONEST, StageState.PASSED), part(Stage.HONEST, StageState.FAILED)]
    assert [s.state for s in one_line_each(failed)] == [StageState.FAILED]
    skipped = [part(Stage.FAST, StageState.SKIPPED), part(Stage.FAST, StageState.SKIPPED)]
    assert [s.state for s in one_line_each(skipped)] == [StageState.SKIPPED]


@pytest.mark.parametrize(
    "name", ["../kernel.py", "a/../../b.h", "/etc/x", "..\\x.py", "C:x.py", "\\\\host\\x", "", "."]
)
def test_no_file_of_a_source_leaves_its_folder(name: str) -> None:
    with pytest.raises(ValidationError, match="lies outside the source"):
        Source(dsl="cpp", files={"kernel.py": "", name: ""})
    assert Source(dsl="cpp", files={"kernel.py": "", "inner/part.h": ""}).files
