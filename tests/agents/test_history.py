"""What was tried is told in one line a round: who, what changed, what for, and what came of it."""

from __future__ import annotations

from dataclasses import replace

from kernellab.agents.briefs import Attempt, times_as_fast
from kernellab.agents.designs import design_of
from kernellab.agents.model.prompts.history import best_of, history_text
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    GateResult,
    GateState,
    Route,
    RouteKind,
    Source,
    Stage,
    Timing,
    Verdict,
)
from tests.agents.model_parts import SKETCH

RIGHT = GateResult(state=GateState.RIGHT, reason="Right on 6 small cases.", cases=6)


def timed(ms: float) -> Verdict:
    time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
    against = Comparison(baseline="eager", baseline_time=time, speedup=4 / ms, low=3.9 / ms, high=4.1 / ms)
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, comparisons=[against])


def attempt(ms: float, sketch: str = SKETCH, block: int = 64, code: str = "a", **fields: object) -> Attempt:
    source = Source(dsl="cpp", files={"kernel.cpp": code})
    by = fields.pop("coder", Author.RULES)
    candidate = Candidate(id="c", source=source, sketch=sketch, constexpr={"BLOCK": block}, author=by)
    return Attempt(candidate, sketch, RIGHT, timed(ms), **fields)  # type: ignore[arg-type]


FIRST = attempt(2.0, author=Author.RULES, rationale="Rows are independent.")
VALUE = attempt(1.0, block=128, author=Author.HUMAN, rationale="Fewer, longer rows.")
LINE = attempt(1.5, SKETCH.replace("+ 1.0", "+ 1.0 + 0.0"), 128, author=Author.MODEL, rationale="Another form.")
CODE = attempt(
    0.9, LINE.sketch or "", 128, code="BLOCK * BLOCK", author=Author.MODEL, coder=Author.MODEL, rationale="Vectors."
)


def test_each_round_names_its_author_its_change_its_reason_and_its_result() -> None:
    lines = history_text((FIRST, VALUE, LINE, CODE)).splitlines()
    assert lines[0] == (
        'Round 1 by rules: the first design; meant: "Rows are independent."; passed, 2000 us, 2.00x eager [1.95, 2.05].'
    )
    assert lines[1].startswith(
        'Round 2 by a person: BLOCK = 128 (was 64); meant: "Fewer, longer rows."; passed, 1000 us'
    )
    assert "Round 3 by model: sketch: 1 line" in lines[2] and "+ 0.0" in lines[2]
    assert (
        "Round 4 by model: kernel.cpp: 1 line, `a` -> `BLOCK * BLOCK`" in lines[3]
        and "(the best of these rounds)" in lines[3]
    )
    assert sum("the best of these rounds" in line for line in lines) == 1


def test_what_paid_what_did_not_and_what_was_not_measured_is_listed_after_some_rounds() -> None:
    text = history_text((FIRST, VALUE, LINE, CODE))
    assert "Paid, keep: BLOCK = 128 (was 64) (round 2, 2.00 times as fast)" in text
    assert "Did not pay, avoid: sketch: 1 line" in text
    assert "Not measured, try: BLOCK = 64." in text
    for title in ("Paid", "avoid", "try"):
        assert title not in history_text((FIRST, VALUE))


def test_a_short_form_keeps_the_best_round_and_no_route_is_told_twice() -> None:
    route = Route(to=RouteKind.CODER, error_class="performance", reason="slow", suggestion="Use vectors.")
    rounds = (FIRST, VALUE, attempt(1.4, block=128, route=route))
    short = history_text(rounds, 1)
    assert "Round 2 by a person" in short and "Round 3" in short and "Round 1 " not in short
    assert "Use vectors." in short and "Use vectors." not in history_text(rounds, told=route)


def test_a_failure_is_told_with_its_reason_and_is_never_the_best() -> None:
    failed = Attempt(sketch=SKETCH, verdict=Verdict(passed=False, stage=Stage.CORRECT, reason="Wrong at N=7."))
    assert "failed at correct: Wrong at N=7." in history_text((FIRST, failed))
    assert best_of((FIRST, failed)) is FIRST and best_of((failed,)) is None and best_of(()) is None


LINES = tuple(f"float v{n} = load(x, {n});" for n in range(12))


def code(*lines: str, ms: float, author: Author = Author.MODEL, meant: str = "") -> Attempt:
    return attempt(ms, code="\n".join(lines), author=author, coder=author, rationale=meant)


def test_a_change_shows_what_came_as_well_as_what_went_from_where_they_part() -> None:
    long = "const auto keep = compare_each_of_the_lanes_with_the_one_before(total, best, GREATER_OR_EQUAL);"
    old = code(*LINES, long, ms=1.0)
    new = code(*LINES, long.replace("GREATER_OR_EQUAL", "GREATER"), ms=1.0)
    told = history_text((old, new)).splitlines()[1]
    assert "OR_EQUAL);` -> `" in told and "GREATER);`" in told and told.count("...") == 2
    assert "added `float more = 1;`" in history_text((old, code(*LINES, long, "float more = 1;", ms=1.0)))
    assert f"removed `{LINES[0]}`" in history_text((old, code(*LINES[1:], long, ms=1.0)))


def test_no_line_stands_for_a_rewritten_text_and_an_include_for_no_other_change() -> None:
    old = code(*LINES, ms=1.0)
    told = history_text((old, code("#include <immintrin.h>", *(f"other({n});" for n in range(14)), ms=0.5)))
    assert "kernel.cpp: rewritten, 12 -> 15 lines" in told and "immintrin" not in told
    airy = history_text((old, code("#include <immintrin.h>", "", *(f"other({n});" for n in range(14)), ms=0.5)))
    assert "rewritten, 12 -> 16 lines" in airy, "empty lines count, as where the file is shown"
    told = history_text((old, code("#include <immintrin.h>", *LINES[:-1], "float w = 0;", ms=0.5)))
    assert "2 lines, " in told and "float w = 0;" in told and "immintrin" not in told


def test_what_paid_compares_code_of_one_kind_and_names_the_rounds_between() -> None:
    rules = attempt(4.0, code="lowered", author=Author.MODEL, coder=Author.RULES)
    by_hand = code(*LINES, ms=1.0, meant="Registers for the maximum.")
    failed = code(*LINES, "x;", ms=1.0)
    failed = Attempt(failed.candidate, SKETCH, RIGHT, Verdict(passed=False, stage=Stage.CORRECT, reason="no"))
    faster = code(*LINES, "y;", ms=0.5)
    fresh = attempt(3.6, SKETCH.replace("+ 1.0", "+ 1.0 + 0.0"), code="lowered 2", author=Author.MODEL)
    text = history_text((rules, by_hand, failed, faster, fresh))
    assert 'meant: "Registers for the maximum." (round 2, 4.00 times as fast)' in text
    assert "kernel.cpp: 1 line, added `y;` (round 4 against round 2, 2.00 times as fast); sketch: 1 line" in text
    assert "(round 5 against round 1, 1.11 times as fast)" in text, "the new design is measured against its like"
    assert "avoid" not in text


def test_code_is_compared_with_what_it_was_made_from_and_noise_is_no_lesson() -> None:
    rules = attempt(4.0, code="lowered", author=Author.MODEL, coder=Author.RULES)
    best, slower = code(*LINES, ms=1.0), code(*LINES, "gate();", ms=1.5)
    later = code(*LINES[:-1], "last();", ms=0.97)
    text = history_text((rules, best, slower, later))
    assert "Did not pay, avoid: kernel.cpp: 1 line, added `gate();` (round 3, 0.67 times as fast)" in text
    assert "Round 4 by model (from round 2)" in text and text.count("gate()") == 2, "it was not there to remove"
    verdict = slower.verdict
    assert verdict is not None
    noisy = verdict.comparisons[0].model_copy(update={"low": 1.0, "high": 9.0})
    unclear = replace(slower, verdict=verdict.model_copy(update={"comparisons": [noisy]}))
    assert "gate()" in history_text((rules, best, unclear)) and "avoid" not in history_text((rules, best, unclear))


def test_nothing_of_a_rewritten_text_is_to_be_avoided() -> None:
    """What of it took the time is not known: the same idea may pay when it is written otherwise."""
    best = code(*LINES, ms=1.0)
    slower = code(*(f"other{n}();" for n in range(len(LINES) + 3)), ms=2.0, meant="End at the length.")
    text = history_text((attempt(4.0, code="lowered", author=Author.MODEL, coder=Author.RULES), best, slower))
    assert "rewritten" in text and "avoid" not in text
    faster = code(*(f"other{n}();" for n in range(len(LINES) + 3)), ms=0.5, meant="End at the length.")
    text = history_text((attempt(4.0, code="lowered", author=Author.MODEL, coder=Author.RULES), best, faster))
    assert "Paid, keep" in text


def test_a_value_is_to_be_tried_only_where_the_best_code_has_a_use_for_it() -> None:
    assert "Not measured, try: BLOCK = 64." in history_text((FIRST, VALUE, LINE, CODE))
    unused = attempt(0.8, LINE.sketch or "", 128, code="int BLOCK = 128;", author=Author.MODEL, coder=Author.MODEL)
    assert "try" not in history_text((FIRST, VALUE, LINE, unused))


def test_a_changed_default_is_no_other_design_and_was_measured() -> None:
    other = SKETCH.replace("BLOCK = 64 in", "BLOCK = 128 in")
    text = history_text((attempt(2.0), attempt(1.5, other, 128), attempt(1.0, code="b")))
    assert "Not measured" not in text


def test_the_best_round_is_the_one_that_a_session_hands_over() -> None:
    def with_interval(ms: float, low: float) -> Attempt:
        made = timed(ms)
        against = made.comparisons[0].model_copy(update={"low": low})
        return Attempt(attempt(ms).candidate, SKETCH, RIGHT, made.model_copy(update={"comparisons": [against]}))

    sure, wide = with_interval(1.7, 3.3), with_interval(1.4, 2.9)
    assert best_of((sure, wide)) is sure and best_of((wide, sure)) is sure


def test_a_pin_is_no_part_of_a_design_and_a_default_is() -> None:
    lines = SKETCH.splitlines()
    at = next(n for n, line in enumerate(lines) if "store(" in line)
    pinned = "\n".join([*lines[:at], f"{lines[at]}  #: pin", *lines[at + 1 :]])
    assert design_of(pinned, {}) == design_of(SKETCH, {})
    assert design_of(SKETCH.replace("store(", "store(2 * "), {}) != design_of(SKETCH, {})


def test_a_ratio_of_two_kernels_is_that_of_their_speedups_which_are_paired() -> None:
    slow, fast = attempt(2.0), attempt(1.0, code="b", author=Author.MODEL, coder=Author.MODEL)
    assert slow.verdict and fast.verdict and times_as_fast(fast.verdict, slow.verdict) == 2.0
    eager = fast.verdict.comparisons[0].model_copy(update={"speedup": 5.0, "low": 4.9, "high": 5.1})
    fast = replace(fast, verdict=fast.verdict.model_copy(update={"comparisons": [eager]}))
    told = history_text((slow, fast, attempt(2.0, code="c", author=Author.MODEL, coder=Author.MODEL)))
    assert "2.50 times as fast" in told and "2.00 times as fast" not in told


def test_advice_that_the_prompt_states_as_its_own_is_not_repeated_in_a_round() -> None:
    given = Route(to=RouteKind.CODER, error_class="performance", reason="Slow.", suggestion="Begin at kernel.cpp:3.")
    told = given.model_copy(update={"suggestion": "Round 1 is still the best. Begin at kernel.cpp:3."})
    rounds = (replace(FIRST, route=given), VALUE)
    assert "sent to coder: Begin at kernel.cpp:3." in history_text(rounds)
    assert history_text(rounds, told=told).splitlines()[0].endswith("; sent to coder.")


def test_a_value_that_only_the_code_of_a_round_had_is_not_offered_as_new() -> None:
    used = "constexpr int64_t BLOCK = 64; int64_t n = BLOCK;"
    failed = attempt(0.9, LINE.sketch or "", 128, code=used, author=Author.MODEL, coder=Author.MODEL)
    last = attempt(0.8, LINE.sketch or "", 128, code=used.replace("64", "128"), author=Author.MODEL, coder=Author.MODEL)
    assert "Not measured, try: BLOCK = 64." in history_text((FIRST, VALUE, LINE, last))
    assert "BLOCK = 64." not in history_text((FIRST, VALUE, LINE, failed, last))
