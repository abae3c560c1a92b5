"""What a learner did is kept in the journal, and predictions meet their measurements."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from kernellab.errors import CourseError
from kernellab.teach.exercise import course
from kernellab.teach.progress import (
    Attempt,
    Measured,
    Pair,
    Progress,
    as_csv,
    calibration,
    read,
    record,
    stated,
    text_hash,
    tried_hash,
)


def test_predictions_are_paired_with_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "kernellab.toml").touch()
    record(stated("fused", "2x", "half the bytes"), tmp_path)
    record(stated("fused/plain", "3"), tmp_path)
    record(stated("plain", "?"), tmp_path)
    record(Measured(name="plain", ms=4.0, speedup=1.0, time=0), tmp_path)
    assert read(tmp_path).pairs() == []
    record(Measured(name="fused", ms=2.0, speedup=2.2, time=0), tmp_path)
    record(stated("fused", "9"), tmp_path)  # a later word knows the answer
    found = read(tmp_path)
    assert found.pairs() == [Pair("fused", 2.0, 2.2), Pair("fused/plain", 3.0, 2.0)]
    assert found.pairs()[1].miss == pytest.approx(1.5)
    assert calibration(found.pairs()).startswith("2 of 2 predictions were within a factor of 1.5; typical miss 1.28x")


def test_a_number_counts_after_a_skip_until_it_was_measured() -> None:
    skipped, late = stated("fast/slow", "?"), stated("fast/slow", "3")
    one, other = (Measured(name=name, ms=ms, time=0) for name, ms in (("fast", 1.0), ("slow", 2.0)))
    in_time = Progress((skipped, one, stated("fast/slow", "1.5"), other, late))
    assert in_time.pairs() == [Pair("fast/slow", 1.5, 2.0)]
    too_late = Progress((skipped, one, other, late))
    assert too_late.prediction("fast/slow") is skipped and too_late.pairs() == []


@pytest.mark.parametrize(("words", "expected"), [("2x", 2), ("1/4", 0.25), ("50%", 0.5), (".5", 0.5), ("?", None)])
def test_a_prediction_may_be_written_in_several_ways(words: str, expected: float | None) -> None:
    assert stated("a", words).expected == expected


@pytest.mark.parametrize("words", ["fast", "-2", "0", "1/0", "2xx"])
def test_what_is_no_ratio_is_refused(words: str) -> None:
    with pytest.raises(CourseError, match="is not a prediction"):
        stated("a", words)


def test_running_a_cell_again_is_no_new_attempt() -> None:
    one = Attempt(exercise="e", text=text_hash("a  \n"), reached="wrong", good=False, keys=("race",), time=0)
    other = one.model_copy(update={"text": text_hash("b")})
    assert one.text == text_hash("a")
    # another comment is no other answer
    assert tried_hash("a\n\n  # once more\nb  # here\n") == tried_hash("a\nb") != tried_hash("a\nc")
    assert Progress((one, one, one)).faults("e", "race", text_hash("a")) == 0
    assert Progress((one, one, other)).faults("e", "race", text_hash("c")) == 2
    assert Progress((one, other)).faults("e", "wrong", text_hash("c")) == 0


def test_progress_is_exported_for_a_teacher(tmp_path: Path) -> None:
    (tmp_path / "kernellab.toml").touch()
    tried = Attempt(exercise="two-inputs", text="a", reached="wrong", good=False, time=0.0)
    record(tried, tmp_path)
    record(tried.model_copy(update={"text": "b", "good": True, "time": 86400.0 * 365}), tmp_path)
    rows = list(csv.DictReader(io.StringIO(as_csv(course(), read(tmp_path)))))
    mine = next(row for row in rows if row["exercise"] == "two-inputs")
    assert (mine["points"], mine["of"], mine["tries"]) == ("1", "1", "2") and mine["first right"].startswith("197")
    assert {row["lesson"] for row in rows} >= {"01_memory", "20_narrow", "exam"}
