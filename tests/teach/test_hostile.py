"""Right sketches that take the points of a goal for nothing have none: what they are to use does nothing in them, a
tunable changes nothing, a whole row is one tile, or one constant of the starter was changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from time import thread_time

import pytest
import triton
import triton.language as tl
from teach_parts import ROOT
from triton.language import standard

from kernellab.teach.exercise import course, solution
from kernellab.teach.grading import _share
from kernellab.teach.judge import Reached, judge, judge_sketch
from kernellab.teach.read.host_code import library_fault


def _own(exercise: str, *edits: tuple[str, str]) -> str:
    text = solution(exercise)
    assert text is not None
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _by_rows(arguments: str, *body: str) -> str:
    lines = "\n        ".join(body)
    return f"""
sketch rows {{
    symbols: M, N;
    tensors: {arguments};
    @llm_hint("parallel")
    for m in range(M):
        {lines}
}}
"""


_PRODUCTS = "".join(
    f"                gemm({left}, {right}, acc)\n"
    for left, right in (("x1", "z3"), ("x3", "z1"), ("x2", "z2"), ("x1", "z2"), ("x2", "z1"), ("x1", "z1"))
)
_STEP = 'reduce_sum(associative_scan("linear", full([1], f), full([1], s), axis=0), axis=0)'
_TUNABLES = "BM = 32 in {16, 32, 64}; BN = 32 in {16, 32, 64}; BK = 32 in {16, 32, 128};"
_USELESS = f"J = 1 in {{{', '.join(map(str, range(1, 25)))}}}; BM = 32; BN = 32; BK = 32;"
_BIAS = "            load(b[n:n+BN] -> bias)"


def _recurrence(step: str, stored: str = "h") -> str:
    return _by_rows(
        "a[M, N]: f32; b[M, N]: f32; y[M, N]: f32 out", "h = 0.0", "for n in range(N):", "    load(a[m, n] -> f)",
        "    load(b[m, n] -> s)", f"    h = f * h + {step}", f"    store({stored} -> y[m, n])",
    )  # fmt: skip


def _tricks() -> Iterator[tuple[str, str, str]]:
    """Exercise, what was tried, and the sketch."""
    # bf16 that the result does not need
    yield (
        "product-of-parts",
        "times 0",
        _own("product-of-parts", (_PRODUCTS, " " * 16 + "gemm(x + 0.0 * x1, z, acc)\n")),
    )
    back = " " * 16 + "gemm(x + x1 - x1, z, acc)\n"
    yield "product-of-parts", "taken away", _own("product-of-parts", (_PRODUCTS, back))
    dead = ["gemm(x, z, acc)", 'no = alloc([B, B], f32, llm_hint=["init_zero"])', "gemm(x1, z1, no)"]
    yield "product-of-parts", "dead", _own("product-of-parts", (_PRODUCTS, "".join(" " * 16 + s + "\n" for s in dead)))
    # a scan that scans nothing
    yield "decay", "one element", _recurrence(_STEP)
    yield "decay", "times 0", _recurrence("s", f"h + 0.0 * {_STEP}")
    # a packed panel that is read for nothing
    aside = ["load(p[i, k, 0:16] -> packed)", "load(a[i*16:i*16+16, k] -> own)", "column = own + 0.0 * packed"]
    yield (
        "pack-the-panel",
        "times 0",
        _own(
            "pack-the-panel",
            ("load(p[i, k, 0:16] -> column)", ("\n" + " " * 16).join(aside)),
            ("tensors: p[(M+15)//16, K, 16]: f32 temp; b", "tensors: p[(M+15)//16, K, 16]: f32 temp; a[M, K]: f32; b"),
        ),
    )
    # tunables that change nothing
    yield (
        "open-the-space",
        "empty loop",
        _own(
            "open-the-space",
            (_TUNABLES, _USELESS),
            (_BIAS, f"{_BIAS}\n            for j in range(J):\n                acc = acc + 0.0"),
        ),
    )
    yield (
        "open-the-space",
        "dead load",
        _own("open-the-space", (_TUNABLES, _USELESS), (_BIAS, f"{_BIAS}\n            load(b[n:n+J] -> no)")),
    )
    yield (
        "open-the-space",
        "dead tile",
        _own("open-the-space", (_TUNABLES, _USELESS), (_BIAS, f"{_BIAS}\n            no = full([J], 0.0)")),
    )
    # a whole row as one tile
    row, rows = "x[M, N]: f32; y[M]: f32 out", "x[M, N]: f32; y[M, N]: f32 out"
    load = "load(x[m, 0:N] -> a)"
    yield "row-max", "whole row", _by_rows(row, load, "store(reduce_max(a, axis=0) -> y[m])")
    yield "row-mean", "whole row", _by_rows(row, load, "store(reduce_sum(a, axis=0) / N -> y[m])")
    yield "carry-on", "whole row", _by_rows(rows, load, "store(cumsum(a, axis=0) -> y[m, 0:N])")
    yield "exclusive", "whole row", _by_rows(rows, load, "store(cumsum(a, axis=0) - a -> y[m, 0:N])")
    sums = "store(top + log(reduce_sum(exp(a - top), axis=0)) -> y[m])"
    yield "exam-log-sum-exp", "whole row", _by_rows(row, load, "top = reduce_max(a, axis=0)", sums)
    both = f"{rows}; d[M, N]: f32 out"
    stores = "store(best -> y[m, 0:N])", "store(best - a -> d[m, 0:N])"
    yield "exam-running-max", "whole row", _by_rows(both, load, "best = cummax(a, axis=0)", *stores)
    yield "online-attention", "whole row", _own("online-attention", ("BN = 32 in {8, 32}", "BN = 1024"))
    # parallel iterations of which one does all
    for idle in ("for n in range(p * N, N, 64):", "if p == 37:"):
        column = ["acc = full([64], 0.0)", "for m in range(M):", "    load(x[m, n:n+64] -> a)", "    acc = acc + a"]
        column += ["store(acc -> y[n:n+64])"]
        if idle.startswith("if"):
            column = ["for n in range(0, N, 64):", *("    " + line for line in column)]
        sketch = _by_rows("x[M, N]: f32; y[N]: f32 out", idle, *("    " + line for line in column))
        yield "column-sum", idle, sketch.replace("for m in range(M):", "for p in range(64):", 1)
    # the operation that the exercise is about
    soft = "store(softmax(-a, axis=0) -> y[m, 0:N])"
    yield "safe-softmax", "softmax", _by_rows(rows, load, soft)
    # one element at a time, or one constant of the starter
    dot = ["load(a[m, 0:K] -> p)", "load(b[n, 0:K] -> q)", "store(reduce_sum(p * q, axis=0) -> y[m, n])"]
    yield "second-transposed", "element by element", _by_rows(
        "a[M, K]: f32; b[N, K]: f32; y[M, N]: f32 out", '@llm_hint("parallel")', "for n in range(N):",
        *("    " + line for line in dot),
    ).replace("symbols: M, N", "symbols: M, N, K")  # fmt: skip
    for name, op in (("column-sum", "sum"), ("exam-column-max", "max")):  # the outer symbol counts columns here
        column = "load(x[0:N, m] -> a)", f"store(reduce_{op}(a, axis=0) -> y[m])"
        yield name, "a column each", _by_rows("x[N, M]: f32; y[M]: f32 out", *column)


@pytest.mark.parametrize(("exercise", "sketch"), [pytest.param(e, s, id=f"{e}, {name}") for e, name, s in _tricks()])
def test_a_right_sketch_that_takes_points_for_nothing_has_none(exercise: str, sketch: str) -> None:
    found = course(ROOT)
    asked = found.exercise(exercise)
    task = found.task(asked)
    outcome, _ = judge_sketch(sketch, task, asked.goals)
    assert outcome.reached is Reached.GOAL, outcome.sentence
    assert _share(outcome, sketch, task, asked, found, Path()) == 0.0, outcome.sentence


@pytest.mark.parametrize("copied", [True, False])
def test_a_call_of_the_library_is_no_answer_and_no_part_of_one(copied: bool) -> None:
    """Right, and short of a goal by one launch more, it would have half of the points without a verdict."""
    copy = """sketch copy {
    symbols: M, N;
    tensors: t[M, N]: f32 temp; y[M, N]: f32 out;
    for m in range(M):
        load(t[m, 0:N] -> a)
        store(a -> y[m, 0:N])
}
"""
    made = "t[M, N]: f32 temp" if copied else "y[M, N]: f32 out"
    sketch = f"""sketch product {{
    symbols: M, N, K;
    tensors: x[M, K]: f32; w[N, K]: f32; {made};
    {made[0]} = library.linear(x, w)
}}
{copy if copied else ""}"""
    found = course(ROOT)
    asked = found.exercise("second-transposed")
    task = found.task(asked)
    outcome = judge(sketch, task, asked.goals, lambda *_: pytest.fail("it was verified"))
    assert outcome.reached is Reached.OTHER and outcome.keys[0] == "goal-library" and outcome.line == 4
    assert _share(outcome, sketch, task, asked, found, Path()) == 0.0


@pytest.mark.parametrize("ends", ["range(0, 1000000000000)", "range(0, N + 1000000000000, B)"])
def test_a_loop_that_no_size_bounds_is_not_run(ends: str) -> None:
    exercise = course(ROOT).exercise("two-inputs")
    text = _own("two-inputs", ("range(0, N, B)", ends))
    began = thread_time()
    outcome, program = judge_sketch(text, course(ROOT).task(exercise), exercise.goals)
    assert program is None and outcome.reached is Reached.UNREADABLE
    assert "iterations; at most 10 million" in outcome.sentence
    assert thread_time() - began < 10


def test_attention_without_tiles_has_half(tmp_path: Path) -> None:
    (graded := tmp_path / "one.ipynb").touch()
    exercise = course(ROOT).exercise("causal")
    task = course(ROOT).task(exercise)
    text = _own("causal", ("BM = 32 in {8, 32}; BN = 32 in {8, 32}", "BM = 1; BN = 1"))
    outcome, _ = judge_sketch(text, task, exercise.goals)
    assert outcome.keys == ("goal-traffic", "goal")
    assert _share(outcome, text, task, exercise, course(ROOT), graded) == 0.5
    wide = _own("causal", ("BM = 32 in {8, 32}; BN = 32 in {8, 32}", "BM = 16; BN = 8"))
    assert judge_sketch(wide, task, exercise.goals)[0].reached is Reached.RIGHT, "what the lesson's text promises"


_LIBRARY = """
import torch
import triton
import triton.language as tl
{imported}

@triton.jit
def rows(x, y, N, B: tl.constexpr):
    m = tl.program_id(0)
    n = tl.arange(0, B)
    v = tl.load(x + m * N + n, mask=n < N, other=-float("inf"))
    tl.store(y + m * N + n, {call}, mask=n < N)


def kernel(x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x.contiguous(), y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return y
"""


@pytest.mark.parametrize(
    ("imported", "call"),
    [
        ("", "tl.softmax(v)"),
        ("", "v.softmax()"),
        ("", "tl.standard.softmax(v)"),
        ("from triton.language import softmax as own", "own(v)"),
        ("", "getattr(tl, 'soft' + 'max')(v)"),
        ("", "tl.__dict__['softmax'](v)"),
    ],
)
def test_what_is_to_be_written_out_is_not_taken_from_tritons_library(imported: str, call: str) -> None:
    found = course(ROOT)
    asked = found.exercise("triton-softmax")
    text = _LIBRARY.format(imported=imported, call=call)
    outcome = judge(text, found.task(asked), asked.goals, lambda *_: pytest.fail("it was verified"))
    assert outcome.reached is Reached.OTHER and outcome.keys[0] == "goal-avoids"
    assert "softmax" in outcome.sentence and "\n" not in outcome.sentence
    assert _share(outcome, text, found.task(asked), asked, found, Path()) == 0.0


def test_a_function_of_the_answers_may_have_a_librarys_name() -> None:
    own = _own("triton-softmax", ("weights / tl.sum(weights, axis=0)", "softmax(weights)"))
    own = own.replace(
        "@triton.jit", "@triton.jit\ndef softmax(w):\n    return w / tl.sum(w, axis=0)\n\n\n@triton.jit", 1
    )
    assert library_fault(ast.parse(own), ["softmax"]) is None


#: functions of Triton's library that an answer may take though the reference is named so, and why
_ALLOWED = {
    ("carry-on-triton", "cumsum"): "of a block, whose size a goal limits; the carry is the exercise",
}


def test_every_exercise_in_triton_names_the_operations_that_are_to_be_written_out() -> None:
    whole = {n for n, f in vars(standard).items() if n in vars(tl) and isinstance(f, triton.JITFunction)} - {"cdiv"}
    reductions = {"sum", "max", "min", "argmax", "argmin"}
    found = course(ROOT)
    for lesson in found.lessons.values():
        for exercise in (one for one in lesson.exercise if one.goals.dsl == "triton"):
            named = set(re.findall(r"\w+", lesson.text_of(exercise).replace("log_softmax", "softmax")))
            for name in (whole - reductions) & named - {"zeros", "zeros_like", "ravel", "squeeze", "unsqueeze"}:
                assert name in exercise.goals.avoids or (exercise.id, name) in _ALLOWED, (exercise.id, name)
            if exercise.goals.avoids:
                assert "avoids" in exercise.essential, exercise.id
