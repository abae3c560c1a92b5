"""Small grids on a GPU: wide tiles of columns, pieces of a long axis, blocked scans; and that all of them are right."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.designer.tile.gpu.sharing import Grid, grid_time, resident
from kernellab.lowering import lower
from kernellab.model_integration.gradient.derive import backward_text
from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import Cost, cost
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import TensorRole
from kernellab.sketch.run import run
from kernellab.target import Backend, Chip, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task, load_task
from tests.breadth import everything
from tests.lowering.emulated import kernel_of
from tests.lowering.test_cpp import load

_FOUND = find_chip("NVIDIA H200")
assert _FOUND is not None
H200 = _FOUND
GPU = Target("triton", Backend.CUDA, H200)
CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 8, l2_bytes=1 << 21))

SUMS = {"sum": "x.sum(1)", "mean": "x.mean(1)", "max": "x.amax(1)", "argmin": "x.argmin(1)", "norm": "x.norm(dim=1)"}
SCANS = {
    "cumsum": "x.cumsum(1)",
    "cumprod": "(1 + x / 64).cumprod(1)",
    "cummax": "x.cummax(1).values",
    "reverse": "x.flip(1).cumsum(1).flip(1)",
    "reverse_product": "(1 + x / 64).flip(1).cumprod(1).flip(1)",
    "exclusive": "F.pad(x, (1, 0))[:, :-1].cumsum(1)",
    "masked": "(x * (x > 0)).cumsum(1)",
    "two": "x.cumsum(1) + x.abs().cumsum(1)",
}


def task_of(result: str, shape: tuple[int, ...], name: str = "t") -> Task:
    head = "import torch\nimport torch.nn.functional as F\n"
    return load_task(
        f"{head}def reference(x):\n    return {result}\ndef inputs():\n    return (torch.randn{shape},)\n", name
    )


def first(task: Task, target: Target = GPU) -> str:
    return RulesDesigner().design(DesignBrief(task, target)).sketch


def costs(text: str) -> Cost:
    return cost(load_program(text), {}, chip=H200)


def agrees(text: str, task: Task, x: torch.Tensor) -> None:
    program = load_program(text)
    want = task.module().reference((x.double(),))[0]
    got = run(program, {program.inputs[0].name: x})
    result = next(got[t.name] for t in program.tensors if t.name == "y")
    if not want.dtype.is_floating_point:
        assert torch.equal(result.reshape(want.shape), want)
    else:
        torch.testing.assert_close(result.double().reshape(want.shape), want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("name", SUMS)
def test_sums_down_few_batches_fill_the_chip(name: str) -> None:
    text = first(task_of(SUMS[name], (12, 4096, 4096)))
    parsed = load_program(text)
    found = costs(text)
    assert len(parsed.kernels) == 2, text
    read = 12 * 4096 * 4096 * 4
    assert read <= found.bytes_slow <= 1.08 * read
    assert "COLS = 128" in text, "16 bytes for each lane of a warp"
    alone = cost(load_program(text.partition("\nsketch ")[0]), {}, chip=H200)
    assert alone.parallelism >= 4 * H200.cores * 4


@pytest.mark.parametrize("shape", [(2048, 512, 512), (1024, 1024, 2048)])
def test_sums_down_many_batches_take_one_launch(shape: tuple[int, ...]) -> None:
    assert len(load_program(first(task_of("x.sum(1)", shape))).kernels) == 1


@pytest.mark.parametrize(
    ("result", "rows", "launches"), [("sum(1)", 300, 2), ("norm(dim=1)", 500, 2), ("amax(1)", 9000, 1)]
)
def test_long_rows_are_reduced_in_pieces_where_they_are_few(result: str, rows: int, launches: int) -> None:
    text = first(task_of(f"x.{result}", (rows, 1 << 19)))
    assert len(load_program(text).kernels) == launches, text
    read = rows * (1 << 19) * 4
    assert read <= costs(text).bytes_slow <= 1.01 * read


@pytest.mark.parametrize(("side", "launches"), [(64, 1), (256, 3)])
def test_rows_that_the_last_cache_holds_take_one_launch(side: int, launches: int) -> None:
    """256 groups are fewer than two a core: two more launches pay where they are read from memory again."""
    text = f"""import torch, torch.nn.functional as F
def reference(x):
    return F.group_norm(x, 32)
def inputs():
    return torch.randn(8, 320, {side}, {side}).to(torch.bfloat16)
"""
    assert first(load_task(text)).count("sketch ") == launches


def test_rows_that_values_pick_are_read_along_their_columns() -> None:
    text = """import torch
def reference(x, w, experts):
    return (x[:, None] @ w[experts])[:, 0]
def inputs():
    x, w = torch.randn(12, 2048).to(torch.bfloat16), torch.randn(8, 2048, 1024).to(torch.bfloat16)
    return x, w, torch.randint(0, 8, (12,))
"""
    sketch = first(load_task(text))
    assert sketch.count("sketch ") == 1, "a single piece needs no second launch"
    (picked,) = (line for line in sketch.splitlines() if "gather(" in line)
    assert "+DOWN, " in picked and "+COLS]" in picked, "columns that lie side by side are a tile"


@pytest.mark.parametrize("name", SCANS)
def test_long_rows_are_scanned_in_blocks_and_read_once(name: str) -> None:
    text = first(task_of(SCANS[name], (6144, 32768)))
    found = costs(text)
    block = "BLOCK = 2048" if "reverse=true" in text else "BLOCK = 1024"
    assert len(load_program(text).kernels) == 1 and block in text, text
    moved = 2 * 6144 * 32768 * 4
    # an exclusive scan leaves out the last element of each row
    assert 0.999 * moved <= found.bytes_slow <= moved and found.parallelism == 6144


@pytest.mark.parametrize("name", SCANS)
def test_few_long_rows_are_scanned_in_pieces(name: str) -> None:
    text = first(task_of(SCANS[name], (128, 1 << 20)))
    found = costs(text)
    assert [k.name for k in load_program(text).kernels] == ["t_partial", "t_finish"], text
    assert found.parallelism >= 16 * H200.cores
    moved = 3 * 128 * (1 << 20) * 4
    assert found.bytes_slow <= 1.02 * moved


def test_columns_are_scanned_several_rows_at_a_time() -> None:
    text = first(task_of("x.cumsum(0)", (32768, 1 << 18)))
    assert "DOWN = 16" in text and len(load_program(text).kernels) == 1, "columns are programs enough: one pass"
    assert len(load_program(first(task_of("x.cumsum(0)", (32768, 512)))).kernels) == 2


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("shape", [(2, 20011), (3, 8192)])
def test_pieces_and_blocks_are_right(name: str, shape: tuple[int, ...]) -> None:
    task = task_of(SCANS[name], shape)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for reply in RulesDesigner().designs(DesignBrief(task, GPU)):
        agrees(reply.sketch, task, x)


@settings(max_examples=12 if everything() else 4, deadline=None)
@given(st.sampled_from(sorted(SCANS)), st.integers(2, 9000), st.sampled_from(["triton", "cpp"]))
def test_scans_of_any_length_are_right(name: str, length: int, dsl: str) -> None:
    task = task_of(SCANS[name], (3, length))
    target = GPU if dsl == "triton" else CPU
    x = torch.randn((3, length), generator=torch.Generator().manual_seed(length))
    for reply in RulesDesigner().designs(DesignBrief(task, target)):
        agrees(reply.sketch, task, x)


@settings(max_examples=12 if everything() else 4, deadline=None)
@given(st.sampled_from(sorted(SUMS)), st.integers(2, 1500), st.integers(2, 70))
def test_sums_down_columns_of_any_length_are_right(name: str, rows: int, columns: int) -> None:
    task = task_of(SUMS[name], (2, rows, columns))
    x = torch.randn((2, rows, columns), generator=torch.Generator().manual_seed(rows))
    if name == "argmin":
        x = x.round()
        x[0, rows // 2, 0] = x[1, rows - 1, 1] = torch.nan
        x[:, :, -1] = torch.inf
    for reply in RulesDesigner().designs(DesignBrief(task, GPU)):
        agrees(reply.sketch, task, x)


@pytest.mark.parametrize(
    "result", ["x.flip(1).cumsum(1).flip(1)", "x.flip(1).cumprod(1).flip(1)", "x.flip(0).cumsum(0).flip(0)"]
)
def test_reversed_scans_pass_the_gate(result: str) -> None:
    for target in (GPU, CPU):
        task = task_of(result, (5, 2500))
        for reply in RulesDesigner().designs(DesignBrief(task, target)):
            found = gate(reply.sketch, task, seconds=0.5)
            assert found.state is GateState.RIGHT, f"{found.reason}\n{reply.sketch}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("result", "shape"),
    [
        ("x.flip(1).cumsum(1).flip(1)", (2, 20011)),
        ("x.cummax(1).values", (2, 20011)),
        ("x.cumsum(0)", (4001, 3)),
        ("x.flip(0).cumsum(0).flip(0)", (4001, 3)),
        ("x.argmax(1)", (2, 2049, 40)),
        ("x.sum(1)", (2, 2049, 40)),
    ],
)
def test_designs_lowered_to_triton_are_right(result: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    task = task_of(result, shape)
    where = Target("triton", Backend.INTERPRETER, H200)
    program = load_program(first(task))
    source = lower(program, bind(program, task, None, where), where)
    path = tmp_path / "kernel.py"
    path.write_text(source.files["kernel.py"])
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    want = task.module().reference((x.double(),))[0]
    got = module.kernel(x)
    torch.testing.assert_close(got.double(), want.double(), rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize(
    ("result", "shape"),
    [
        ("x.flip(1).cumsum(1).flip(1)", (3, 2501)),
        ("x.flip(1).cumsum(1).flip(1)", (1, 300001)),
        ("(1 + x / 64).flip(1).cumprod(1).flip(1)", (2, 140001)),
        ("x.cummax(1).values", (1, 300001)),
    ],
)
def test_designs_lowered_to_cpp_are_right(
    result: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "build"))
    task = task_of(result, shape)
    program = load_program(first(task, CPU))
    kernel = load(lower(program, bind(program, task, None, CPU), CPU), tmp_path).kernel
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(
        kernel(x).double(), task.module().reference((x.double(),))[0], rtol=1e-4, atol=1e-3, equal_nan=True
    )


def at_the_end_of(dtype: str, result: str) -> tuple[Task, torch.Tensor]:
    """A task over whole numbers, and inputs whose values lie next to what a search for ``result`` starts from."""
    source = f"import torch\ndef reference(x):\n    return {result}\n"
    source += f"def inputs():\n    return (torch.randint(0, 9, (2, 5003), dtype=torch.{dtype}),)\n"
    kind = getattr(torch, dtype)
    x = torch.randint(1, 100, (2, 5003), generator=torch.Generator().manual_seed(5))
    ends = torch.iinfo(kind)
    return load_task(source, "t"), (ends.min + x if "max" in result else ends.max - x).to(kind)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize("result", ["x.max(1)", "x.min(1)", "x.cummax(1).values", "x.flip(1).cummin(1).values"])
def test_whole_numbers_are_compared_with_their_own_dtypes_extremes(dtype: str, result: str) -> None:
    task, x = at_the_end_of(dtype, result)
    for target in (CPU, GPU):
        program = load_program(first(task, target))
        got = run(program, {"x": x})
        found = [got[t.name] for t in program.tensors if t.role is TensorRole.OUT]
        for value, want in zip(found, task.module().reference((x,)), strict=True):
            assert torch.equal(value, want), target.dsl


@pytest.mark.parametrize(("dtype", "result"), [("int64", "x.min(1)"), ("int32", "x.max(1)")])
def test_whole_numbers_at_the_end_of_their_range_are_right_in_cpp(
    dtype: str, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "build"))
    task, x = at_the_end_of(dtype, result)
    program = load_program(first(task, CPU))
    kernel = load(lower(program, bind(program, task, None, CPU), CPU), tmp_path).kernel
    for got, want in zip(kernel(x), task.module().reference((x,)), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("result", "shape"), [("x.flip(1).cumsum(1).flip(1)", (2, 20011)), ("x.argmax(1)", (2, 1025, 40))]
)
def test_designs_lowered_to_cuda_c_are_right(
    result: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(result, shape)
    where = Target("cuda_c", Backend.CUDA, H200)
    program = load_program(first(task, where))
    kernel = kernel_of(lower(program, bind(program, task, None, where), where), tmp_path, monkeypatch)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    want = task.module().reference((x.double(),))[0]
    torch.testing.assert_close(kernel(x).double(), want.double(), rtol=2e-5, atol=2e-4)


# -- the model --------------------------------------------------------------------------------------------------------


def test_enough_bytes_in_flight_reach_the_bandwidth() -> None:
    # 8 programs of 8 KB an SM: 64 KB in flight, and eight waves
    seconds = grid_time(Grid(8 * 8 * H200.cores, 4.28e9, 64, 8), H200)
    assert seconds == pytest.approx(1e-3 * (1 + 0.5 / 8), rel=0.01)


def test_too_few_bytes_in_flight_wait_for_memory() -> None:
    full = grid_time(Grid(8 * H200.cores, 1e9, 100, 8), H200)
    few = grid_time(Grid(16, 1e9, 10000, 8), H200)
    assert few > 10 * full


def test_a_last_wave_of_one_program_costs_its_whole_time() -> None:
    even = grid_time(Grid(4 * H200.cores, 1e8, 1000, 4), H200)
    odd = grid_time(Grid(4 * H200.cores + 1, 1e8, 1000, 4), H200)
    assert odd > 1.5 * even


def test_registers_decide_how_many_programs_an_sm_holds() -> None:
    assert resident(128, 128 * 8, H200) == 16
    assert resident(128, 128 * 64, H200) == 5
    assert resident(1024, 1024 * 40, H200) == 1
    assert resident(32, 32, H200) == 32


#: what is made of the elements of x: by few operations, and by so many that two launches would not both make them
_MADE = {
    "short": "y = torch.tanh(x) * 2",
    "long": "y = x\n    for _ in range(12):\n        y = y + torch.tanh(y) * 0.1",
}


@pytest.mark.parametrize("target", [GPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("made", _MADE)
@pytest.mark.parametrize(
    ("sum_of", "shape", "small"),
    [("sum(0)", (4096, 512), (300, 48)), ("sum(1)", (64, 70000), (3, 2500)), ("sum()", (3000, 700), (30, 70))],
)
def test_what_is_summed_and_returned_is_made_and_stored_once(
    made: str, sum_of: str, shape: tuple[int, ...], small: tuple[int, ...], target: Target
) -> None:
    def task_of_shape(shape: tuple[int, ...]) -> Task:
        body = f"    {_MADE[made]}\n    return y, y.{sum_of}\n"
        return load_task(
            f"import torch\ndef reference(x):\n{body}def inputs():\n    return (torch.randn{shape},)\n", "t"
        )

    sketch = first(task_of_shape(shape), target)
    assert sketch.count("load(x") == 1, "one launch reads x, once"
    assert "y0" not in [t.name for t in load_program(sketch).tensors if t.role is TensorRole.TEMP]
    assert sum("-> y0" in line for line in sketch.splitlines()) == 1
    task = task_of_shape(small)
    x = torch.randn(small)
    got = run(load_program(first(task, target)), {"x": x})
    for name, want in zip(("y0", "y1"), task.module().reference((x.double(),)), strict=True):
        torch.testing.assert_close(got[name].double().reshape(want.shape), want, rtol=2e-5, atol=2e-4)


def lowered(task: Task) -> str:
    program = load_program(first(task))
    return lower(program, bind(program, task, {}, GPU), GPU).files["kernel.py"]


@pytest.mark.parametrize(
    ("shape", "dtype", "columns"),
    [((64, 4096, 256), "bfloat16", 256), ((64, 8192, 256), "float32", 128), ((1, 65536, 256), "float32", 64)],
)
def test_lanes_that_scan_down_hold_whole_columns_where_programs_are_enough(
    shape: tuple[int, ...], dtype: str, columns: int
) -> None:
    task = load_task(
        f"import torch\ndef reference(x):\n    return x.float().cumsum(1)\n"
        f"def inputs():\n    return (torch.randn{shape}.to(torch.{dtype}),)\n",
        "t",
    )
    scan = first(task).split("sketch t_finish")[1]
    (name,) = [w for w in ("COLS", "COLS2") if f" {w} = {columns} in" in scan]
    assert f"a:a+{name}" in scan or f"k:k+{name}" in scan
    launch = next(line for line in lowered(task).splitlines() if "t_finish_kernel[" in line)
    assert ("num_warps=1)" in launch) == (columns > 64)


def test_pieces_that_one_warp_scans_are_right() -> None:
    text = first(task_of("x.cumsum(1)", (8, 4096, 2048)))
    assert " = 128 in" in text and "DOWN2 = 8" in text
    small = task_of("x.cumsum(1)", (1, 300, 70))
    program = load_program(text.replace("8, 4096, 2048", "1, 300, 70").replace("4096", "300").replace("2048", "70"))
    x = torch.randn(1, 300, 70)
    (name,) = [t.name for t in program.tensors if t.role is TensorRole.OUT]
    got = run(program, {program.inputs[0].name: x})[name]
    torch.testing.assert_close(got.double(), small.module().reference((x.double(),))[0], rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize(("length", "online"), [(32000, False), (50304, True)])
def test_rows_are_read_again_where_those_of_all_programs_stay_in_the_cache(length: int, online: bool) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n\nGRAD = True\n\n"
        "def reference(x, t):\n    return F.cross_entropy(x.float(), t)\n\n"
        f"def inputs():\n    x = torch.randn(8192, {length}, dtype=torch.bfloat16)\n"
        f"    return x, torch.randint(0, {length}, (8192,))\n"
    )
    sketch = first(load_task(backward_text(load_task(text, "forward")), "t"))
    assert sketch.count("load(x[") == (2 if online else 3)
