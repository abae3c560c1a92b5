"""Where the time goes: the judge's program counters at lines of a real kernel, and in prompts."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import cache

import pytest

from kernellab.agents.briefs import Attempt, CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.model import prompt
from kernellab.agents.model.prompts.facts import hot_text, verdict_figures
from kernellab.agents.model.prompts.route import performance_lines
from kernellab.agents.model.reply.edits import carry_lines
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.sampled import (
    _LEAST_SAMPLES,
    Samples,
    _hot_sketch_line,
    _on_single_numbers,
    rounded_shares,
    time_goes,
)
from kernellab.agents.rules.suggestions import slow_because
from kernellab.dsls.cpp import compiler
from kernellab.dsls.machine import detect_target
from kernellab.knowledge import Knowledge
from kernellab.lens.cpp.hot import HotLine, helpers_in, hot_lines
from kernellab.records import (
    Author,
    Candidate,
    Environment,
    GateResult,
    GateState,
    RouteKind,
    Source,
    Stage,
    Timing,
    Verdict,
)
from kernellab.records.counters import HotSpot, HotSpots
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions
from tests.agents.test_model_prompts import NORM, NORM_SKETCH

pytestmark = pytest.mark.skipif(
    compiler() is None or shutil.which("addr2line") is None, reason="there is no C++ compiler, or no binutils"
)
PLANTED = "float spin = y_sum; for (int k = 0; k < 400; ++k) spin = 1.0f / (spin + 1.0f);"


@cache
def lowered() -> Source:
    brief = CodeBrief(task=NORM, target=detect_target("cpp"), sketch=NORM_SKETCH)
    source = RulesCoder().code(brief).source
    assert source is not None
    return source


def slowed(source: Source) -> Source:
    """A chain of divisions for each row, whose result is right and needed."""
    text = source.files["kernel.cpp"]
    begin = "    const float y_part = "
    new = text.replace(begin, f"    {PLANTED}\n{begin}(spin > 9.0f ? spin : 0.0f) + ")
    assert new != text
    return source.model_copy(update={"files": {**source.files, "kernel.cpp": new}, "line_map": {}})


@pytest.fixture(scope="module")
def verdict(verifier: Verifier) -> Verdict:
    # few rows and no Dims: the line is as hot, and a verdict takes less
    small = NORM.text.replace('Dim("M", 1, 65536), Dim("N", 2, 16384)', "1024, 512").replace("M=4096, N=2048", "")
    task = load_task(small, NORM.name)
    assert not task.dims
    found = verifier.verify(task, slowed(lowered()), detect_target("cpp"), options=VerifyOptions(budget=0.2))
    assert found.passed, found.reason
    return found


def test_a_planted_hot_line_is_the_line_that_is_named(verdict: Verdict) -> None:
    if verdict.hot is None:
        pytest.skip("the system shows no program counters of timed calls (kernel.perf_event_paranoid above 0)")
    first, *others = hot_lines(slowed(lowered()), verdict.hot)
    assert first.text == PLANTED and first.share > 0.5, (first, others)
    assert first.arithmetic and first.bits == 0, "a chain of divisions is on single numbers"
    assert sum(line.share for line in (first, *others)) <= 1.0


def test_who_is_asked_for_something_faster_is_told_where_the_time_goes(verdict: Verdict) -> None:
    if verdict.hot is None:
        pytest.skip("the system shows no program counters of timed calls (kernel.perf_event_paranoid above 0)")
    source, target = slowed(lowered()), detect_target("cpp")
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    tried = Attempt(Candidate(id="c", source=source, sketch=NORM_SKETCH), NORM_SKETCH, gate, verdict)
    knowledge = Knowledge.load(target)
    design = DesignBrief(task=NORM, target=target, previous=NORM_SKETCH, history=(tried,))
    code = CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH, history=(tried,))
    for brief in (design, code):
        assert PLANTED[:80] in "\n".join(hot_text(brief)) and len(hot_text(brief)) <= 3
        text = prompt(brief, knowledge).messages[-1].content
        assert "samples of the kernel's time are at kernel.cpp:" in text
        unseen = replace(tried, verdict=verdict.model_copy(update={"hot": None}))
        assert "of the samples" not in prompt(replace(brief, history=(unseen,)), knowledge).messages[-1].content


def test_a_designer_is_not_sent_to_lines_of_code_that_left_its_sketch(verdict: Verdict) -> None:
    if verdict.hot is None:
        pytest.skip("the system shows no program counters of timed calls (kernel.perf_event_paranoid above 0)")
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    for author in (Author.RULES, Author.MODEL):
        kernel = Candidate(id="c", source=slowed(lowered()), sketch=NORM_SKETCH, author=author)
        brief = RouteBrief(
            task=NORM, target=detect_target("cpp"), sketch=NORM_SKETCH, gate=gate, candidate=kernel, verdict=verdict
        )
        for to in (RouteKind.DESIGNER, RouteKind.CODER):
            words, _ = slow_because(brief, to)
            assert ("samples" in words) is (author is Author.RULES or to is RouteKind.CODER), (author, to, words)


def test_spots_that_are_not_of_this_text_name_no_line() -> None:
    source = lowered()
    elsewhere = HotSpots(samples=10, spots=(HotSpot(function="no_such_function", offset=4, count=10),))
    far = HotSpots(samples=10, spots=(HotSpot(function="kernel", offset=1 << 30, count=10),))
    assert hot_lines(source, elsewhere) == hot_lines(source, far) == hot_lines(source, None) == ()


def everywhere(source: Source) -> HotSpots:
    """A sample at each of the first bytes of each function, as if its time went into all of them."""
    from kernellab.lens.cpp.build import compiled, flags_of, main_cpp

    main = main_cpp(source)
    assert main is not None
    made = compiled(tuple(sorted(source.files.items())), main, flags_of(source))
    names = set(re.findall(r"^(?!\.L)([\w.$@]+):", made.assembly, re.MULTILINE))
    spots = [HotSpot(function=name, offset=at, count=1) for name in sorted(names) for at in range(0, 1024, 4)]
    return HotSpots(samples=len(spots), spots=tuple(spots))


def at_a_line(source: Source) -> HotSpot:
    """The first sample that is at a line of the source."""
    return next(s for s in everywhere(source).spots if hot_lines(source, HotSpots(samples=1, spots=(s,))))


def test_a_hot_line_names_the_line_of_the_sketch_that_it_was_lowered_from() -> None:
    source = lowered()
    found = hot_lines(source, everywhere(source))
    # lowered code says in a comment which line of the sketch a line is of
    told = {line.line: int(of[1]) for line in found if (of := re.search(r"// (\d+): ", line.text))}
    assert len(set(told.values())) >= 2 and {line.line: line.sketch for line in found if line.line in told} == told
    sketch = NORM_SKETCH.splitlines()
    for line in found:
        if line.line in told:
            assert sketch[line.sketch - 1].strip() in line.text
    assert all(line.sketch == 0 for line in found if line.line not in source.line_map["kernel.cpp"])


def test_lines_that_an_edit_moved_name_the_same_lines_of_the_sketch() -> None:
    source = lowered()
    text = f"// by hand\n// more of it\n{source.files['kernel.cpp']}"
    moved = {"kernel.cpp": carry_lines(source.files["kernel.cpp"], text, source.line_map["kernel.cpp"])}
    edited = source.model_copy(update={"files": {**source.files, "kernel.cpp": text}, "line_map": moved})
    found = hot_lines(edited, everywhere(edited))
    told = {line.line: int(of[1]) for line in found if (of := re.search(r"// (\d+): ", line.text))}
    assert told and {line.line: line.sketch for line in found if line.line in told} == told


def test_a_prompt_names_the_line_of_the_sketch_of_a_hot_line_and_none_where_there_is_none() -> None:
    source, target = lowered(), detect_target("cpp")
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    spots = everywhere(source)
    # which line is the first of all depends on the machine: one that a line of the sketch stands for
    of_sketch = next(
        one for one in spots.spots
        if any(line.sketch for line in hot_lines(source, HotSpots(samples=1, spots=(one,))))
    )  # fmt: skip
    hot = HotSpots(samples=12, spots=(of_sketch.model_copy(update={"count": 12}),))
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot)
    for given, named in ((source, True), (source.model_copy(update={"line_map": {}}), False)):
        tried = Attempt(Candidate(id="c", source=given, sketch=NORM_SKETCH), NORM_SKETCH, gate, verdict)
        text = "\n".join(hot_text(CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH, history=(tried,))))
        assert "kernel.cpp:" in text and ("(sketch line " in text) is named
    without = CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH, history=(tried,), ablation=frozenset({"profile"}))
    assert hot_text(without) == []
    whole = RouteBrief(
        task=NORM, target=target, sketch=NORM_SKETCH, candidate=tried.candidate, verdict=verdict, gate=gate
    )  # fmt: skip
    assert "samples of the kernel" in "\n".join(performance_lines(whole)), "who says where the work goes sees it, too"
    assert "of the samples" not in "\n".join(performance_lines(replace(whole, ablation=frozenset({"profile"}))))


def test_lines_of_a_kernel_that_is_not_shown_are_not_named() -> None:
    source, target = lowered(), detect_target("cpp")
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=everywhere(source))
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    tried = Attempt(Candidate(id="c", source=source, sketch=NORM_SKETCH), NORM_SKETCH, gate, verdict)
    failed = replace(tried, verdict=Verdict(passed=False, stage=Stage.CORRECT, reason="Wrong."))
    assert hot_text(CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH, history=(tried,)))
    assert not hot_text(CodeBrief(task=NORM, target=target, sketch=NORM_SKETCH, history=(tried, failed)))


@pytest.mark.parametrize(("elsewhere", "said"), [(0, "Begin at kernel.cpp:"), (90, "look at what is around the lines")])
def test_a_line_is_where_to_begin_only_where_much_of_the_time_is(elsewhere: int, said: str) -> None:
    source = lowered()
    spots = everywhere(source).spots
    line = max(hot_lines(source, everywhere(source)), key=lambda one: one.share).line
    alone = next(
        s for s in spots if [found.line for found in hot_lines(source, HotSpots(samples=1, spots=(s,)))] == [line]
    )
    hot = HotSpots(samples=10 + elsewhere, spots=(alone.model_copy(update={"count": 10}),))
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot)
    candidate = Candidate(id="c", source=source, sketch=NORM_SKETCH)
    target = detect_target("cpp")
    brief = RouteBrief(NORM, target, NORM_SKETCH, gate, candidate, verdict, turns_left=3)
    words, _ = slow_because(brief, RouteKind.CODER)
    assert said in words and words.count("kernel.cpp:") == (not elsewhere)
    told = time_goes(source, verdict)
    assert len(told) == 1 + bool(elsewhere) and ("at no line of the kernel" in told[-1]) is bool(elsewhere)
    assert "so by the cost model the time goes into" not in words, "what was sampled stands for what a model guesses"
    listed_in_part = verdict.model_copy(update={"hot": hot.model_copy(update={"further": elsewhere})})
    around, _ = slow_because(replace(brief, verdict=listed_in_part), RouteKind.CODER)
    assert ("No line of the kernel has more than" in around) is bool(elsewhere) and "around the lines" not in around
    # samples at places that are not listed may be at its lines
    assert time_goes(source, listed_in_part) == [
        *told[:1],
        *["90% of the samples are at other lines."][: elsewhere > 0],
    ]


@pytest.mark.parametrize(
    ("own", "waiting", "called", "said"),
    [
        (12, 0, 0, "Begin at kernel.cpp:"), (12, 3, 3, "Begin at kernel.cpp:"),
        (9, 12, 3, "50% of the samples are of threads that start or wait"),
        (12, 0, 12, "50% of the samples are in the call and its host code"),
        (4, 11, 12, "44% of the samples are in the call and its host code"),
        (4, 0, 4, "8 samples do not say where its time goes"),
    ],
)  # fmt: skip
def test_what_keeps_threads_from_the_lines_is_named_for_what_it_is(
    own: int, waiting: int, called: int, said: str
) -> None:
    source, target = lowered(), detect_target("cpp")
    spots = everywhere(source).spots
    first = next(s for s in spots if hot_lines(source, HotSpots(samples=1, spots=(s,))))
    hot = HotSpots(samples=own + waiting + called, spots=(first.model_copy(update={"count": own}),), waiting=waiting)
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.001)
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    candidate = Candidate(id="c", source=source, sketch=NORM_SKETCH)
    brief = RouteBrief(NORM, target, NORM_SKETCH, gate, candidate, verdict, turns_left=3)
    words, _ = slow_because(brief, RouteKind.CODER)
    assert said in words, words
    elsewhere = {
        "threads that start or wait": waiting > called, "in the call and its host code": called > 4,
        "Begin at": "Begin" in said, "samples do not say": called == own == 4, "was not sampled": False,
    }  # fmt: skip
    assert {sentence: sentence in words for sentence in elsewhere} == elsewhere
    told = time_goes(source, verdict)
    assert sum("at kernel.cpp:" in line for line in told) == (own >= _LEAST_SAMPLES), "so few samples are chance"
    parts = "".join(line for line in told if "at no line" in line)
    assert hot.samples == 8 or ("OpenMP" in parts, "host code" in parts) == (waiting > 0, called > 0)
    busy = verdict.model_copy(update={"environment": Environment(threads=2, load=23.0)})
    words, _ = slow_because(replace(brief, verdict=busy), RouteKind.CODER)
    # threads that waited for a core say nothing of the code
    assert "threads that start or wait" not in words and "more work in one piece" not in words
    assert ("load 23" in "".join(verdict_figures(busy))) and "load" not in "".join(verdict_figures(verdict))
    by_hand = replace(brief, candidate=candidate.model_copy(update={"author": Author.MODEL}))
    words, _ = slow_because(by_hand, RouteKind.DESIGNER)
    assert "so by the cost model the time goes into" not in words, "a sketch's loops are not those of other code"
    assert ("of the samples are" in words) is (waiting > called or called > 4)
    assert "fewer" not in words, "the task decides how many outputs there are, and nothing else is made"
    spare = NORM_SKETCH.replace("out;", "out; spare[N]: f32 temp;", 1)
    words, _ = slow_because(replace(brief, sketch=spare), RouteKind.CODER)
    assert ("fewer temporary tensors" in words) is ("host code" in words)


def test_what_is_at_no_line_is_not_said_to_be_shared_by_lines() -> None:
    source = lowered()
    first = at_a_line(source)
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)

    def words(own: int) -> str:
        hot = HotSpots(samples=own + 13, spots=(first.model_copy(update={"count": own}),), waiting=7)
        verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.001)
        gate, candidate = (
            GateResult(state=GateState.RIGHT, reason=""),
            Candidate(id="c", source=source, sketch=NORM_SKETCH),
        )
        brief = RouteBrief(NORM, detect_target("cpp"), NORM_SKETCH, gate, candidate, verdict, turns_left=3)
        return slow_because(brief, RouteKind.CODER)[0]

    assert "look at the calls of them" not in words(7)
    # 7 of 20 wait and 6 are in the call: neither is most of it, and together they are
    assert "Faster lines change at most 35% of the time" in words(7)
    assert "aster lines" not in words(40)


@pytest.mark.parametrize(
    ("counts", "waiting", "words"),
    [
        ((3, 3, 3), 0, "No line of the kernel has more than"),
        ((3, 3, 3), 40, "do not say which line to change"),
        ((9, 2, 2), 40, "of the samples at the kernel's lines"),
    ],
)
def test_what_is_said_of_the_lines_fits_their_part_of_the_samples(
    counts: tuple[int, ...], waiting: int, words: str
) -> None:
    """Threads that waited for a core have most of the samples, or none."""
    source, target = lowered(), detect_target("cpp")
    lines: dict[int, HotSpot] = {}
    for spot in everywhere(source).spots:
        for line in hot_lines(source, HotSpots(samples=1, spots=(spot,))):
            lines.setdefault(line.line, spot)
    spread = counts if waiting else (3,) * len(lines)
    spots = tuple(s.model_copy(update={"count": n}) for s, n in zip(lines.values(), spread, strict=False))
    hot = HotSpots(samples=sum(s.count for s in spots) + waiting, spots=spots, waiting=waiting)
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(
        passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.1,
        environment=Environment(threads=2, load=11.0),
    )  # fmt: skip
    candidate = Candidate(id="c", source=source, sketch=NORM_SKETCH)
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    brief = RouteBrief(NORM, target, NORM_SKETCH, gate, candidate, verdict, turns_left=3)
    said, _ = slow_because(brief, RouteKind.CODER)
    every = ("No line of the kernel has", "do not say which line to change", "of the samples at the kernel's lines")
    assert words in said and sum(other in said for other in every) == 1, said


def test_samples_that_no_line_stands_out_of_are_said_to_be_shared_by_many() -> None:
    source, target = lowered(), detect_target("cpp")
    # two samples of a line are chance, and no prompt names it
    lines: dict[int, HotSpot] = {}
    for spot in everywhere(source).spots:
        for line in hot_lines(source, HotSpots(samples=1, spots=(spot,))):
            lines.setdefault(line.line, spot.model_copy(update={"count": 2}))
    hot = HotSpots(samples=2 * len(lines), spots=tuple(lines.values()), waiting=0)
    assert hot.samples >= 10
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.1)
    candidate = Candidate(id="c", source=source, sketch=NORM_SKETCH)
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    brief = RouteBrief(NORM, target, NORM_SKETCH, gate, candidate, verdict, turns_left=3)
    words, _ = slow_because(brief, RouteKind.CODER)
    assert not time_goes(source, verdict)
    assert "No line of the kernel has more than" in words and "do not say" not in words


def routed(source: Source, hot: HotSpots, sketch: str = NORM_SKETCH) -> RouteBrief:
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.01)
    candidate = Candidate(id="c", source=source, sketch=sketch)
    gate = GateResult(state=GateState.RIGHT, reason="Right.")
    return RouteBrief(NORM, detect_target("cpp"), sketch, gate, candidate, verdict, turns_left=3)


def test_that_no_vectors_are_made_is_said_of_several_lines_without_them_alone() -> None:
    def told(*bits: int, share: float = 0.3, arithmetic: bool = True) -> str:
        lines = [HotLine("k.cpp", n, "", share, 50, bits=wide, arithmetic=arithmetic) for n, wide in enumerate(bits, 7)]
        return _on_single_numbers(Samples(HotSpots(samples=50, waiting=0), lines))

    assert told(0, 0, 0).startswith("90% of the samples are at 3 lines (k.cpp:7 to 9) whose arithmetic is on single")
    assert "the compiler makes vectors" in told(0, 0)
    assert not told(512, 512, 512) and not told(0, 512, 512), "most of it is on vectors"
    assert not told(0, 0, 0, arithmetic=False), "loads and stores alone"
    assert not told(0), "one line is named as such"
    assert not told(0, 0, 0, share=0.1), "most samples are at no line"


def test_larger_iterations_are_advised_only_where_there_are_many() -> None:
    source = lowered()
    first = at_a_line(source)
    # neither the waiting threads nor the call have most of the samples, and together they have
    hot = HotSpots(samples=20, spots=(first.model_copy(update={"count": 7}),), waiting=7)
    many = routed(source, hot)
    assert "larger iterations help" in slow_because(many, RouteKind.DESIGNER)[0]
    one = NORM_SKETCH.replace('    @llm_hint("parallel", "grididx")\n', "")
    told = slow_because(routed(source, hot, one), RouteKind.DESIGNER)[0]
    assert "have 65% of the samples" in told and "larger iterations" not in told
    called = HotSpots(samples=20, spots=(first.model_copy(update={"count": 7}),), waiting=6)
    assert "larger iterations" not in slow_because(routed(source, called), RouteKind.DESIGNER)[0]
    assert "in one piece" in slow_because(many, RouteKind.CODER)[0]
    assert "in one piece" not in slow_because(routed(source, called), RouteKind.CODER)[0]


def test_a_sketch_s_hot_line_is_where_to_begin_only_where_much_of_the_time_is() -> None:
    def told(share: float, sketch: int = 3, bits: int = 512) -> str:
        return _hot_sketch_line([HotLine("k.cpp", 7, "", share, 50, sketch, bits, arithmetic=True)])

    assert told(0.6) == "The code of sketch line 3 has 60% of the samples: begin there."
    assert "vectors want an axis" in told(0.6, bits=0) and "vectors want" not in told(0.6)
    assert told(0.1).startswith("The code of no line of the sketch has more than 10% of the samples: look at what its")
    assert "look at what its" not in told(0.6)
    assert told(0.6, sketch=0) == "The samples are at code that belongs to no sketch line."


def test_helpers_with_code_of_their_own_are_named() -> None:
    packing = "_ZZN2kl12pack_uprightIffEEvPT_RKNS_6MatrixIT0_EEENKUlllE_clEll"
    own = "_ZL4tileRN2kl3VecILi8EEE"
    places = (
        ("_ZL4int4PKfPKhl._omp_fn.0", 9),
        (own, 8),
        (packing, 2),
        ("_ZN2kl5blockILi8ELi2EfEEvPT1_l", 3),
        (packing, 2),
    )
    spots = tuple(HotSpot(function=name, offset=n, count=count) for n, (name, count) in enumerate(places))
    assert helpers_in(HotSpots(samples=16, spots=spots)) == ("kl::pack_upright", "kl::block")


@pytest.mark.parametrize(("counts", "samples"), [([26, 24, 22], 151), ([9, 8, 7], 51), ([17, 8], 42), ([1, 1, 1], 7)])
def test_shares_in_whole_numbers_add_up_to_the_share_of_their_sum(counts: list[int], samples: int) -> None:
    shares = rounded_shares(counts, samples)
    assert sum(shares) == round(100 * sum(counts) / samples)
    assert all(abs(share - 100 * count / samples) < 1 for share, count in zip(shares, counts, strict=True))


def test_a_share_stands_in_advice_as_in_the_evidence() -> None:
    source = lowered()
    own = at_a_line(source).model_copy(update={"count": 3})
    hot = HotSpots(samples=18, spots=(own,), waiting=10)
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.001)
    gate, candidate = GateResult(state=GateState.RIGHT, reason=""), Candidate(id="c", source=source, sketch=NORM_SKETCH)
    brief = RouteBrief(NORM, detect_target("cpp"), NORM_SKETCH, gate, candidate, verdict, turns_left=3)
    shares = re.findall(r"(\d+)% (?:in OpenMP|of the samples are of threads)", " ".join(time_goes(source, verdict)))
    shares += re.findall(r"(\d+)% of the samples are of threads", slow_because(brief, RouteKind.CODER)[0])
    assert len(shares) == 2 and len(set(shares)) == 1, shares


def test_a_helper_with_most_of_the_time_is_the_coders_to_replace_and_a_designer_gets_the_sketchs_line() -> None:
    source = lowered()
    first = at_a_line(source).model_copy(update={"count": 4})
    helper = HotSpot(function="_ZN2klL5blockEv", offset=0, count=14)
    hot = HotSpots(samples=20, spots=(first, helper), waiting=1)
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="Right.", time=time, hot=hot, sol_ms=0.001)
    gate, candidate = GateResult(state=GateState.RIGHT, reason=""), Candidate(id="c", source=source, sketch=NORM_SKETCH)
    brief = RouteBrief(NORM, detect_target("cpp"), NORM_SKETCH, gate, candidate, verdict, turns_left=3)
    words = slow_because(brief, RouteKind.CODER)[0]
    assert "look at the calls of them" in words and "kl::block" in words and "Faster lines" not in words
    to_designer = slow_because(brief, RouteKind.DESIGNER)[0]
    assert "kl::block" in to_designer and "look at the calls" not in to_designer, "it writes no calls"
    own = brief.verdict.model_copy(
        update={"hot": HotSpots(samples=20, spots=(first.model_copy(update={"count": 20}),))}
    )
    told = slow_because(replace(brief, verdict=own), RouteKind.DESIGNER)[0]
    assert "of the sketch has" in told or "sketch line" in told
    assert ".cpp:" not in told
