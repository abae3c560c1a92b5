"""Symbols with values: what a task of fixed shapes makes of them, and that the gate runs the sketch at other sizes."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import SketchError
from kernellab.lowering import lower
from kernellab.records import GateState
from kernellab.sketch.check import check, load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.run import run
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task

ROWS = """sketch scaled {
    symbols: M = 3000, N = 700;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: B = 128;

    @llm_hint("parallel", "grididx")
    for m in range(M):
        for n in range(0, N, B):
            load(X[m, n:n+B] -> x)
            store(x * 2.0 -> Y[m, n:n+B])
}
"""
TASK = """
import torch


def reference(X):
    return X * 2.0


def inputs():
    return (torch.randn(3000, 700),)
"""
#: the output's extent follows from the input's, and stands in no argument
WINDOW = """sketch means {
    symbols: B = 6, H = 4000, OH = 3998;
    tensors: X[B, H]: f32; Y[B, OH]: f32 out;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for b in range(B):
        for h in range(0, OH, T):
            load(X[b, h:h+T] -> x)
            load(X[b, h+1:h+1+T] -> y)
            load(X[b, h+2:h+2+T] -> z)
            store((x + y + z) / 3.0 -> Y[b, h:h+T])
}
"""
WINDOW_TASK = """
import torch
from torch.nn import functional as F


def reference(X):
    return F.avg_pool1d(X, 3, 1)


def inputs():
    return (torch.randn(6, 4000),)
"""


def test_a_value_is_printed_as_it_was_written() -> None:
    assert format(ROWS) == ROWS
    short = "sketch s { symbols: M=4,N;tensors: X[M, N]: f32; Y[M, N]: f32 out;\n  store(1.0 -> Y[0, 0:1])\n}"
    assert "    symbols: M = 4, N;\n" in format(short)
    assert parse(format(short)) == parse(short)


def test_the_program_keeps_a_symbol_and_its_value_apart() -> None:
    program = load_program(ROWS)
    assert program.symbols == ("M", "N")
    assert program.sizes == (("M", 3000), ("N", 700))
    assert str(program.tensor("X").shape[0]) == "M"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("M = 2.5", "The symbol 'M' is an extent, not 2.5."),
        ("M = -3", "The symbol 'M' is an extent, not -3."),
        ("M = N", "The value of 'M' is not a number."),
        ("M = 3, M = 4", "'M' is already a symbol."),
    ],
)
def test_what_is_no_size_is_refused(declared: str, message: str) -> None:
    found = check(ROWS.replace("M = 3000, N = 700", f"{declared}, N = 700"))
    assert found.errors[0].message == message
    assert found.errors[0].line == 2


def test_two_sketches_of_a_file_agree_on_a_value() -> None:
    second = ROWS.replace("sketch scaled", "sketch again").replace("X[", "Z[").replace("Y[", "V[")
    assert load_program(ROWS + second.replace("M = 3000, N = 700", "M, N")).sizes == (("M", 3000), ("N", 700))
    assert check(ROWS + second.replace("M = 3000", "M = 3001")).errors[0].rule == "conflicting-declaration"


def test_a_task_that_has_another_size_is_refused() -> None:
    task = load_task(TASK, "scaled")
    assert bind(load_program(ROWS), task).fixed == {"M": 3000, "N": 700}
    with pytest.raises(SketchError, match=r"^The sketch says M = 3001, and in X it is 3000 in the task\.") as refused:
        bind(load_program(ROWS.replace("M = 3000", "M = 3001")), task)
    assert refused.value.remedy == "Write the task's value, or M alone: the arguments give it."


def test_the_gate_runs_the_same_sketch_at_other_sizes() -> None:
    task = load_task(TASK, "scaled")
    right = gate(ROWS, task, seconds=60.0)
    assert (right.state, right.cases > 3) == (GateState.RIGHT, True), right.reason
    # wrong at every size but multiples of 128, of which 700 is none
    wrong = gate(ROWS.replace("range(0, N, B)", "range(0, N // B * B, B)"), task)
    assert wrong.state is GateState.WRONG


def test_an_extent_of_the_output_follows_it_in_the_gate() -> None:
    task = load_task(WINDOW_TASK, "means")
    right = gate(WINDOW, task, seconds=60.0)
    assert (right.state, right.cases > 3) == (GateState.RIGHT, True), right.reason
    assert gate(WINDOW.replace("h+2:h+2+T", "h+3:h+3+T"), task).state is GateState.WRONG


def test_the_interpreter_takes_the_inputs_sizes_first() -> None:
    program = load_program(WINDOW)
    x = torch.arange(20.0).reshape(2, 10)
    found = run(program, {"X": x}, symbols={"OH": 8})["Y"]
    assert torch.equal(found, x[:, 1:9])
    assert run(program, {"X": torch.ones(2, 4000)})["Y"].shape == (2, 3998)


def test_the_cost_needs_no_sizes_where_all_have_values() -> None:
    assert cost(load_program(ROWS), {}).bytes_unique == 2 * 4 * 3000 * 700
    assert cost(load_program(ROWS), {"M": 10}).bytes_unique == 2 * 4 * 10 * 700


@pytest.mark.parametrize(("dsl", "written"), [("cpp", "constexpr int64_t N = 700;"), ("triton", "N: tl.constexpr")])
def test_a_lowered_source_has_it_as_a_constant_and_refuses_another(dsl: str, written: str) -> None:
    program = load_program(ROWS)
    backend = Backend.CPU if dsl == "cpp" else Backend.INTERPRETER
    source = lower(program, bind(program), Target(dsl, backend, Chip("here", "cpu", cores=2)))
    text = "\n".join(source.files.values())
    assert written in text
    assert "if M != 3000:" in text
