"""The gate tells a right sketch from a wrong one, and says where a wrong one goes wrong."""

from __future__ import annotations

import pytest
import torch

from kernellab.records import GateState
from kernellab.sketch.check import load_program
from kernellab.sketch.gate import cases, gate
from kernellab.sketch.gate.compare import compare64
from kernellab.task import Task, load_task
from kernellab.task.sample.sizes import past_tiles


def task_of(
    body: str, inputs: str, dims: str = 'Dim("M", 1, 4096), Dim("N", 1, 4096)', sizes: str = "M=512, N=300"
) -> Task:
    return load_task(
        f"import torch\nfrom kernellab import Dim\nD = [{dims}]\n"
        f"def inputs({sizes}):\n    return {inputs}\ndef reference(x, *rest):\n    return {body}\n"
    )


RMS = task_of("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * rest[0]", "torch.randn(M, N), torch.rand(N)")
RMS_SKETCH = """
sketch rms_norm {
    symbols: M, N;
    tensors: X[M, N]: f32; W[N]: f32; Y[M, N]: f32 out;
    constexpr: eps = 1e-6; BLOCK = 256 in {16, 256};
    @llm_hint("parallel", "grididx")
    for m in range(M):
        acc = alloc([BLOCK], f32, llm_hint=["fastest", "accumulator", "init_zero"])
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x, pad=0)
            acc = acc + x * x
        rms = rsqrt(reduce_sum(acc, axis=0) / N + eps)
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            load(W[n:n+BLOCK] -> w)
            store(x * rms * w -> Y[m, n:n+BLOCK])
}
"""


def test_a_right_sketch_is_right_at_every_edge() -> None:
    result = gate(RMS_SKETCH, RMS)
    assert result.state is GateState.RIGHT, result.reason
    assert result.cases >= 6
    assert result.max_error is not None and result.max_error < 1e-12


def test_a_resolved_program_serves_as_well_as_text() -> None:
    assert gate(load_program(RMS_SKETCH), RMS).state is GateState.RIGHT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pad=0)\n            acc", "pad=1)\n            acc"),
        ("/ N + eps", "/ BLOCK + eps"),
        ("x * rms * w", "x * rms"),
        ("load(W[n:n+BLOCK] -> w)", "load(W[0:BLOCK] -> w)"),
        ("acc + x * x", "acc + x"),
        ("eps = 1e-6", "eps = 1e-2"),
        ("store(x * rms * w", "store(cast(x * rms * w, bf16)"),
    ],
)
def test_a_wrong_sketch_names_the_size_and_the_values(old: str, new: str) -> None:
    assert old in RMS_SKETCH
    result = gate(RMS_SKETCH.replace(old, new), RMS)
    assert result.state is GateState.WRONG
    assert set(result.sizes) == {"M", "N"}
    assert "want" in result.reason and "BLOCK = " in result.reason


def test_an_error_in_the_last_tile_is_said_to_lie_there() -> None:
    body = RMS_SKETCH.replace(
        "store(x * rms * w", "store(x * rms * w * where(arange(0, BLOCK) + n < N - N % BLOCK, 1.0, 2.0)"
    )
    result = gate(body, RMS)
    assert result.state is GateState.WRONG
    assert "of axis 1" in result.reason or "every element" in result.reason


def test_each_axis_and_diagonal_that_errors_keep_to_is_named() -> None:
    import torch

    from kernellab.sketch.gate.compare import _pattern

    rows, columns = torch.arange(5)[:, None], torch.arange(7)[None, :]
    assert _pattern(rows == columns).endswith(
        "; only at positions 0 to 4 of axis 1 and where the indices of axes 0 and 1 are equal"
    )
    assert _pattern((rows > 0) & (columns > 1)) == (
        "; only from position 1 of axis 0 on and from position 2 of axis 1 on"
    )
    assert _pattern((rows == 4) & (columns < 1)) == "; only at position 4 of axis 0 and at position 0 of axis 1"
    assert "equal" not in _pattern((rows == 1) & (columns == 1)), "one element is no diagonal"
    assert _pattern(rows + columns >= 0) == ""
    assert _pattern(rows < columns) == "; only where the index of axis 1 is greater than that of axis 0"
    assert _pattern((rows >= columns).expand(3, 5, 7)) == "; only where the index of axis 1 is at least that of axis 2"
    some = (rows < columns) & (rows + columns != 4)
    assert "greater" not in _pattern(some), "not every place of the side is wrong"


def test_a_sketch_with_errors_is_wrong_with_its_diagnostics() -> None:
    result = gate(RMS_SKETCH.replace("n:n+BLOCK] -> w", "n:n+BLOKC] -> w"), RMS)
    assert result.state is GateState.WRONG and result.diagnostics and "BLOKC" in result.reason


def test_what_cannot_run_says_why() -> None:
    missing = RMS_SKETCH.replace("eps = 1e-6;", "eps;")
    result = gate(missing, RMS)
    assert result.state is GateState.NOT_RUNNABLE and "eps has no value" in result.reason
    assert gate(missing, RMS, constexpr={"eps": 1e-6}).state is GateState.RIGHT


def test_a_sketch_of_other_shapes_than_the_task_is_wrong() -> None:
    result = gate(RMS_SKETCH, task_of("x.sum(-1) * rest[0].sum()", "torch.randn(M, N), torch.rand(N)"))
    assert result.state is GateState.WRONG and "declared" in result.reason


def test_of_several_outputs_the_reason_says_which_are_wrong_and_which_are_right() -> None:
    task = task_of("(x.sum(-1), x.amax(-1), x.amin(-1))", "torch.randn(M, N)")
    sketch = """
    sketch extremes {
        symbols: M, N;
        tensors: X[M, N]: f32; S[M]: f32 out; A[M]: f32 out; I[M]: f32 out;
        for m in range(M):
            load(X[m, 0:N] -> x)
            store(SUM -> S[m])
            store(reduce_max(x, axis=0) -> A[m])
            store(LEAST -> I[m])
    }
    """
    right = sketch.replace("SUM", "reduce_sum(x, axis=0)")
    assert gate(right.replace("LEAST", "reduce_min(x, axis=0)"), task).state is GateState.RIGHT
    wrong = gate(right.replace("LEAST", "reduce_max(x, axis=0)"), task).reason
    assert wrong.startswith("I is wrong at") and " S, A are right." in wrong
    both = gate(sketch.replace("SUM", "reduce_max(x, axis=0)").replace("LEAST", "reduce_max(x, axis=0)"), task).reason
    assert both.startswith("S is wrong at") and " I is wrong, too. A is right." in both


def test_a_dtype_fixed_inside_the_reference_does_not_blur_the_comparison() -> None:
    task = task_of("torch.softmax(x.float(), -1).sum(-1) + x.float().sum(-1)", "torch.randn(M, N)")
    text = """
sketch s {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M]: f32 out;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(reduce_sum(softmax(x, axis=0), axis=0) + reduce_sum(x, axis=0) -> Y[m])
}
"""
    result = gate(text, task, seconds=3)
    assert result.state is GateState.RIGHT, result.reason
    assert result.max_error is not None and result.max_error < 1e-10


def test_a_whole_run_takes_every_case_and_says_where_time_ended_it() -> None:
    every = gate(RMS_SKETCH, RMS, seconds=60, whole=True)
    assert every.state is GateState.RIGHT and every.cases > gate(RMS_SKETCH, RMS, seconds=0).cases
    assert "not run" not in every.reason
    ended = gate(RMS_SKETCH, RMS, seconds=0.001, whole=True)
    assert ended.cases < every.cases and "The other sizes were not run: 0.001 s were over." in ended.reason


ROWS = load_task(
    """import torch
def inputs():
    return torch.randn(4096, 512)
def reference(x):
    return x - x.mean(-1, keepdim=True)
"""
)
ROW_SKETCH = """
sketch centre {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(x - reduce_sum(x, axis=0) / N -> Y[m, 0:N])
}
"""
LITERAL = (
    ROW_SKETCH.replace("    symbols: M, N;\n", "").replace("M, N]", "4096, 512]").replace("range(M)", "range(4096)")
)
LITERAL = LITERAL.replace("0:N", "0:512").replace("/ N", "/ 512.0")


@pytest.mark.parametrize("text", [ROW_SKETCH, LITERAL])
def test_fixed_shapes_are_cut_down_also_where_the_sketch_names_them(text: str) -> None:
    result = gate(text, ROWS)
    assert result.state is GateState.RIGHT, result.reason
    assert result.cases >= 3


def test_a_number_of_the_fixed_shape_is_right_only_there() -> None:
    text = ROW_SKETCH.replace("/ N", "* 0.001953125")
    result = gate(text, ROWS)
    assert result.state is GateState.RIGHT, result.reason
    wrong = gate(ROW_SKETCH.replace("/ N", "* 0.00390625"), ROWS)
    assert wrong.state is GateState.WRONG


def test_an_extent_that_a_literal_follows_from_stays_as_it_is() -> None:
    result = gate(LITERAL.replace("/ 512.0", "* 0.001953125"), ROWS)
    assert result.state is GateState.RIGHT, result.reason
    assert result.cases >= 3  # the other extent was cut
    assert gate(LITERAL.replace("/ 512.0", "* 0.00390625"), ROWS).state is GateState.WRONG


@pytest.mark.parametrize("text", [ROW_SKETCH, LITERAL])
def test_a_wrong_sketch_of_fixed_shapes_is_found(text: str) -> None:
    result = gate(text.replace("x - reduce", "x + reduce"), ROWS)
    assert result.state is GateState.WRONG


def test_ties_and_integers_are_compared_exactly() -> None:
    task = task_of("x.argmax(-1)", "torch.randint(0, 3, (M, N)).float()")
    text = """
sketch s {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M]: i64 out;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(X[m, 0:N] -> x)
        store(argmax(x, axis=0) -> Y[m])
}
"""
    assert gate(text, task).state is GateState.RIGHT
    assert gate(text.replace("argmax", "argmin"), task).state is GateState.WRONG


def test_a_scalar_argument_of_the_reference_is_used() -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 4096)\n"
        "def inputs(N=512):\n    return torch.randn(N)\n"
        "def reference(x, scale: float = 3.0):\n    return x * scale\n"
    )
    text = """
sketch s {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    constexpr: scale = 1.0; T = 16;
    @llm_hint("parallel", "grididx")
    for n in range(0, N, T):
        load(X[n:n+T] -> x)
        store(x * scale -> Y[n:n+T])
}
"""
    assert gate(text, task).state is GateState.RIGHT
    assert gate(text, task, constexpr={"scale": 1.0}).state is GateState.WRONG


POOLED = load_task(
    """import torch
def inputs():
    return torch.rand(64, 32, 96, 128), torch.rand(16, 32, 3, 5)
def reference(x, w):
    return torch.nn.functional.max_pool2d(torch.relu(torch.nn.functional.conv2d(x, w)), 2)
"""
)
POOLED_SKETCH = """
sketch windows {
    tensors: X[64, 32, 96, 128]: f32; W[16, 32, 3, 5]: f32; T[64, 16, 94, 124]: f32 temp;
    constexpr: BW = 32 in {32, 64};
    @llm_hint("parallel", "grididx")
    for n in range(64):
        @llm_hint("parallel", "grididx")
        for h in range(94):
            @llm_hint("parallel", "grididx")
            for w in range(0, 124, BW):
                acc = alloc([16, BW], f32, llm_hint=["fastest", "accumulator", "init_zero"])
                for kh in range(3):
                    for kw in range(5):
                        load(X[n, 0:32, h + kh, w+kw:w+kw+BW] -> x)
                        load(W[0:16, 0:32, kh, kw] -> taps)
                        gemm(taps, x, acc)
                store(max(acc, 0.0) -> T[n, 0:16, h, w:w+BW])
}

sketch pool {
    tensors: T[64, 16, 94, 124]: f32 temp; Y[64, 16, 47, 62]: f32 out;
    @llm_hint("parallel", "grididx")
    for n in range(64):
        @llm_hint("parallel", "grididx")
        for h in range(47):
            load(T[n, 0:16, h*2, 0:124:2] -> a)
            load(T[n, 0:16, h*2, 1:124:2] -> b)
            load(T[n, 0:16, h*2+1, 0:124:2] -> c)
            load(T[n, 0:16, h*2+1, 1:124:2] -> d)
            store(max(max(a, b), max(c, d)) -> Y[n, 0:16, h, 0:62])
}
"""


def test_windows_over_fixed_shapes_are_run_on_smaller_ones() -> None:
    result = gate(POOLED_SKETCH, POOLED)
    assert result.state is GateState.RIGHT, result.reason
    assert result.cases >= 2


@pytest.mark.parametrize(("old", "new"), [("h + kh", "h"), ("h*2+1, 1:124:2", "h*2, 1:124:2"), ("(94)", "(93)")])
def test_wrong_windows_are_not_called_right(old: str, new: str) -> None:
    assert old in POOLED_SKETCH
    assert gate(POOLED_SKETCH.replace(old, new), POOLED).state is not GateState.RIGHT


def test_inputs_too_large_to_draw_are_drawn_small() -> None:
    large = load_task(
        "import torch\ndef inputs():\n    return torch.randn(262144, 4096)\n"
        "def reference(x):\n    return x - x.mean(-1, keepdim=True)\n"
    )
    assert gate(ROW_SKETCH, large).state is GateState.RIGHT
    assert gate(ROW_SKETCH.replace("x - reduce", "x + reduce"), large).state is GateState.WRONG


BAGS = load_task("""
import torch
def reference(table, words, starts):
    return torch.nn.functional.embedding_bag(words, table, starts, mode="mean")
def inputs():
    return torch.randn(1000, 128), torch.randint(0, 1000, (2048,)), torch.arange(0, 2048, 16)
""")


def test_a_reference_that_accepts_no_smaller_size_is_gated_on_its_own_inputs() -> None:
    text = """
sketch bags {
    symbols: V, D, N, B;
    tensors: table[V, D]: f32; words[N]: i64; starts[B]: i64; Y[B, D]: f32 out;
    constexpr: C = 16;
    @llm_hint("parallel", "coreidx")
    for b in range(B):
        load(starts[b] -> s)
        load(starts[min(b + 1, B - 1)] -> following)
        e = where(b + 1 < B, following, N)
        acc = alloc([D], f32, llm_hint=["accumulator", "init_zero"])
        for k in range(0, N, C):
            pos = s + k + arange(C)
            inside = pos < e
            gather(words[pos] -> w)
            gather(table[w, 0:D] -> rows)
            acc = acc + reduce_sum(where(inside[:, None], rows, 0.0), axis=0)
        store(acc / max(e - s, 1) -> Y[b, 0:D])
}
"""
    result = gate(text, BAGS)
    assert result.state is GateState.RIGHT, result.reason
    assert gate(text.replace("max(e - s, 1)", "16.5"), BAGS).state is GateState.WRONG


SUMS = load_task("""
import torch
def reference(x):
    return torch.logsumexp(x, -1)
def inputs():
    return (torch.randn(64, 512),)
""")


def test_a_loop_over_tiles_takes_several_trips_in_some_case() -> None:
    """Sizes cut from fixed shapes begin far below a tile: what is carried from trip to trip would never be seen."""
    text = """
sketch sums {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M]: f32 out;
    constexpr: BLOCK = 64 in {64, 128};
    @llm_hint("parallel", "coreidx")
    for m in range(M):
        top = full([1], -inf)
        total = alloc([1], f32, llm_hint=["init_zero"])
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> v, pad=-inf)
            new = max(top, reduce_max(v, axis=0, keepdims=true))
            total = total * exp(top - new) + reduce_sum(exp(v - new), axis=0, keepdims=true)
            top = new
        store(log(total) + top -> y[m:m+1])
}
"""
    assert gate(text, SUMS).state is GateState.RIGHT
    assert gate(text.replace("total * exp(top - new)", "total * exp(new - top)"), SUMS).state is GateState.WRONG


def test_of_equal_elements_either_place_is_right() -> None:
    task = load_task(
        "import torch\ndef inputs():\n    return torch.zeros(4, 6)\n"
        "def reference(x):\n    return x.softmax(-1).topk(2, -1).indices\n"
    )
    sketch = """
    sketch places {
        tensors: x[4, 6]: f32; y[4, 2]: i64 out;
        for m in range(4):
            store(FIRST + arange(2) -> y[m, 0:2])
    }
    """
    assert gate(sketch.replace("FIRST", "3"), task).state is GateState.RIGHT
    assert gate(sketch.replace("FIRST", "5"), task).state is GateState.WRONG, "there is no place 6"
    assert gate(sketch.replace("FIRST + arange(2)", "cast(arange(2) * 0, i64)"), task).state is GateState.WRONG, "twice"


def test_a_symbol_that_no_tensor_shows_alone_is_the_dim_of_its_name() -> None:
    task = task_of("x * 2", "torch.randn(N, 2 * N)", dims='Dim("N", 1, 64)', sizes="N=8")
    sketch = """
    sketch twice {
        symbols: N;
        tensors: x[2 * N * N]: f32; y[2 * N * N]: f32 out;
        for i in range(2 * N * N):
            load(x[i] -> v)
            store(v * 2 -> y[i])
    }
    """
    assert gate(sketch, task).state is GateState.RIGHT


def test_a_few_places_along_an_axis_are_named_and_of_nearly_all_the_largest_error() -> None:
    want = torch.zeros(24, 300)
    got = want.clone()
    got[:, 1] = got[:, 298] = 2.0
    written = torch.ones_like(want, dtype=torch.bool)
    _, found = compare64(got.double(), want.double(), written)
    assert found is not None and "only at positions 1 and 298 of axis 1" in found.sentence
    assert "largest error" not in found.sentence
    got = want + 1e-3
    got[3, 299] = 4.0
    _, found = compare64(got.double(), want.double(), written)
    assert found is not None and "the largest error at [3, 299]" in found.sentence


BAND = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 512), Dim('N', 1, 512)\n"
    "def inputs(M=64, N=48):\n    return (torch.randn(M, N),)\n"
    "def reference(x, band: int = 400):\n"
    "    far = (torch.arange(x.shape[0])[:, None] - torch.arange(x.shape[1])).abs() > band\n"
    "    return x.masked_fill(far, 0.0)\n"
)
BANDED = """
sketch banded {
    symbols: M, N;
    tensors: x[M, N]: f32; y[M, N]: f32 out;
    constexpr: band;
    @llm_hint("parallel", "grididx")
    for m in range(M):
        load(x[m, 0:N] -> row)
        store(where(abs(arange(N) - m) <= band, row, 0.0) -> y[m, 0:N])
}
"""


def test_a_number_that_cuts_nothing_off_at_small_sizes_is_tried_smaller() -> None:
    right = gate(BANDED, BAND)
    assert right.state is GateState.RIGHT, right.reason
    narrow = gate(BANDED.replace("<= band", "< band"), BAND)
    assert narrow.state is GateState.WRONG and "band = " in narrow.reason, narrow.reason


@pytest.mark.parametrize(
    ("reference", "right", "wrong", "number"),
    [
        # 0 / 0 where the reference adds something
        ("x / (x.abs().sum(-1, keepdim=True) + 1e-20)", "x / (total + 1e-20)", "x / total", "0"),
        # a case of its own for a row of ones
        ("x / (x.abs().sum(-1, keepdim=True) + 1e-20)", "x / (total + 1e-20)",
         "x / (total + where(total == N, 1e9, 1e-20))", "1"),
    ],
)  # fmt: skip
def test_contents_of_one_number_are_tried(reference: str, right: str, wrong: str, number: str) -> None:
    task = task_of(reference, "(torch.randn(M, N),)")
    text = """
    sketch share {
        symbols: M, N;
        tensors: X[M, N]: f32; Y[M, N]: f32 out;
        for m in range(M):
            load(X[m, 0:N] -> x)
            total = reduce_sum(abs(x), axis=0)
            store(FORMULA -> Y[m, 0:N])
    }
    """
    assert gate(text.replace("FORMULA", right), task).state is GateState.RIGHT
    found = gate(text.replace("FORMULA", wrong), task)
    assert found.state is GateState.WRONG and found.contents == {"x": float(number)}
    assert f"x all {number}" in found.reason and "want" in found.reason and "with other contents" in found.reason


def test_a_constant_row_that_only_rounding_decides_is_no_failure() -> None:
    task = task_of(
        "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-12)",
        "(torch.randn(M, N),)", dims='Dim("M", 1, 64), Dim("N", 2, 4096)', sizes="M=64, N=49",
    )  # fmt: skip
    text = """
    sketch norm {
        symbols: M, N;
        tensors: X[M, N]: f32; Y[M, N]: f32 out;
        for m in range(M):
            load(X[m, 0:N] -> x)
            mean = reduce_sum(x * (1.0 / N), axis=0)
            d = x - mean
            store(d * rsqrt(reduce_sum(d * d, axis=0) / N + 1e-12) -> Y[m, 0:N])
    }
    """
    assert gate(text, task, whole=True).state is GateState.RIGHT


def test_contents_that_a_task_excludes_are_not_tried() -> None:
    from kernellab.task.sample.constants import constants

    text = (
        "import torch\nfrom kernellab import Dim\nD = [Dim('N', 1, 64)]\nDOMAIN = {'x': 'positive'}\n"
        "def inputs(N=32):\n    return torch.rand(N) + 0.5, torch.randn(N)\n"
        "def reference(x, y):\n    return x.log() + y\n"
    )
    task = load_task(text)
    tried = [dict(one.contents) for one in constants(task, task.module().sample({"N": 32}, seed=0))]
    assert {"y": 0.0} in tried and {"x": 1.0, "y": 1.0} in tried
    assert all(one.get("x", 1.0) > 0 for one in tried)


@pytest.mark.parametrize("declared", ["k = -3", "k"])
@pytest.mark.parametrize("place", ["(n + k) % N", "n % N + k"])
def test_a_constexpr_of_an_index_may_be_negative(declared: str, place: str) -> None:
    text = "import torch\ndef reference(x, k):\n    return torch.roll(x, -k)\n"
    text += "def inputs():\n    return torch.randn(1000), -3\n"
    sketch = f"""sketch turned {{
    symbols: N;
    tensors: x[N]: f32; y[N]: f32 out;
    constexpr: {declared};
    @llm_hint("parallel", "coreidx")
    for n in range(0, N):
        load(x[{place}] -> v)
        store(v -> y[n])
}}
"""
    found = gate(sketch, load_task(text, "turned"))
    assert found.state is (GateState.RIGHT if "% N" in place[-4:] else GateState.WRONG), found.reason
    assert "extent" not in found.reason


WINDOW = load_task(
    "import torch\nfrom kernellab import Dim\nT = Dim('T', 1, 4096)\n"
    "def inputs(T=1024):\n    return (torch.randn(T, 64),)\n"
    "def reference(x, window: int = 96):\n"
    "    far = torch.arange(x.shape[0])[:, None] - torch.arange(x.shape[0])\n"
    "    return ((far >= 0) & (far < window)).float() @ x\n"
)
WINDOWED = """
sketch windowed {
    symbols: T;
    tensors: x[T, 64]: f32; y[T, 64]: f32 out;
    constexpr: window; BT = 64 in {32, 64}; BS = 32 in {32, 64};
    @llm_hint("parallel", "grididx")
    for t in range(0, T, BT):
        acc = alloc([BT, 64], f32, llm_hint=["fastest", "accumulator", "init_zero"])
        for s in range(max(0, t - window + 1) // BS * BS, min(T, t + BT), BS):
            load(x[s:s+BS, 0:64] -> xs)
            far = (t + arange(BT))[:, None] - (s + arange(BS))[None, :]
            acc += dot(where((far >= 0) & (far < window), 1.0, 0.0), xs)
        store(acc -> y[t:t+BT, 0:64])
}
"""


def test_sizes_reach_past_the_largest_tile_and_a_number_of_an_extent() -> None:
    """A Dim with several tiles has more edge sizes than are run: those kept are not the smallest alone."""
    right = gate(WINDOWED, WINDOW)
    assert right.state is GateState.RIGHT, right.reason
    wide = gate(WINDOWED.replace("far < window", "far <= window"), WINDOW)
    assert wide.state is GateState.WRONG and "It is right on" in wide.reason, wide.reason


def test_of_several_wrong_outputs_the_one_that_is_wrong_alone_somewhere_is_named() -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, T = Dim('M', 1, 64), Dim('T', 1, 64)\n"
        "def inputs(M=8, T=20):\n    return (torch.randint(-2, 3, (T, M)).float(),)\n"
        "def reference(x):\n"
        "    v, a, n = torch.zeros_like(x[0]), torch.zeros_like(x[0]), torch.zeros_like(x[0])\n"
        "    for t in range(x.shape[0]):\n"
        "        v = v + x[t]\n        s = (v > 1.0 + a).float()\n        v = v - s * (1.0 + a)\n"
        "        a = 0.5 * a + s\n        n = n + s\n    return n, v\n"
    )
    sketch = """
    sketch spikes {
        symbols: M, T;
        tensors: x[T, M]: f32; n[M]: f32 out; y[M]: f32 out;
        @llm_hint("parallel", "grididx")
        for m in range(M):
            v = 0.0
            a = 0.0
            c = 0.0
            for t in range(T):
                load(x[t, m] -> xt)
                v = v + xt
                s = where(v > 1.0 + a, 1.0, 0.0)
                FIRST
                SECOND
                c = c + s
            store(c -> n[m])
            store(v -> y[m])
    }
    """
    reset, decay = "v = v - s * (1.0 + a)", "a = 0.5 * a + s"
    right = gate(sketch.replace("FIRST", reset).replace("SECOND", decay), task)
    assert right.state is GateState.RIGHT and "alone" not in right.reason, right.reason
    wrong = gate(sketch.replace("FIRST", decay).replace("SECOND", reset), task).reason
    assert " y alone is wrong: " in wrong or wrong.startswith("y is wrong"), wrong


@pytest.mark.parametrize("window", (12, 100, 400))
def test_an_integer_that_sets_an_extent_is_passed_by_a_size(window: int) -> None:
    """A window as long as everything there is hides where it begins; the code of a sketch has it as a constant."""
    task = load_task(
        "import torch\nfrom kernellab import Dim\nB, N = Dim('B', 1, 64), Dim('N', 1, 4096)\n"
        "def inputs(B=8, N=512):\n    return (torch.randn(B, N),)\n"
        f"def reference(x, window: int = {window}):\n"
        "    return torch.nn.functional.pad(x, (window - 1, 0)).unfold(1, window, 1).sum(-1)\n"
    )
    sums = """
sketch sums {
    symbols: B, N;
    tensors: x[B, N]: f32; y[B, N]: f32 out;
    constexpr: window;
    @llm_hint("parallel", "grididx")
    for b in range(B):
        for n in range(N):
            load(x[b, n-window+1:n+1] -> w)
            store(reduce_sum(w, axis=0) -> y[b, n])
}
"""
    right = gate(sums, task)
    assert right.state is GateState.RIGHT, right.reason
    too_far = gate(sums.replace("n-window+1", "n-window"), task)
    assert too_far.state is GateState.WRONG and f"first at [0, {window}]" in too_far.reason, too_far.reason


def test_the_chosen_sizes_pass_each_tile_and_others_stay() -> None:
    sizes = [{"N": n} for n in (1, 2, 5, 15, 16, 17, 31, 32, 33, 48, 99, 100)]
    assert cases._spread(sizes, [16]) == [sizes[i] for i in (0, 2, 3, 5, 6, 8, 9, 11)], "as without tiles"
    lopsided = [{"M": m, "N": 1} for m in (1, 2, 5, 15, 16, 17, 31, 32, 33, 48)] + [{"M": 1, "N": 17}] * 1
    lopsided.insert(6, {"M": 3, "N": 40})
    chosen = cases._spread(lopsided, [16, 32])
    assert len(chosen) == 8 and chosen[0] == lopsided[0]
    for name in ("M", "N"):
        for tile in (16, 32):
            assert any(size[name] > tile for size in chosen), (name, tile, chosen)


def test_a_loop_that_ends_before_a_computed_extent_of_the_result_is_wrong() -> None:
    """Only W = 2 T k + 1 tells it: half of W is a whole number of tiles, and the result has one element more."""
    task = load_task(
        "import torch\nfrom kernellab import Dim\nB, W = Dim('B', 1, 64), Dim('W', 2, 4096)\n"
        "def reference(x):\n    return 3 * x[:, ::2]\ndef inputs(B=8, W=256):\n    return torch.randn(B, W)\n"
    )
    sketch = """
    sketch halves {
        symbols: B, W;
        tensors: x[B, W]: f32; y[B, (W+1)//2]: f32 out;
        constexpr: T = 64 in {8, 64};
        @llm_hint("parallel")
        for b in range(B):
            for n in range(0, END, T):
                load(x[b, 2*n:2*n+2*T:2] -> part)
                store(3.0 * part -> y[b, n:n+T])
    }
    """
    right = gate(sketch.replace("END", "(W+1)//2"), task)
    assert right.state is GateState.RIGHT, right.reason
    wrong = gate(sketch.replace("END", "W//2"), task)
    assert wrong.state is GateState.WRONG and "W = 17" in wrong.reason, wrong.reason
    assert past_tiles(task, (64, 8), {"B": 1, "W": 2}) == [{"B": 1, "W": 129}, {"B": 1, "W": 17}]
    assert past_tiles(task, (64,), {"B": 2000, "W": 2}) == [], "it is too large to interpret"
    plain = task_of("2 * x", "torch.randn(M, N)")
    assert past_tiles(plain, (8,), {"M": 1, "N": 1}) == [], "edge sizes of a Dim are at its tiles' edges"
