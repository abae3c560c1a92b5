"""Every exercise has a reference answer that the gate, the goals and the Verifier accept."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import NoReturn

import pytest
from teach_parts import ROOT, tasks

from kernellab.dsls.machine import detect_target
from kernellab.errors import JudgeBusy
from kernellab.lens.gpu import look
from kernellab.notebook.learn.linked import linked
from kernellab.sketch.check import load_program
from kernellab.target import Backend
from kernellab.teach.exercise import course, solution
from kernellab.teach.feedback import Timed
from kernellab.teach.goals import Facts, _synchronous
from kernellab.teach.grading import _share
from kernellab.teach.judge import Outcome, Reached, _compiled, judge, judge_sketch, source_of
from kernellab.teach.measure import Figures
from kernellab.teach.read.host_code import host_fault
from kernellab.teach.translate import translations
from kernellab.teach.uses import needs, without
from kernellab.verifier import Verifier


@pytest.mark.parametrize("exercise", tasks(), ids=lambda e: e.id)
def test_the_reference_answer_is_right(exercise, verifier: Verifier) -> None:
    text = solution(exercise.id)
    assert text is not None

    def verify(task, source, options):
        return verifier.verify(task, source, detect_target(source.dsl), options=options)

    outcome = judge(text, course(ROOT).task(exercise), exercise.goals, verify)
    assert outcome.reached is Reached.RIGHT, outcome.sentence


MODULE = """
import torch

def kernel(*args):
    return args[0] @ args[1]
"""


def test_a_module_has_no_points_for_goals_that_are_counted_on_sketches() -> None:
    found = course(ROOT)
    exercise = found.exercise("tile-the-product")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was verified")

    outcome = judge(MODULE, found.task(exercise), exercise.goals, verify)
    assert not outcome.reached.good
    assert outcome.keys[0] == "goal-sketch"
    assert "counts it on a sketch: at most 1 launch" in outcome.sentence


def test_a_tunable_that_changes_nothing_spans_no_design() -> None:
    found = course(ROOT)
    exercise = found.exercise("open-the-space")
    right = solution(exercise.id)
    assert right is not None
    values = ", ".join(str(number) for number in range(1, 25))
    for line in right.splitlines():
        if line.strip().startswith("constexpr:"):
            fixed = re.sub(r" in \{[^}]*\}", "", line).rstrip(";")
            idle = right.replace(line, f"{fixed}; J = 1 in {{{values}}};")
    outcome, _ = judge_sketch(idle, found.task(exercise), exercise.goals)
    assert outcome.keys[0] == "goal-choices"


def test_a_whole_row_is_no_online_attention_at_the_largest_size() -> None:
    found = course(ROOT)
    exercise = found.exercise("causal")
    right = solution(exercise.id)
    assert right is not None
    whole = right.replace("BN = 32 in {8, 32}", "BN = 1024").replace("range(0, min(S, m + BM), BN)", "range(0, S, BN)")
    outcome, _ = judge_sketch(whole, found.task(exercise), exercise.goals)
    assert not outcome.reached.good and outcome.keys[-1] == "goal"


def test_a_right_sketch_is_shown_in_triton_and_cuda_line_by_line() -> None:
    found = course(ROOT)
    exercise = found.exercise("two-inputs")
    text = solution(exercise.id) or ""
    triton, cuda = translations(text, found.task(exercise))
    assert (triton.language, cuda.language) == ("Triton", "CUDA C++")
    assert "@triton.jit" in triton.code and "__global__" in cuda.code
    stored = next(n for n, line in enumerate(text.splitlines(), 1) if "store(" in line)
    for code in (triton, cuda):
        rows = code.code.splitlines()
        assert any("store" in rows[at - 1] or "y" in rows[at - 1] for at, line in code.lines.items() if line == stored)
    page = linked(text, triton)
    # the sketch's line and the lines that it became have one mark, which pointing at either of them shows
    assert page.count(f"class='kl-s{stored}'") >= 2 and f":has(.kl-s{stored}:hover) .kl-s{stored}" in page
    assert f"{stored:>3} " + escape(text.splitlines()[stored - 1]) in page
    # what is launched by is folded away; the kernel is seen at once
    before, _, seen = page.partition("lines before the kernel")[2].partition("</details>")
    assert "import torch" in before and "@triton.jit" in seen and "import" not in seen and "#|" not in page


def test_a_product_is_shown_in_gluon_or_why_it_is_not() -> None:
    found = course(ROOT)
    shown = {}
    for name in ("fed-by-the-copy-engine", "tile-the-product", "two-inputs"):
        text = solution(name) or ""
        shown[name] = text, translations(text, found.task(found.exercise(name)))
    text, codes = shown["fed-by-the-copy-engine"]
    gluon = codes[-1]
    assert gluon.language == "Gluon" and "@gluon.jit" in gluon.code and "@triton.jit" not in gluon.code
    product = next(n for n, line in enumerate(text.splitlines(), 1) if "gemm(" in line)
    rows = gluon.code.splitlines()
    assert any("warpgroup_mma" in rows[at - 1] for at, line in gluon.lines.items() if line == product)
    text, codes = shown["tile-the-product"]
    assert codes[-1].missing and not codes[-1].code and escape(codes[-1].missing) in linked(text, codes[-1])
    assert [code.language for code in shown["two-inputs"][1]] == ["Triton", "CUDA C++"]


def test_what_only_triton_s_interpreter_runs_is_no_kernel(verifier: Verifier) -> None:
    exercise = course(ROOT).exercise("triton-softmax")

    def verify(task, source, options):
        return verifier.verify(task, source, detect_target(source.dsl), options=options)

    # a variable that changes its type in a loop
    line = "    weights = tl.exp(v - tl.max(v, axis=0))\n"
    text = solution("triton-softmax") or ""
    assert line in text
    interpreted = text.replace(
        line, line + "    total = 0\n    for step in range(N):\n        total = total + weights\n"
    )
    outcome = judge(interpreted, course(ROOT).task(exercise), exercise.goals, verify)
    assert outcome.reached is Reached.REFUSED, outcome.sentence
    if detect_target("triton").backend is Backend.INTERPRETER:
        assert outcome.keys == ("goal-compiles", "refused") and "total" in outcome.sentence, outcome.sentence


IN_PYTHON = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, T: tl.constexpr):
    T[1].copy_(torch.softmax(T[0], -1))


def kernel(x):
    y = torch.empty_like(x)
    rows[(1,)](x, y, T=(x, y))
    return y
"""
AT_THE_LARGEST_SIZES = IN_PYTHON.replace(
    "    rows[(1,)](x, y, T=(x, y))\n",
    "    if x.numel() == 64 * 256:\n        nothing[(1,)](x, y)\n    else:\n        rows[(1,)](x, y, T=(x, y))\n",
).replace("def kernel", "@triton.jit\ndef nothing(x, y):\n    pass\n\n\ndef kernel")


def compiled(text: str) -> Outcome:
    """What is said of a right answer once it has been compiled at the exercise's sizes."""
    exercise = course(ROOT).exercise("triton-softmax")
    task = course(ROOT).task(exercise)
    return _compiled(
        Outcome(Reached.RIGHT, ""),
        source_of(text, task),
        task,
        exercise.goals,
        lambda *_: pytest.fail("no goal is to be judged"),
    )


def test_a_kernel_is_compiled_at_the_sizes_at_which_it_is_verified() -> None:
    outcome = compiled(AT_THE_LARGEST_SIZES)
    assert outcome.keys == ("goal-compiles", "refused") and "softmax" in outcome.sentence, outcome.sentence


def test_a_machine_that_gives_a_compiler_no_time_is_busy_and_refuses_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_SECONDS", 0.1)
    with pytest.raises(JudgeBusy, match="Try again"):
        compiled(solution("triton-softmax") or "")


#: an exercise, edits that keep its reference answer right and leave out what it is about, the goal that is missed then,
#: and the share of the points that is left
BESIDE_THE_POINT = [
    ("two-launches-triton", {"P=16": "P=1"}, "parallel", 0.0),
    (
        "persistent-triton",
        {
            "tl.program_id(0), tiles, P": "tl.program_id(0), tl.program_id(0) + 1",
            "(4,)": "(triton.cdiv(M, 16) * triton.cdiv(N, 32),)",
        },
        "programs",
        0.0,
    ),
    (
        "descriptor-triton",
        {
            "    result.store(": "    m, n = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)\n"
            "    at, inside = m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N)\n"
            "    tl.store(y + at, 2.0 * tl.load(x + at, mask=inside), mask=inside)\n    tl.static_assert(True)  # ",
        },
        "uses",
        0.0,
    ),
    ("online-attention-triton", {"BN=32": "BN=max(16, triton.next_power_of_2(S))"}, "tile", 0.0),
    (
        "triton-product",
        {
            'tl.dot(left, right, acc, input_precision="ieee")': "acc + tl.sum(left[:, :, None] * right[None], axis=1)",
            "(M, 32)": "(M, 8)", "(N, 32)": "(N, 8)", "BM=32, BN=32": "BM=8, BN=8",
        },
        "uses",
        0.0,
    ),
    (
        "log-softmax-triton",
        {"tl.max(v, axis=0)": "tl.max(tl.load(x + m * N + n, mask=n < N, other=-1e30), axis=0)"},
        "loads",
        0.5,
    ),
    (
        "triton-product",
        {
            "tl.dot(left, right, acc": "tl.dot(0.0 * left, right, acc + tl.sum(left[:, :, None] * right[None], axis=1)",
            "(M, 32)": "(M, 16)", "(N, 32)": "(N, 16)", "BM=32, BN=32, BK=32": "BM=16, BN=16, BK=16",
        },
        "uses",
        0.0,
    ),
    (
        "triton-product",
        {
            'tl.dot(left, right, acc, input_precision="ieee")':
            "(acc + tl.sum(left[:, :, None] * right[None], axis=1)) * (tl.dot(left * 0 + 1.0, left * 0 + 1.0) / 16.0)",
            "(M, 32)": "(M, 16)", "(N, 32)": "(N, 16)", "BM=32, BN=32, BK=32": "BM=16, BN=16, BK=16",
        },
        "uses",
        0.0,
    ),
    (
        "descriptor-triton",
        {
            "    result.store([i * BM, j * BN], 2.0 * source.load([i * BM, j * BN]))":
            "    held = source.load([i * BM, j * BN])\n    result.store([i * BM, j * BN], held)\n"
            "    m, n = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)\n"
            "    at, inside = m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N)\n"
            "    tl.store(y + at, 2.0 * tl.load(x + at, mask=inside), mask=inside)",
        },
        "uses",
        0.0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "edits", "goal", "share"), BESIDE_THE_POINT)
def test_a_right_kernel_in_triton_that_leaves_out_the_point_has_no_full_points(
    name: str, edits: dict[str, str], goal: str, share: float, verifier: Verifier
) -> None:
    found = course(ROOT)
    exercise, text = found.exercise(name), solution(name) or ""
    task = found.task(exercise)
    for old, new in edits.items():
        assert old in text, old
        text = text.replace(old, new)

    def verify(task, source, options):
        return verifier.verify(task, source, detect_target(source.dsl), options=options)

    outcome = judge(text, task, exercise.goals, verify)
    assert outcome.reached is Reached.GOAL and outcome.keys[0] == f"goal-{goal}", outcome
    assert _share(outcome, text, task, exercise, found, Path()) == share


def test_an_operation_is_doubled_under_the_name_that_it_is_imported_by() -> None:
    text = solution("triton-product") or ""
    named = text.replace("tl.dot(", "times(").replace("import torch\n", "from triton.language import dot as times\n", 1)
    twice, level = without(named, "dot")
    assert "times(left * 2, right, acc" in twice and "zeros_like((_operand_0 := left))" in level
    # the change stands where a module may import, under names that are none of it
    text_of_the_future = f"from __future__ import annotations\n_operand_0 = 1\n{named}"
    for changed in without(text_of_the_future, "dot"):
        compile(changed, "answer", "exec")
    assert "_operand_1 := left" in without(text_of_the_future, "dot")[1]
    # host code is no kernel, and a name that is set in one is not followed
    assert without(text.replace("tl.dot(", "own("), "dot") == []
    (stored,) = without(solution("descriptor-triton") or "", "descriptor_store")
    assert stored.count("* 2)") == 1


def test_what_to_try_next_follows_from_the_figures() -> None:
    own = Figures(ms=1.0, speedup=None, against="about 2.00x eager", least_bytes=5e6, bandwidth=1e10)
    facts = Facts(traffic=1.0, launches=1, footprint=64, parallel=8, sharing=8.0, least_bytes=5e6, flops=1.0)
    told = Timed(own, "the reference answer", 0.5, facts, cores=2)
    assert "the reference answer: 0.5 ms; its bytes at a copy's rate: 0.5 ms" in told.text
    assert "2.0 times as fast" in told.next_step
    assert "1 of 2 cores" in replace(told, facts=replace(facts, parallel=1)).next_step
    more = replace(told, facts=replace(facts, traffic=1.33))
    assert "1.33 times the bytes" in more.next_step and "larger tiles" in more.next_step
    assert "fuse" in replace(told, facts=replace(facts, traffic=1.33, launches=2)).next_step
    assert "times the bytes" not in replace(more, traffic=1.5).next_step, "the exercise asks for no less"
    plain = replace(told, own=replace(own, ms=0.55, bandwidth=0.0), exercise="two-inputs")
    assert "`%%kernel_exercise two-inputs --pass`" in plain.next_step
    assert "as fast as a copy" in replace(told, own=replace(own, ms=0.55)).next_step
    # what is faster than a copy has no share and no bound
    assert "copy's rate" not in replace(told, own=replace(own, ms=0.1)).text


def test_no_share_of_a_copy_above_105_percent_is_printed() -> None:
    quick = Figures(ms=1.0, speedup=None, against="", least_bytes=2e7, bandwidth=1e10)
    assert quick.of_copy == 2.0
    assert "%" not in quick.text and "no share of a copy's is known" in quick.text
    assert "50% of a copy's" in replace(quick, least_bytes=5e6).text


def test_an_answer_that_is_off_by_little_once_is_drawn_again(verifier: Verifier) -> None:
    exercise = course(ROOT).exercise("triton-sum")
    right = solution(exercise.id) or ""
    near, far = right.replace("3.0", "3.003"), right.replace("3.0", "4.0")
    # a right answer, refused once by chance; one that is near each time; one that is far
    for texts, good in (((near, right, right, right, right), True), ((near, near), False), ((far,), False)):
        left = list(texts)

        def verify(task, source, options, left=left):
            source = source.model_copy(update={"files": {"kernel.py": left.pop(0)}})
            return verifier.verify(task, source, detect_target(source.dsl), options=options)

        outcome = judge(right, course(ROOT).task(exercise), exercise.goals, verify)
        assert (outcome.reached.good, left) == (good, []), outcome.sentence


def test_an_exercise_in_triton_takes_no_sketch_and_no_other_language() -> None:
    found = course(ROOT)
    exercise = found.exercise("triton-sum")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was verified")

    sketch = judge(solution("two-inputs") or "", found.task(exercise), exercise.goals, verify)
    assert sketch.keys[0] == "goal-dsl" and "asks for a kernel in triton" in sketch.sentence
    module = judge("def kernel(x, z):\n    return 3.0 * x + z\n", found.task(exercise), exercise.goals, verify)
    assert module.keys[0] == "goal-dsl"


HEAD = """import torch
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


"""
LAUNCH = "    copy[(triton.cdiv(x.numel(), 256),)](s, y, x.numel(), B=256)\n    return y\n"


EMPTY = "def kernel(x):\n    y = torch.empty_like(x)\n"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("def kernel(x):\n    y = torch.softmax(x, -1)\n    s = y\n" + LAUNCH, "calls softmax"),
        (EMPTY + "    s = x.softmax(-1).contiguous()\n" + LAUNCH, "calls softmax"),
        (EMPTY + "    s = getattr(torch, 'soft' + 'max')(x, -1)\n" + LAUNCH, "calls"),
        (EMPTY + "    s = x * 2.0\n" + LAUNCH, "computes with a tensor"),
        (EMPTY + "    s = x\n    y[:] = x\n" + LAUNCH, "writes elements"),
        (EMPTY + "    s = x\n" + LAUNCH.replace("return y", "return x.mT"), "no tensor that"),
        (EMPTY + "    s = x\n" + LAUNCH.replace("return y", "return x"), "no tensor that"),
        ("from math import exp\n\n\ndef kernel(x):\n    return x\n", "this is neither"),
        ("f = torch.softmax\n\n\ndef kernel(x):\n    return f(x, -1)\n", "this is neither"),
        # by another name
        (EMPTY + "    a = x\n    s = a @ a + 1\n" + LAUNCH, "computes with a tensor"),
        (EMPTY + "    s = x.data @ x.mT\n" + LAUNCH, "computes with a tensor"),
        (EMPTY + "    for a in (x,):\n        s = a @ a\n" + LAUNCH, "computes with a tensor"),
        (EMPTY + "    s = {0: x}[0] * 2\n" + LAUNCH, "computes with a tensor"),
        (EMPTY + "    s = (a := x) if a is None else a\n" + LAUNCH, "computes with a tensor"),
        (EMPTY + "    s = x[x]\n" + LAUNCH, "gathers elements"),
        (EMPTY + "    s = x.max(-1)\n" + LAUNCH, "calls max"),
        (EMPTY + "    s = max(x)\n" + LAUNCH, "calls max on a tensor"),
        (EMPTY + "    s = x\n    y.data = x\n" + LAUNCH, "writes elements"),
        # loops without an end
        (EMPTY + "    s = x\n    while True:\n        pass\n" + LAUNCH, "it may not end"),
        (EMPTY + "    s, n = x, 1\n    while n:\n        k = n\n" + LAUNCH, "it may not end"),
        # what the arguments are
        (EMPTY.replace("x)", "x, /)", 1) + "    s = x * 2\n" + LAUNCH, "without a decorator"),
        (EMPTY.replace("x)", "x=None)", 1) + "    s = x * 2\n" + LAUNCH, "computes with a tensor"),
        ("def kernel(*a):\n    x = a[0]\n    y = torch.empty_like(x)\n    s = x * 2\n" + LAUNCH, "without a decorator"),
        # what may be called, rebound
        (EMPTY + "    max = torch.softmax\n    s = max(x, -1)\n" + LAUNCH, "reads softmax"),
        (EMPTY + "    def size(a):\n        return a @ a\n    s = size(x)\n" + LAUNCH, "is made of"),
        (EMPTY.replace("x)", "x, copy={})", 1) + "    s = copy[0](x, -1)\n" + LAUNCH, "the name copy"),
        ("from torch import softmax as empty\n\n\n" + EMPTY + "    s = empty(x, -1)\n" + LAUNCH, "this is neither"),
        (EMPTY + "    s = x\n" + LAUNCH + "\n\nfrom torch import relu as kernel\n", "this is neither"),
        ("kernel, _ = (lambda x: torch.softmax(x, -1), 0)\n", "this is neither"),
        (
            "@(lambda f: {0: torch.softmax})\n@triton.jit\ndef g(x):\n    pass\n\n\n"
            f"{EMPTY}    s = g[0](x, -1)\n{LAUNCH}",
            "this is neither",
        ),
        (
            "@triton.autotune([triton.Config({}, pre_hook=lambda a: a['y'].copy_(a['x']))], [])\n@triton.jit\n"
            "def g(x):\n    pass\n\n\n" + EMPTY + "    s = x\n" + LAUNCH,
            "this is neither",
        ),
    ],
)
def test_host_code_that_computes_has_no_points_in_an_exercise_in_triton(host: str, said: str) -> None:
    found = course(ROOT)
    exercise = found.exercise("triton-softmax")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was verified")

    outcome = judge(HEAD + host, found.task(exercise), exercise.goals, verify)
    assert outcome.keys[0] == "goal-host" and said in outcome.sentence, outcome.sentence


@pytest.mark.parametrize(
    "text",
    [
        HEAD + EMPTY + "    copy[(1,)](x=x, y=y, n=x.numel(), B=256)\n    return y\n",
        "from __future__ import annotations\n\n" + HEAD + EMPTY + "    s = x\n" + LAUNCH,
        HEAD + "B = tl.constexpr(64)\nC: tl.constexpr = 2 * 64\nLEAST = -1\n\n\n" + EMPTY + "    s = x\n" + LAUNCH,
        HEAD + EMPTY + "    s, n = x, x.numel()\n    while n > 1:\n        n = triton.cdiv(n, 2)\n" + LAUNCH,
        HEAD + EMPTY + "    s = x\n    k = tuple(x.shape)[0] * 2\n" + LAUNCH,
        HEAD + EMPTY + "    s, n = x.contiguous(), x.numel()\n    k = (n + 63) // 64\n" + LAUNCH,
        HEAD + EMPTY.replace("x)", "x, B=64)", 1) + "    s = x\n    k = (x.numel() + B - 1) // B\n" + LAUNCH,
        HEAD + EMPTY + "    s = x\n    grid = lambda meta: (triton.cdiv(x.numel(), meta['B']),)\n" + LAUNCH,
        HEAD.replace("@triton.jit", "@triton.autotune([triton.Config({'B': 64})], ['n'])\n@triton.jit")
        + EMPTY + "    s = x\n" + LAUNCH,
    ],
)  # fmt: skip
def test_honest_host_code_is_let_through(text: str) -> None:
    assert host_fault(ast.parse(text), [0]) is None


def test_the_reference_answers_in_triton_allocate_and_launch() -> None:
    triton = [e for e in tasks() if e.goals.dsl]
    assert len(triton) >= 22
    for exercise in triton:
        tensors = [place for place, arg in enumerate(course(ROOT).task(exercise).args) if arg.is_tensor]
        assert host_fault(ast.parse(solution(exercise.id) or ""), tensors) is None, exercise.id


NAMED = """sketch decay {
    symbols: M, N;
    tensors: a[M, N]: f32; b[M, N]: f32; h[M, N]: f32 out;
    @llm_hint("parallel")
    for m in range(M):
        associative_scan = 0.0
        for n in range(N):
            load(a[m, n] -> f)
            load(b[m, n] -> s)
            associative_scan = f * associative_scan + s
            store(associative_scan -> h[m, n])
}
"""


def test_answers_that_need_a_word_use_it() -> None:
    # words of modules are looked for in what is compiled
    asking = [exercise for exercise in tasks() if exercise.goals.uses and not exercise.goals.dsl]
    assert len(asking) >= 3
    for exercise in asking:
        program, task = load_program(solution(exercise.id) or ""), course(ROOT).task(exercise)
        assert all(needs(program, task, word) for word in exercise.goals.uses), exercise.id
    # without its products an attention does not run at all, which is no answer either
    exercise = next(e for e in tasks() if e.id == "online-attention")
    assert needs(load_program(solution(exercise.id) or ""), course(ROOT).task(exercise), "dot")


def test_a_goal_for_an_unknown_chip_is_a_sentence() -> None:
    exercise = course(ROOT).exercise("two-inputs")
    program = load_program(solution("two-inputs") or "")
    assert "'no-such-chip'" in _synchronous(program, course(ROOT).task(exercise), "no-such-chip")


@pytest.mark.parametrize("word", ["name", "idle value"])
def test_a_word_that_computes_nothing_is_no_use(word: str) -> None:
    found = course(ROOT)
    if word == "name":
        exercise, text = found.exercise("decay"), NAMED
    else:
        exercise = found.exercise("product-of-parts")
        parts = re.sub(r" +([xz]\d = cast|gemm\(x[23]|gemm\(x1, z[23]).*\n", "", solution(exercise.id) or "")
        text = parts.replace("gemm(x1, z1, acc)", "idle = cast(x, bf16)\n                gemm(x, z, acc)")
    outcome, _ = judge_sketch(text, found.task(exercise), exercise.goals)
    assert outcome.keys[0] == "goal-uses", (outcome.sentence, text)
