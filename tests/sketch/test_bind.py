"""A sketch's names meet a task's arguments: tensors, views, symbols, scalars, outputs."""

from __future__ import annotations

import pytest

from kernellab.errors import NotRunnable, SketchError
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import Binding, bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

CPU = Target("cpp", Backend.CPU, Chip("cpu", "cpu", 2))
GPU = Target("triton", Backend.CUDA, Chip("gpu", "gpu", 132))


def task_of(
    parameters: str, inputs: str, result: str, dims: str = 'Dim("M", 1, 512), Dim("N", 1, 512)', extra: str = ""
) -> Task:
    names = ", ".join(p.split('"')[1] + "=24" for p in dims.split("),") if '"' in p)
    return load_task(
        f"import torch\nfrom kernellab import Dim\nD = [{dims}]\n"
        f"def inputs({names}):\n    return {inputs}\n"
        f"def reference({parameters}):\n    return {result}\n{extra}"
    )


def sketch_of(tensors: str, body: str, symbols: str = "M, N", constexpr: str = "") -> str:
    return f"sketch s {{\n    symbols: {symbols};\n    tensors: {tensors};\n    {constexpr}\n{body}\n}}\n"


ROWS = """
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x -> Y[m, 0:N])
"""


def bind_rows(tensors: str, task: Task, **given: int | float) -> Binding:
    return bind(load_program(sketch_of(tensors, ROWS)), task, given)


def shapes(binding: Binding) -> list[list[str]]:
    return [[str(e) for e in out.shape] for out in binding.outputs]


def test_tensors_bind_by_equal_name_before_order() -> None:
    task = task_of("w, X", "torch.randn(N), torch.randn(M, N)", "X * w")
    body = ROWS.replace("store(x ->", "load(W[0:N] -> w)\n        store(x * w ->")
    binding = bind(load_program(sketch_of("X[M, N]: f32; W[N]: f32; Y[M, N]: f32 out", body)), task)
    assert binding.parameters == ("w", "X")
    assert dict(binding.tensors) == {"X": 1, "W": 0}
    assert binding.symbols["M"] == (1, 0)
    assert shapes(binding) == [["M", "N"]]


@pytest.mark.parametrize("view", ["M * N", "N * M"])
def test_a_product_in_any_order_is_the_view_of_the_dims_that_it_is_named_after(view: str) -> None:
    body = ROWS.replace("X[m, 0:N]", "X[m * N : m * N + N]").replace("N :", "N:")
    task = task_of("X", "torch.randn(M, N)", "X * 1.0")
    binding = bind(load_program(sketch_of(f"X[{view}]: f32; Y[M, N]: f32 out", body)), task)
    assert binding.symbols == {"M": (0, 0), "N": (0, 1)}


def test_tensors_with_other_names_bind_in_order_and_by_dtype() -> None:
    task = task_of("a, count, b", "torch.randn(M, N), torch.arange(M), torch.randn(N)", "a + b + count[:, None]")
    body = ROWS.replace("store(x ->", "load(Q[0:N] -> w)\n        store(x * w ->")
    binding = bind(load_program(sketch_of("X[M, N]: f32; Q[N]: f32; Y[M, N]: f32 out", body)), task)
    assert dict(binding.tensors) == {"X": 0, "Q": 2}


def test_a_scalar_argument_is_passed_at_run_time_with_its_default() -> None:
    task = task_of("x, eps: float = 0.5", "torch.randn(M, N)", "x + eps")
    body = ROWS.replace("store(x ->", "store(x + eps ->")
    text = sketch_of("X[M, N]: f32; Y[M, N]: f32 out", body, constexpr="constexpr: eps = 1e-6;")
    binding = bind(load_program(text), task)
    assert dict(binding.scalars) == {"eps": 1}
    assert binding.constexpr["eps"] == 0.5 and dict(binding.defaults) == {1: 0.5}
    fixed = bind(load_program(text), task, {"eps": 0.25})
    assert dict(fixed.scalars) == {} and fixed.constexpr["eps"] == 0.25


def test_an_extent_without_a_value_takes_the_targets_default() -> None:
    task = task_of("x", "torch.randn(M, N)", "x * 2")
    body = """
    @llm_hint("parallel", "grididx")
    for m in range(M):
        for n in range(0, N, T):
            load(X[m, n:n+T] -> x)
            store(x -> Y[m, n:n+T])
"""
    program = load_program(sketch_of("X[M, N]: f32; Y[M, N]: f32 out", body, constexpr="constexpr: T;"))
    assert bind(program, task, target=CPU).constexpr["T"] == 16
    assert bind(program, task, target=GPU).constexpr["T"] == 128
    assert bind(program, task, {"T": 32}, GPU).constexpr["T"] == 32


def test_a_product_of_symbols_takes_consecutive_dimensions() -> None:
    dims = 'Dim("B", 1, 64), Dim("T", 1, 64), Dim("D", 1, 64)'
    task = task_of("x", "torch.randn(B, T, D)", "x * 2", dims)
    body = """
    @llm_hint("parallel", "grididx")
    for i in range(B*T):
        load(X[i, 0:D] -> x)
        store(x * 2 -> Y[i, 0:D])
"""
    program = load_program(sketch_of("X[B*T, D]: f32; Y[B*T, D]: f32 out", body, "B, T, D"))
    binding = bind(program, task)
    assert dict(binding.symbols) == {"B": (0, 0), "T": (0, 1), "D": (0, 2)}
    assert shapes(binding) == [["B", "T", "D"]]


def test_a_dimension_of_known_extent_may_be_split() -> None:
    task = task_of("x", "torch.randn(M, 12)", "x * 2", 'Dim("M", 1, 64)')
    body = """
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:3, 0:4] -> x)
        store(x * 2 -> Y[m, 0:3, 0:4])
"""
    program = load_program(sketch_of("X[M, 3, 4]: f32; Y[M, 3, 4]: f32 out", body, "M"))
    assert dict(bind(program, task).symbols) == {"M": (0, 0)}


def test_dimensions_of_extent_one_come_and_go() -> None:
    task = task_of("x, b", "torch.randn(M, N), torch.randn(1, N)", "(x + b).sum()")
    body = """
    acc = alloc([N], f32, llm_hint=["accumulator", "init_zero"])
    load(Q[0:N] -> b)
    for m in range(M):
        load(X[m, 0:N] -> x)
        acc = acc + x + b
    store(reduce_sum(acc, axis=0) -> Y[0])
"""
    binding = bind(load_program(sketch_of("X[M, N]: f32; Q[N]: f32; Y[1]: f32 out", body)), task)
    assert dict(binding.tensors) == {"X": 0, "Q": 1}
    assert shapes(binding) == [[]]


def test_fixed_shapes_fix_the_symbols() -> None:
    task = load_task(
        "import torch\ndef inputs():\n    return torch.randn(12, 20)\ndef reference(x):\n    return x * 2\n"
    )
    binding = bind_rows("X[M, N]: f32; Y[M, N]: f32 out", task)
    assert dict(binding.fixed) == {"M": 12, "N": 20}
    assert shapes(binding) == [["12", "20"]]
    with pytest.raises(SketchError, match="declared"):
        text = sketch_of("X[12, 21]: f32; Y[12, 21]: f32 out", ROWS.replace("M)", "12)").replace("0:N", "0:21"), "M")
        bind(load_program(text), task)


def test_an_output_shape_may_be_an_expression_of_the_symbols() -> None:
    task = task_of("x", "torch.randn(M, N)", "torch.cat([x, x], 0)")
    body = """
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x -> Y[m, 0:N])
        store(x -> Y[m + M, 0:N])
"""
    binding = bind(load_program(sketch_of("X[M, N]: f32; Y[2*M, N]: f32 out", body)), task)
    assert shapes(binding) == [["(2 * M)", "N"]]


@pytest.mark.parametrize(
    ("tensors", "result", "said"),
    [
        ("X[M, N]: bf16; Y[M, N]: f32 out", "x * 2", "declared bf16"),
        ("X[M, N]: f32; Y[M, N]: bf16 out", "x * 2", "output is float32"),
        ("X[M, N]: f32; Y[M, N]: f32 out", "(x, x)", "returns 2"),
        ("X[M, N]: f32; Y[M, N]: f32 out", "x.sum(0)", "declared"),
        ("X[N, M]: f32; Y[M, N]: f32 out", "x * 2", ""),
    ],
)
def test_what_does_not_fit_is_said(tensors: str, result: str, said: str) -> None:
    task = task_of("x", "torch.randn(M, N)", result)
    body = ROWS.replace("X[m, 0:N]", "X[0:N, m]") if "X[N, M]" in tensors else ROWS
    program = load_program(sketch_of(tensors, body))
    if not said:
        # N and M are the sketch's own names for the argument's first and second dimension
        assert [str(e) for e in bind(program, task).outputs[0].shape] == ["N", "M"]
        return
    with pytest.raises(SketchError, match=said) as caught:
        bind(program, task)
    assert caught.value.remedy


def test_a_symbol_that_no_argument_shows_is_named() -> None:
    task = task_of("x", "torch.randn(M, N)", "x * 2")
    with pytest.raises(SketchError, match="symbol K"):
        bind(load_program(sketch_of("X[M, N]: f32; Y[M, N]: f32 out; Z[K]: f32 temp", ROWS, "M, N, K")), task)


def test_a_number_without_a_value_is_named() -> None:
    task = task_of("x", "torch.randn(M, N)", "x * 2")
    body = ROWS.replace("store(x ->", "store(x * factor ->")
    text = sketch_of("X[M, N]: f32; Y[M, N]: f32 out", body, constexpr="constexpr: factor;")
    with pytest.raises(NotRunnable, match="factor has no value"):
        bind(load_program(text), task)


def test_without_a_task_the_in_tensors_are_the_parameters() -> None:
    binding = bind(load_program(sketch_of("X[M, N]: f32; Y[M, N]: f32 out", ROWS)))
    assert binding.parameters == ("X",) and dict(binding.symbols) == {"M": (0, 0), "N": (0, 1)}
    assert shapes(binding) == [["M", "N"]]


def test_outputs_in_another_order_than_the_references_are_named_with_their_sketches() -> None:
    task = task_of("X", "torch.randn(M, N)", "X.long(), X")
    text = (
        (
            sketch_of("X[M, N]: f32; last[M, N]: f32 out", ROWS.replace("Y[", "last["))
            + sketch_of(
                "X[M, N]: f32; path[M, N]: i64 out",
                ROWS.replace("store(x ->", "store(cast(x, i64) ->").replace("Y[", "path["),
            )
        )
        .replace("sketch s", "sketch first", 1)
        .replace("sketch s", "sketch second", 1)
    )
    with pytest.raises(SketchError) as told:
        bind(load_program(text), task)
    assert "output 0 (from 0) is int64" in told.value.message
    assert "output 0 is last, which first writes; output 1 is path, which second writes" in told.value.message
    assert "the reference's order" in told.value.remedy and "i64" not in told.value.remedy
    named = text.replace("last", "out1").replace("path", "out0")
    assert [out.tensor for out in bind(load_program(named), task).outputs] == ["out0", "out1"]
    with pytest.raises(SketchError) as told:
        bind(load_program(text.replace("cast(x, i64)", "x").replace("i64 out", "f32 out")), task)
    assert "Declare last with the output's dtype" in told.value.remedy, "no order fits"


def test_outputs_of_other_shapes_in_another_order_are_to_be_put_in_order() -> None:
    task = task_of("X", "torch.randn(M, N)", "X, X.sum(-1)")
    rows = ROWS.replace("Y[m, 0:N]", "whole[m, 0:N]").replace(
        "store(x ->", "store(reduce_sum(x, axis=0) -> sums[m])\n        store(x ->"
    )
    right = "X[M, N]: f32; whole[M, N]: f32 out; sums[M]: f32 out"
    assert [out.tensor for out in bind(load_program(sketch_of(right, rows)), task).outputs] == ["whole", "sums"]
    with pytest.raises(SketchError) as told:
        bind(load_program(sketch_of("X[M, N]: f32; sums[M]: f32 out; whole[M, N]: f32 out", rows)), task)
    assert told.value.remedy.startswith("Declare them in the reference's order"), told.value
    other = sketch_of("X[M, N]: f32; sums[M]: f32 out; whole[M, M]: f32 out", rows.replace("0:N] ->", "0:N] ->"))
    with pytest.raises(SketchError) as told:
        bind(load_program(other.replace("whole[m, 0:N]", "whole[m, 0:M]").replace("X[m, 0:N]", "X[m, 0:M]")), task)
    assert "the reference's order" not in told.value.remedy, "no order fits"


def test_a_view_that_splits_a_dimension_into_unknown_parts_is_named_as_that() -> None:
    task = task_of("X", "torch.randn(M, N)", "X", 'Dim("M", 1, 512), Dim("N", 2, 512)')
    body = """
    for m in range(M):
        load(X[m, 0:H, 0:P] -> x)
        store(x -> Y[m, 0:H, 0:P])
"""
    program = load_program(sketch_of("X[M, H, P]: f32; Y[M, H, P]: f32 out", body, "M, H, P"))
    with pytest.raises(SketchError) as told:
        bind(program, task)
    assert "X[M, H, P] splits a dimension of the argument X [M, N]" in told.value.message
    assert "H, P" in told.value.message
    with pytest.raises(SketchError) as told:
        bind(
            load_program(
                sketch_of("X[M, N]: f32; Y[M, Q]: f32 out", ROWS.replace("0:N] -> x", "0:N] -> x"), "M, N, Q")
            ),
            task,
        )
    assert "splits" not in told.value.message
