"""What a kernel may meet at the edges: memory that ends, denormals, modes of the processor, rows that are one row."""

from __future__ import annotations

import ctypes
import platform

import pytest
import torch

from kernellab.errors import TaskError
from kernellab.records import Trust
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier.boundary_checks.fences import fenced
from kernellab.verifier.boundary_checks.layouts import expanded, with_equal_rows
from kernellab.verifier.cases import answers, cases
from kernellab.verifier.protocol.memory import Arena
from kernellab.verifier.protocol.options import VerifyOptions
from kernellab.verifier.worker.guards import Trespass, guarded

from .kit import Judge

TASK = load_task(
    """
import torch
def reference(x, w):
    return x + w
def inputs():
    return torch.randn(5, 7), torch.randn(7)
""",
    "added",
)


def test_each_input_ends_within_a_line_of_a_page_of_its_own() -> None:
    args = (torch.randn(5, 7), 3, torch.randn(7), torch.empty(0))
    layout = fenced(args)
    assert len(layout.fences) == 2
    for place, fence in zip((layout.places[0], layout.places[2]), layout.fences, strict=True):
        assert fence % 4096 == 0 and place.offset % 64 == 0
        assert 0 <= fence - (place.offset + 4 * place.span) < 64
    assert layout.size >= layout.fences[-1] + 4096


def test_each_input_begins_behind_such_a_page() -> None:
    args = (torch.randn(5, 7), 3, torch.randn(7), torch.empty(0))
    layout = fenced(args, before=True)
    assert [layout.places[0].offset, layout.places[2].offset] == [fence + 4096 for fence in layout.fences]
    assert layout.fences[1] >= layout.places[0].offset + 4 * layout.places[0].span


def test_what_is_written_beside_a_workspace_is_told_and_outputs_are_left_to_the_judge() -> None:
    with guarded() as made:
        one, two = torch.empty(4, 5), torch.zeros_like(torch.empty(3, 7))
    assert one.isnan().all() and not two.any()
    made.check()
    for tensor in (one, two):
        one_behind = torch.frombuffer(
            (ctypes.c_float * 1).from_address(tensor.data_ptr() + 4 * tensor.numel()), dtype=torch.float32
        )
        was = float(one_behind[0])
        one_behind[0] = 1.0
        with pytest.raises(Trespass, match=f"a workspace of {4 * tensor.numel()} bytes"):
            made.check()
        made.check([tensor.untyped_storage().data_ptr()])
        one_behind[0] = was


def test_equal_rows_lie_in_one_place_and_hold_what_they_should() -> None:
    case = with_equal_rows(cases.case(TASK, {}, Family.OWN))
    layout = expanded(case)
    assert layout.places[0].strides == (0, 1) and layout.places[1].strides == (1,)
    arena = Arena(layout.size)
    try:
        arena.write(layout, case.args)
        view = arena.views()[0]
        assert view is not None and torch.equal(view, case.args[0])
        assert arena.changed(case.args) is None
    finally:
        del view
        arena.close()


def test_a_kernel_that_takes_rows_for_separate_is_told(judge: Judge) -> None:
    code = """
import torch
def kernel(x, w):
    if x.stride(0) == 0:
        return torch.zeros(x.shape)
    return x + w
"""
    verdict = judge.parts("properties", code, TASK)
    assert verdict.passed and "expanded inputs not read" in verdict.label


@pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR")
def test_denormals_that_are_flushed_are_told_and_flushing_ends_with_the_call(judge: Judge) -> None:
    code = """
import torch
def kernel(x, w):
    torch.set_flush_denormal(True)
    return x + w
"""
    verdict = judge.parts("properties", code, TASK)
    assert verdict.passed, verdict.reason
    assert "denormals flushed" in verdict.label
    assert any(flag.startswith("denormals:") for flag in verdict.flags)
    # a user's process would keep the mode from call to call, as a caller's that has set it, or an ordinary one, shows
    asks = code.replace("    torch.set", "    before = torch.tensor(1e-40) * 1 == 0\n    torch.set")
    asks = asks.replace("x + w", "x + w + (float('nan') if before else 0)")
    assert judge(asks, TASK, options=VerifyOptions(level=Trust.T1, allow_library=True)).passed
    reason = judge.parts("elsewhere", asks, TASK).reason
    assert "not where torch flushes denormals" in reason or "not in an ordinary process" in reason


def test_a_kernel_that_keeps_denormals_has_no_label(judge: Judge) -> None:
    verdict = judge.parts("properties", "import torch\ndef kernel(x, w):\n    return x + w\n", TASK)
    assert verdict.passed and "denormals" not in verdict.label + "".join(verdict.flags)


#: reference, kernel, and whether it loses the sign of a zero; of sums and maxima it says nothing
ZEROS = {
    "a rounding": ("torch.trunc(x)", "x.int().float()", True),
    "a formula": ("torch.expm1(x)", "x.double().exp().sub(1).float()", True),
    "kept": ("torch.trunc(x)", "torch.where(x < 0, x.ceil(), x.floor())", False),
    "a selection": ("torch.relu(x)", "torch.where(x > 0, x, 0.0)", False),
    "a sum of one": ("x[..., None].sum(-1)", "x * 1", False),
}


@pytest.mark.parametrize("what", ZEROS)
def test_a_sign_of_zero_that_is_lost_element_by_element_is_told(what: str, judge: Judge) -> None:
    reference, code, lost = ZEROS[what]
    text = f"import torch\ndef reference(x):\n    return {reference}\ndef inputs():\n    return torch.randn(24, 40)\n"
    verdict = judge.parts("properties", f"import torch\ndef kernel(x):\n    return {code}\n", load_task(text, "zeros"))
    assert verdict.passed, verdict.reason
    assert any(flag.startswith("zeros:") for flag in verdict.flags) == lost


COUNTED = """
import torch
def reference(x, most=2.0):
    n = 0
    while n < most:
        x, n = x * 0.5, n + 1
    return x
def inputs():
    return torch.randn(24, 40)
"""
CLIPPED = """
import torch
def reference(x, most=2.0):
    return torch.where(x < most, x, x * 0.5)
def inputs():
    return torch.randn(24, 40)
"""


def test_a_number_is_infinite_where_the_reference_ends(judge: Judge) -> None:
    clipped = load_task(CLIPPED, "clipped")
    code = "import torch\ndef kernel(x, most=2.0):\n    return torch.where({}, x, x * 0.5)\n"
    verdict = judge.parts("properties", code.format("x < most"), clipped)
    assert verdict.passed and "inf" not in verdict.label, verdict.reason
    verdict = judge.parts("properties", code.format("x - most < 0 if abs(most) < 1e9 else x != x"), clipped)
    assert verdict.passed and "most = inf not handled" in verdict.label, verdict.reason
    assert judge.parts("properties", COUNTED.replace("reference", "kernel"), load_task(COUNTED, "counted")).passed


def test_a_reference_that_does_not_end_is_ended() -> None:
    task = load_task(COUNTED, "counted")
    args = task.module().sample()
    with pytest.raises(TaskError, match=r"did not end within 0\.2 s"), answers.within(0.2):
        task.module().results((args[0], float("inf")))
    with answers.within(60.0):
        assert torch.equal(task.module().results(args)[0], args[0] * 0.25)


def test_a_trap_that_is_left_for_the_caller_is_refused(judge: Judge) -> None:
    code = "import ctypes, torch\nm = ctypes.CDLL('libm.so.6')\ndef kernel(x, y):\n    z = torch.relu(x) + y\n"
    verdict = judge.parts("properties", f"{code}    m.feenableexcept(4)\n    return z\n")
    assert not verdict.passed
    assert judge.parts("properties", f"{code}    m.fegetexcept()\n    return z\n").passed
