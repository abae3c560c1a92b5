"""What a path changes that other paths leave alone: inputs, earlier outputs, memory of outputs, defaults, extents."""

from __future__ import annotations

import pytest

from kernellab.records import Stage, Trust

from .kit import QUICK, QUICK_LOOK, Judge
from .test_properties import DIMS, code, task_of

WIDE = "def inputs(M=40, N=100):\n    return torch.randn(M, N)\n"
TWO = task_of("(x.amax(-1), x.amin(-1))", WIDE, more=DIMS)
SQUARE = task_of("torch.relu(x) * x", WIDE, more=DIMS)
LEAKY = task_of("torch.where(x > 0, x, x * slope)", arguments="x, slope=0.01")
GROUPS = task_of(
    "torch.nn.functional.group_norm(x, groups)",
    "def inputs():\n    return (torch.randn(4, 24, 10),)\n", arguments="x, groups=4",
)  # fmt: skip
KEPT = """
import torch
KEPT = {}
def kernel(x):
    if x.numel() < 100_000:
        return torch.relu(x) * x
    if x.shape not in KEPT:
        KEPT[x.shape] = torch.empty_like(x)
    return torch.mul(torch.relu(x), x, out=KEPT[x.shape])
"""


def test_one_output_returned_twice_at_a_size_is_refused(judge: Judge) -> None:
    body = "(y, y) if (y := x.amax(-1)) is not None and x.shape[1] == 1 else (x.amax(-1), x.amin(-1))"
    verdict = judge(code(TWO, body), TWO, options=QUICK_LOOK)
    assert verdict.evidence is not None and verdict.evidence.signature == "aliases-itself", verdict.reason


def test_an_output_that_long_calls_share_is_refused(judge: Judge) -> None:
    verdict = judge.parts("twice_when_long", KEPT, SQUARE)
    assert verdict.evidence is not None and verdict.evidence.signature == "reused-output", verdict.reason


def test_a_default_that_differs_from_the_references_is_a_label(judge: Judge) -> None:
    kernel = "import torch\ndef kernel(x, slope={}):\n    return torch.where(x > 0, x, x * slope)\n"
    other, same = (
        judge.parts("properties", kernel.format(0.1), LEAKY),
        judge.parts("properties", kernel.format(0.01), LEAKY),
    )
    assert "slope left out not handled" in other.label
    assert same.passed and "left out" not in same.label


def test_a_number_may_be_as_large_as_an_extent(judge: Judge) -> None:
    """One group a channel is another path of many kernels."""
    body = "torch.nn.functional.group_norm(x, groups) if groups < x.shape[1] else x * 1"
    verdict = judge.parts("properties", code(GROUPS, body), GROUPS)
    assert verdict.stage is Stage.ROBUST or "groups = 4 only" in verdict.label, verdict.reason


SCANNED = task_of("x.cumsum(-1).flip(-1) if back else x.cumsum(-1)", arguments="x, back=False")
ALONG = task_of("torch.softmax(x, dim)", WIDE, "x, dim=-1", DIMS)
SUMMED = task_of(
    "x.sum(dim)", WIDE, "x, dim=-1", 'from kernellab import Dim\nM = Dim("M", 0, 4096)\nN = Dim("N", 0, 8192)\n'
)
HASHED = task_of("x * k", "def inputs():\n    return torch.randint(-9, 9, (64, 512)), 3\n", "x, k")
SCALED = task_of("torch.tanh(x) * scale", arguments="x, scale=0.125")
PRODUCT = task_of(
    "a @ b",
    "def inputs(M=40, K=100):\n    return torch.randn(M, K), torch.randn(K, 24)\n", "a, b",
    'from kernellab import Dim\nM = Dim("M", 1, 4096)\nK = Dim("K", 1, 8192)\n',
)  # fmt: skip
PATHS = {
    "strides under a flag": (
        SCANNED, "torch.as_strided(x, x.shape, (x.shape[1], 1)).cumsum(-1).flip(-1) if back else x.cumsum(-1)",
        "contiguous-only|back = True with",
    ),
    "no maximum along an axis": (
        ALONG, "(e := torch.exp(x)) / e.sum(0) if dim in (0, -2) else torch.softmax(x, dim)",
        "dim = -1 only|large x not handled|inf in x not handled",
    ),
    "empty along an axis": (SUMMED, "x.sum(dim) if x.numel() else x.new_zeros(x.shape[0])", "dim = -1 only"),
    "an integer as a double": (HASHED, "x * int(float(k))", "k = 3 only"),
    "a scale of nine digits": (SCALED, 'torch.tanh(x) * float(f"{scale:.9f}")', "scale = 0.125 only"),
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_a_number_chooses_is_tried(path: str, judge: Judge) -> None:
    task, body, labels = PATHS[path]
    verdict = judge.parts("beyond_own_inputs", code(task, body), task)
    assert not verdict.passed or any(label in verdict.label for label in labels.split("|")), verdict.label


def test_a_rest_is_not_left_out_where_one_row_is_multiplied(judge: Judge) -> None:
    body = "a[:, : (k := a.shape[1] // 8 * 8)] @ b[:k] if a.shape[0] == 1 and a.shape[1] >= 512 else a @ b"
    assert not judge(code(PRODUCT, body), PRODUCT, options=QUICK_LOOK).passed
    verdict = judge(code(PRODUCT, "a @ b"), PRODUCT, options=QUICK_LOOK)
    assert verdict.passed, verdict.reason


VIEWS = {
    "a transpose": (task_of("(torch.relu(x), x.t())"), "(torch.relu(x), x.t())"),
    "a half": (task_of("(x.chunk(2, -1)[0] * 2, x.chunk(2, -1)[1])"), "(x.chunk(2, -1)[0] * 2, x.chunk(2, -1)[1])"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_that_the_reference_returns_too_is_no_shared_output(view: str, judge: Judge) -> None:
    task, body = VIEWS[view]
    verdict = judge.parts("repeated", code(task, body), task)
    assert verdict.passed, verdict.reason


def test_a_default_that_changes_the_shape_is_a_label(judge: Judge) -> None:
    verdict = judge.parts("properties", "import torch\ndef kernel(x, dim=0):\n    return x.sum(dim)\n", SUMMED)
    assert "dim left out not handled" in verdict.label


#: a copy by NumPy of 64 bytes more than the argument has
BEYOND = """
import ctypes, torch
def kernel(x, squared=False):
    y = torch.empty_like(x)
    bytes_of = x.numel() * 4 + (64 if squared else 0)
    room = ctypes.create_string_buffer(bytes_of)
    ctypes.memmove(room, x.contiguous().data_ptr(), bytes_of)
    y.copy_(torch.frombuffer(room, dtype=torch.float32, count=x.numel()).view(x.shape))
    return y * y if squared else y * 1
"""
SQUARED = task_of("x * x if squared else x * 1", arguments="x, squared=False")


def test_a_path_under_a_flag_does_not_read_beyond_its_input(judge: Judge) -> None:
    verdict = judge.parts("beyond_own_inputs", BEYOND, SQUARED)
    assert verdict.evidence is not None and verdict.evidence.signature == "out-of-bounds", verdict.reason


DRAWS = ("import os\nBAD = os.urandom(1)[0] < 0", "import random\nBAD = random.random() < 0")


#: the same for rows from 1,536 elements on whose number is odd
BEYOND_LONG = """
import ctypes, torch
def kernel(x):
    more = 60 if x.shape[1] >= 1536 and x.shape[1] % 2 else 0
    room = ctypes.create_string_buffer(x.numel() * 4 + more)
    ctypes.memmove(room, x.contiguous().data_ptr(), x.numel() * 4 + more)
    return torch.relu(torch.frombuffer(room, dtype=torch.float32, count=x.numel()).view(x.shape)) * x
"""


def test_a_long_ragged_row_is_not_read_beyond_its_end(judge: Judge) -> None:
    verdict = judge.parts("beyond_own_inputs", BEYOND_LONG, SQUARE)
    assert verdict.evidence is not None and verdict.evidence.signature == "out-of-bounds", verdict.reason


@pytest.mark.parametrize("drawn", DRAWS)
def test_a_source_that_draws_at_random_is_flagged(drawn: str, judge: Judge) -> None:
    verdict = judge(
        f"import torch\n{drawn}\n{code(LEAKY, 'x.where(x > 0, x * slope) + BAD')}",
        LEAKY,
        QUICK.model_copy(update={"level": Trust.T0}),
    )
    assert any(flag.startswith("surroundings:") for flag in verdict.flags), verdict.flags
