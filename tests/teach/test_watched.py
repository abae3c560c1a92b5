"""A kernel in Triton is held against its goals by what runs in the interpreter, as by what the compiler makes of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import NoReturn

import pytest
from teach_parts import ROOT

from kernellab.errors import JudgeBusy, SessionError
from kernellab.lens.dry.records import Answer, Ran
from kernellab.lens.gpu import look
from kernellab.lens.gpu.look import watched
from kernellab.lens.look import arguments
from kernellab.target.chips import find_chip
from kernellab.teach.exercise import course, solution
from kernellab.teach.goals import missed_by_call
from kernellab.teach.judge import Outcome, Reached, _compiled, source_of
from kernellab.teach.read.dry_calls import COURSE_GPU, differs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton runs on Linux")

_PRODUCT = """import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, y, M, N, K, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k in range(K):
        left = tl.load(a + m * K + k, mask=m < M, other=0.0)
        acc += left[:, None] * tl.load(b + k * N + n, mask=n < N, other=0.0)[None, :]
    at = tl.arange(0, B)
    one = tl.where(at[:, None] == at[None, :], 1.0, 0.0)
    acc = tl.dot(one, acc, input_precision="ieee")
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def kernel(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    y = torch.empty((M, N), device=a.device)
    product[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, y, M, N, K, B=32)
    return y
"""
_PASSES = """import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, N, B: tl.constexpr):
    m, n = tl.program_id(0), tl.arange(0, B)
    top, total = -1e30, 0.0
    for step in range(3):
        v = tl.load(x + m * N + n, mask=n < N, other=-float("inf"))
        if step == 0:
            top = tl.max(v, axis=0)
        elif step == 1:
            total = tl.sum(tl.exp(v - top), axis=0)
        else:
            tl.store(y + m * N + n, tl.exp(v - top) / total, mask=n < N)


def kernel(x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x.contiguous(), y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return y
"""


@cache
def _call(exercise: str, text: str) -> Answer:
    task = course(ROOT).task(course(ROOT).exercise(exercise))
    chip = find_chip(COURSE_GPU)
    assert chip is not None
    (call,) = watched(source_of(text, task), [arguments(task)], chip, 60)
    assert not call.error and call.ran is not None and not differs(call), call
    return call


def _edited(exercise: str, *edits: tuple[str, str]) -> str:
    text = solution(exercise) or ""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


_WHOLE = ("BM=64", "BM=triton.next_power_of_2(M)"), ("columns[(triton.cdiv(M, 64),)]", "columns[(8,)]")


@pytest.mark.parametrize(
    ("exercise", "text", "goal"),
    [
        ("triton-product", _PRODUCT, "goal-uses"),
        ("triton-softmax", _PASSES, "goal-loads"),
        ("two-launches-triton", _edited("two-launches-triton", ("range(p * T, n, P * T)", "range(p * n, n, T)")),
         "goal-parallel"),
        ("down-the-columns-triton", _edited("down-the-columns-triton", ("tl.program_id(0) * BM + ", ""), *_WHOLE),
         "goal-parallel"),
        ("persistent-triton", _edited("persistent-triton", ("range(tl.program_id(0), tiles, P)",
         "range(tl.program_id(0) * tiles, tiles, 1)")), "goal-parallel"),
    ],
    ids=["product with one", "three passes", "idle programs", "all the same", "one for all"],
)  # fmt: skip
def test_what_is_right_and_does_not_do_what_is_asked_misses_its_goal(exercise: str, text: str, goal: str) -> None:
    call = _call(exercise, text)
    goals = course(ROOT).exercise(exercise).goals
    assert [missed.key for missed in missed_by_call(goals, call)] == [goal], call.ran
    assert list(missed_by_call(goals, replace(call, ran=None))) == [], "the compiler's texts alone show nothing of it"


@pytest.mark.parametrize("exercise", ["triton-product", "triton-softmax", "two-launches-triton", "persistent-triton"])
def test_the_reference_answer_meets_its_goals(exercise: str) -> None:
    call = _call(exercise, solution(exercise) or "")
    assert list(missed_by_call(course(ROOT).exercise(exercise).goals, call)) == [], call.ran


def test_what_the_interpreter_runs_counts_as_what_is_compiled() -> None:
    """Where a kernel has a branch for each, the one that is right is held against the goals."""
    call = _call("triton-softmax", solution("triton-softmax") or "")
    assert call.ran is not None
    goals = course(ROOT).exercise("triton-softmax").goals.model_copy(update={"tile": 1 << 12})
    assert list(missed_by_call(goals, call)) == []
    for what, goal in (({"loads": 3}, "goal-loads"), ({"tile": 1 << 13}, "goal-tile")):
        other = replace(call, ran=replace(call.ran, **what))
        assert [missed.key for missed in missed_by_call(goals, other)] == [goal]


@pytest.mark.parametrize(
    ("exercise", "edits", "goal"),
    [
        ("triton-softmax", [("tl.load(x + m * N + n, mask=n < N, other=-float(\"inf\"))",
         "tl.where(n < N, tl.atomic_max(x + m * N + n, n - 9e9, mask=n < N), -float(\"inf\"))"),
         ("    weights =", "    top = tl.atomic_max(x + m * N + n, n - 9e9, mask=n < N)\n    weights =")],
         "goal-loads"),
        ("carry-on-triton", [("scan(x, y, N,", "scan(x, y, i, N, W: tl.constexpr,"),
         ("    carry = 0.0", "    wide = tl.load(i + tl.arange(0, W))\n    carry = 0.0 * tl.max(wide, axis=0)"),
         ("y, N, B=256)", "y, torch.zeros(8192, device=x.device, dtype=torch.int32), N, W=8192, B=256)")],
         "goal-tile"),
    ],
    ids=["atomic operations load", "a row as integers"],
)  # fmt: skip
def test_what_is_loaded_by_another_name_counts(exercise: str, edits: list[tuple[str, str]], goal: str) -> None:
    call = _call(exercise, _edited(exercise, *edits))
    assert goal in [missed.key for missed in missed_by_call(course(ROOT).exercise(exercise).goals, call)]


def test_a_program_that_loads_its_part_twice_shares_as_before() -> None:
    once = "tl.load(x + at, mask=at < n, other=0.0)"
    call = _call("two-launches-triton", _edited("two-launches-triton", (once, f"({once} + {once}) / 2")))
    assert call.ran is not None and call.ran.sharing > 12, call.ran


def test_what_is_left_for_the_end_of_the_process_changes_no_answer() -> None:
    text = solution("read-once-triton") or ""
    late = "import atexit\n\n\n@atexit.register\ndef late():\n    open('answer.json', 'w').write('[]')\n\n\n"
    call = _call("read-once-triton", late + text)
    assert [kernel.name for kernel in call.kernels] == ["both"] and call.ran is not None and not call.ran.error


def test_a_long_run_is_watched_in_part() -> None:
    task = course(ROOT).task(course(ROOT).exercise("second-transposed-triton"))
    chip = find_chip(COURSE_GPU)
    assert chip is not None
    text = _edited("second-transposed-triton", ("BM=32, BN=32, BK=32", "BM=16, BN=16, BK=16"), (", 32)", ", 16)"))
    call, larger = watched(source_of(text, task), [arguments(task)] * 2, chip, 60, seconds=1)
    assert call.ran is not None and not differs(call)
    assert call.ran.products and call.ran.drawn and not call.ran.whole, call.ran
    assert larger.ran is not None and not larger.ran.drawn and not larger.ran.products


@pytest.mark.parametrize(
    ("in_the_interpreter", "number", "expected"),
    [("1", "SIGSEGV", "goal-runs"), ("1", "SIGKILL", ""), ("0", "SIGKILL", "")],
    ids=["by the answer", "by the machine", "by the machine, while it is compiled"],
)
def test_a_run_that_ends_is_no_fault_of_the_compilers(in_the_interpreter: str, number: str, expected: str) -> None:
    exercise = course(ROOT).exercise("triton-sum")
    task = course(ROOT).task(exercise)
    text = _edited(
        "triton-sum",
        ("import torch\n", "import os\nimport signal\nimport torch\n"),
        (
            "def kernel(",
            f"if os.environ['TRITON_INTERPRET'] == {in_the_interpreter!r}:\n"
            f"    os.kill(os.getpid(), signal.{number})\n\n\ndef kernel(",
        ),
    )
    found = Outcome(Reached.RIGHT, "")
    if not expected:
        with pytest.raises(JudgeBusy, match="killed from outside"):
            _compiled(found, source_of(text, task), task, exercise.goals, lambda *_: pytest.fail("it was verified"))
        return
    outcome = _compiled(found, source_of(text, task), task, exercise.goals, lambda *_: pytest.fail("it was verified"))
    assert outcome.keys == (expected, "refused") and number in outcome.sentence and "GPU" not in outcome.sentence


def test_a_machine_without_time_refuses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ends a dry call that has not used its processor time: its answer is not judged."""
    exercise = course(ROOT).exercise("triton-sum")
    task = course(ROOT).task(exercise)
    source = source_of(_edited("triton-sum", ("import torch\n", "import torch  # of a busy machine\n")), task)

    def late(command: list[str], **given: object) -> NoReturn:
        raise subprocess.TimeoutExpired(command, 300)

    monkeypatch.setattr(look.subprocess, "run", late)
    with pytest.raises(JudgeBusy, match="300 s of the clock"):
        _compiled(Outcome(Reached.RIGHT, ""), source, task, exercise.goals, lambda *_: pytest.fail("it was verified"))
    chip = find_chip(COURSE_GPU)
    assert chip is not None
    with pytest.raises(SessionError, match="took longer than 300 s"):  # no limit on the processor's time was asked
        look.look_gpu(source, arguments(task), chip)


def test_host_code_may_turn_a_tensor_into_another_layout() -> None:
    """A torch without CUDA makes no such copy of its fake tensors."""
    turned = _edited(
        "second-transposed-triton",
        ("w.contiguous()", "w.T.contiguous()"),
        ("n[None, :] * K + k[:, None]", "k[:, None] * N + n[None, :]"),
    )
    assert _call("second-transposed-triton", turned).calls == [["product", [12, 12, 1]]]


def test_a_dry_call_of_an_answer_loads_no_compiler_of_torchs() -> None:
    code = (
        "import sys\nimport torch\nfrom kernellab.lens.dry import main\n"
        "from kernellab.lens.dry.records import Request\n"
        "from kernellab.task.faking import on_meta\n"
        "with main.gpu(Request({}, '', '', [], 90, 132), on_meta):\n"
        "    x, = main.arguments([{'shape': [4, 6], 'dtype': 'float32'}])\n"
        "    y = torch.empty((6, 4), device=x.device, dtype=torch.bfloat16)\n"
        "    z = torch.zeros_like(x.T.contiguous())\n"
        "    print(x.device.type, y.is_cuda, z.is_cpu, z.stride(), x.data_ptr() % 16)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert shown[:2] == ["cuda True False (4, 1) 0", "False"]


def test_launches_that_the_compiler_is_not_given_are_told() -> None:
    call = Answer(kernels=[], calls=[["rows", [3, 1, 1]]], ran=Ran(launches=[["rows", [4, 1, 1]]]))
    assert differs(replace(call, kernels=[None])).startswith("the interpreter launches rows (4, 1, 1) where")  # type: ignore[list-item]
    assert not differs(replace(call, ran=Ran(launches=[["rows", [3, 1, 1]]])))
