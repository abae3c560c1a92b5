"""What a kernel of an answer in Triton may name is a list: nothing tells the interpreter from the compiler."""

from __future__ import annotations

import ast
import inspect
import types
from typing import NoReturn

import pytest
import triton
import triton.language as tl
from teach_parts import ROOT, tasks

from kernellab.teach.exercise import course, solution
from kernellab.teach.judge import Reached, judge
from kernellab.teach.read.host_code import host_fault
from kernellab.teach.read.kernel_code import _MATH, _OF_TRITON, LANGUAGE, kernel_fault

_TEXT = """import torch
import triton
import triton.language as tl
{imported}

{decorator}@triton.jit
def rows(x, y, N, {parameter}B: tl.constexpr):
    m = tl.program_id(0)
    n = tl.arange(0, B)
    v = tl.load(x + m * N + n, mask=n < N, other=0.0)
    {line}
    tl.store(y + m * N + n, v, mask=n < N)


def kernel(x):
    y = torch.empty_like(x)
    {host}
    rows[(x.shape[0],)](x.contiguous(), y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return y
"""


def _text(line: str = "pass", imported: str = "", host: str = "n = 0", decorator: str = "", parameter: str = "") -> str:
    return _TEXT.format(line=line, imported=imported, host=host, decorator=decorator, parameter=parameter)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        # which of the two runs it
        (_text("if triton.knobs.runtime.interpret: v = v * 2"), "triton.knobs.runtime.interpret"),
        (_text("if tl.core.knobs.runtime.interpret: v = v * 2"), "triton.language.core.knobs.runtime.interpret"),
        (_text("if knobs: v = v * 2", "from triton import knobs"), "knobs"),
        (_text("if c.knobs: v = v * 2", "from triton.language import core as c"), ".knobs"),
        (_text("if (tl if B else 0).core: v = v * 2"), ".core"),
        (_text("t = tl"), "tl"),
        (_text("if B is N: v = v * 2"), "`is`"),
        # another library
        (_text("import numpy"), "Python's Import"),
        (_text("v = torch.exp(v)"), "torch.exp"),
        (_text("v = torch(v)"), "torch"),
        # what the interpreter keeps of a tile
        (_text("v.handle.data = v.handle.data * 2"), ".data"),
        (_text("v = v.handle"), ".handle"),
        (_text("v = v.__class__"), ".__class__"),
        (_text("n = f'{v.handle}'"), "Python's JoinedStr"),
        (_text("n = '{0.handle}'.format(v)"), ".format"),
        # a function by another name
        (_text("v = tl.core.builtins.getattr(tl, 'exp')(v)"), "triton.language.core.builtins.getattr"),
        (_text("v = getattr(v, 'exp')()"), "getattr"),
        (_text("if bool(v): v = v * 2"), "bool"),
        (_text().replace("@triton.jit", "@triton.jit(noinline=True)"), "noinline in a decorator"),
        (_text("v = tl.math.log.fn(v)"), "triton.language.math.log.fn"),
        (_text("g = tl.exp; v = g(v)"), "g as a function"),
        (_text("v = F(v)", parameter="F, "), "F as a function"),
        (_text("v = (lambda t: t)(v)"), "Python's Lambda"),
        (_text("v = [t for t in (v,)][0]"), "Python's ListComp"),
        (_text("with v: pass"), "Python's With"),
        (_text("tl = x"), "tl as the name of a value"),
        (_text(parameter="F=torch, ").replace("B: tl.constexpr", "B: tl.constexpr = 1"), "torch"),
        (
            _text(decorator="@triton.autotune([triton.Config({}, pre_hook=tl.core.builtins.exec)], [])\n"),
            "triton.language.core.builtins.exec in a decorator",
        ),
    ],
)
def test_a_kernel_that_names_what_is_not_listed_has_no_points(text: str, named: str) -> None:
    found = course(ROOT)
    exercise = found.exercise("triton-sum")

    def verify(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it was verified")

    assert ast.parse(text)
    outcome = judge(text, found.task(exercise), exercise.goals, verify)
    assert outcome.reached is Reached.OTHER and outcome.keys[0] == "goal-kernel", outcome.sentence
    assert f"It uses {named}, which a kernel in this exercise may not." in outcome.sentence
    assert outcome.line is not None and f"Line {outcome.line}: " in outcome.sentence


@pytest.mark.parametrize(
    ("host", "imported", "said"),
    [
        ("if x.is_cuda: y = x", "", "reads is_cuda"),
        ("n = 1 if x.device else 2", "", "reads device"),
        ("z = torch.empty(3, device=x.is_cuda)", "", "reads is_cuda"),
        ("n = 1 if triton.knobs.runtime.interpret else 2", "", "reads interpret"),
        ("n = 1 if knobs.runtime.interpret else 2", "from triton import knobs", "reads interpret"),
        ("n = x.__class__", "", "reads __class__"),
        ("n = x.fake_mode", "", "reads fake_mode"),
        ("n = torch", "", "the module torch"),
        ("n = own", "from triton import language as own", "the module own"),
        ("n = torch.softmax", "", "reads softmax"),
    ],
)
def test_host_code_reads_nothing_that_tells_an_interpreter_from_a_gpu(host: str, imported: str, said: str) -> None:
    found = host_fault(ast.parse(_text(host=host, imported=imported)), [0])
    assert found is not None and said in found[1], found


@pytest.mark.parametrize(
    "text",
    [
        _text("v = tl.math.exp(v); v = v.to(tl.float32).sum() + tl.where(v > 0, v, -float('inf'))"),
        _text("v = own(v); v = math.log(v)", "from triton.language import exp as own, math"),
        _text("v = tl.exp(v) if B > 4 else v\n    max = tl.max(v)\n    v = v - max"),
        _text("for i in tl.static_range(4): v += min(i, int(N // B))"),
        _text("if F is not None: v = v * F", parameter="F: float, "),
        _text("v = tl.reduce(v, 0, add)").replace(
            "@triton.jit", "@triton.jit\ndef add(a, b):\n    return a + b\n\n\n@triton.jit", 1
        ),
        _text("v = v * C + triton.cdiv(N, B)", "C = tl.constexpr(64)"),
        _text("v = triton.language.exp(v)", "import triton.language"),
        _text(decorator="@triton.autotune([triton.Config({'B': 64}, num_warps=4)], key=['N'])\n"),
        _text(host="z = torch.empty((3,), device=x.device, dtype=torch.float32)"),
    ],
)
def test_an_honest_kernel_is_let_through(text: str) -> None:
    assert host_fault(ast.parse(text), [0]) is None
    assert kernel_fault(ast.parse(text)) is None


def test_the_reference_answers_in_triton_name_what_is_listed() -> None:
    for exercise in tasks():
        if exercise.goals.dsl == "triton":
            assert kernel_fault(ast.parse(solution(exercise.id) or "")) is None, exercise.id


def test_what_is_listed_is_no_module_and_no_way_to_one() -> None:
    for module, names in ((tl, LANGUAGE), (tl.math, _MATH), (triton, _OF_TRITON)):
        for name in names & vars(module).keys():
            assert not isinstance(getattr(module, name), types.ModuleType), name
    # by these a kernel would make tiles of Python's values, or run another language's text
    made = {name for name, one in vars(tl).items() if inspect.isclass(one)} - {"constexpr", "range", "static_range"}
    assert not LANGUAGE & (made | {"inline_asm_elementwise", "map_elementwise", "to_tensor", "str_to_ty", "item"})
