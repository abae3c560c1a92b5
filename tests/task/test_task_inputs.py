"""Redrawn inputs keep the support that the samples show, and degenerate tasks are flagged."""

from __future__ import annotations

import traceback

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.task import Arg, ArgKind, load_task, quality, small_sizes
from kernellab.task.sample.inputs import Family, Support, draw, families, legal_values, redraw
from kernellab.task.sample.shrink import cut, free_axes, shrunk
from kernellab.task.values import _has_accelerator, seeded

FAMILIES = [f for f in Family if f is not Family.OWN]
ARG = Arg("x", ArgKind.TENSOR, "float32", ("M", "N"))


def task_of(body: str, inputs: str, extra: str = "") -> str:
    return (
        f"import torch\n\ndef reference(x, *more):\n    return {body}\n\ndef inputs():\n    return {inputs}\n{extra}\n"
    )


def redrawn(sample: torch.Tensor, family: Family, seed: int, kind: ArgKind = ArgKind.TENSOR) -> torch.Tensor:
    spec = Arg("x", kind, "float32", tuple(sample.shape))
    generator = torch.Generator().manual_seed(seed)
    return draw(sample, legal_values(spec, sample), family, generator)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1000))
def test_support_is_kept(family: Family, seed: int) -> None:
    base = torch.randn(9, 24, generator=torch.Generator().manual_seed(seed))
    assert (redrawn(base.abs() + 0.1, family, seed) > 0).all()
    assert (redrawn(-base.abs(), family, seed) <= 0).all()
    unit = redrawn(base.sigmoid(), family, seed)
    assert (unit >= 0).all() and (unit <= 1).all()
    rows = redrawn(base.softmax(-1), family, seed)
    assert torch.allclose(rows.sum(-1), torch.ones(9), atol=1e-2) and (rows > 0).all()
    assert (redrawn(base.sort(-1).values, family, seed).diff(dim=-1) >= 0).all()
    assert set(redrawn(base.sign(), family, seed).unique().tolist()) <= {-1.0, 1.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_redrawn_values_are_new_finite_and_like_the_sample(family: Family) -> None:
    sample = torch.randn(16, 64).to(torch.bfloat16)
    spec = Arg("x", ArgKind.TENSOR, "bfloat16", (16, 64))
    drawn = draw(sample, legal_values(spec, sample), family, torch.Generator().manual_seed(3))
    assert drawn.shape == sample.shape and drawn.dtype == sample.dtype and drawn.is_contiguous()
    assert drawn.isfinite().all()
    assert not torch.equal(drawn, sample)


def test_a_mixed_batch_holds_rows_of_different_kinds() -> None:
    sample = torch.randn(20, 400)
    spread = redrawn(sample, Family.MIXED, 1).std(-1)
    assert spread.max() > 3 * spread.min()


def test_values_that_are_not_finite_and_integers_stay() -> None:
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
    assert legal_values(ARG, mask).support is Support.FIXED
    task = load_task(task_of("x[:, 0] + more[0]", "torch.randn(8, 4), torch.arange(8)"))
    args = task.module().sample()
    drawn = redraw(task, args, Family.HEAVY, 3)
    assert not torch.equal(drawn[0], args[0]) and torch.equal(drawn[1], args[1])


def test_a_variance_buffer_stays_positive_and_weights_change_sign() -> None:
    ones = torch.ones(64)
    assert (redrawn(ones, Family.NORMAL, 0, ArgKind.BUFFER) > 0).all()
    weights = redrawn(ones, Family.NORMAL, 0, ArgKind.PARAMETER)
    assert (weights < 0).any() and (weights > 0).any()


def test_domain_overrides_what_the_samples_show() -> None:
    task = load_task(task_of("torch.relu(x)", "torch.rand(8, 32)", "DOMAIN = {'x': 'real'}"))
    drawn = redraw(task, task.module().sample(), Family.NORMAL, 0)[0]
    assert (drawn < 0).any()
    task = load_task(task_of("x * 2", "torch.rand(8, 32)", "DOMAIN = {'x': 'range(5, 6)'}"))
    drawn = redraw(task, task.module().sample(), Family.HEAVY, 0)[0]
    assert (drawn >= 5).all() and (drawn <= 6).all()


def test_static_arguments_can_be_kept() -> None:
    task = load_task(task_of("x @ more[0]", "torch.randn(8, 8), torch.randn(8, 8)", "STATIC = ['arg1']"))
    args = task.module().sample()
    drawn = redraw(task, args, Family.NORMAL, 0, keep_static=True)
    assert torch.equal(drawn[1], args[1]) and not torch.equal(drawn[0], args[0])


def test_a_family_that_makes_the_reference_overflow_is_dropped() -> None:
    assert families(load_task(task_of("x * 2", "torch.randn(8, 32)"))) == tuple(Family)
    kept = families(load_task(task_of("torch.exp(torch.exp(x))", "torch.randn(8, 32)")))
    assert Family.OWN in kept and Family.HEAVY not in kept


DYNAMIC = """
import torch
from kernellab import Dim
D = [Dim("M", 1, 4096), Dim("N", {low}, 4096)]
def inputs(M=512, N=1024):
    return torch.randn(M, N)
def reference(x):
    return {body}
"""


def test_small_sizes_meet_the_edges_of_the_tiles() -> None:
    sizes = small_sizes(load_task(DYNAMIC.format(low=1, body="x * 2")), (16,), limit=12)
    assert {"M": 1, "N": 1} in sizes
    met = {s["N"] for s in sizes}
    assert {15, 16, 17} <= met
    assert any(n > 2 and all(n % k for k in range(2, n)) for n in met)


def test_small_sizes_stay_in_the_ranges_and_where_the_task_runs() -> None:
    task = load_task(DYNAMIC.format(low=64, body="x.reshape(x.shape[0], 8, -1).sum(1)"))
    sizes = small_sizes(task, (16,))
    assert sizes and all(s["N"] >= 64 and s["N"] % 8 == 0 for s in sizes)


@pytest.mark.parametrize(
    ("body", "inputs", "rule"),
    [
        ("x + torch.rand_like(x)", "torch.randn(8, 32)", "random"),
        ("torch.nn.functional.dropout(x, training=True)", "torch.randn(8, 32)", "random"),
        ("torch.full_like(x, 3.0)", "torch.randn(8, 32)", "constant"),
        ("torch.arange(32.0) * torch.ones_like(x)", "torch.randn(8, 32)", "input-independent"),
        ("torch.relu(x)", "torch.rand(8, 32)", "identity"),
        ("torch.relu(-x)", "torch.rand(8, 32)", "zeros"),
        ("torch.clamp(x, 1, 2)", "torch.rand(8, 32)", "ones"),
        ("x * 2 + 0 * more[0]", "torch.randn(8, 32), torch.randn(8, 32)", "unused-input"),
        ("x * float('nan')", "torch.randn(8, 32)", "not-finite"),
    ],
)
def test_degenerate_tasks_are_flagged_with_the_reason(body: str, inputs: str, rule: str) -> None:
    flags = quality(load_task(task_of(body, inputs)))
    assert rule in {f.rule for f in flags}
    assert all(f.reason.endswith(".") for f in flags)


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("torch.relu(x)", "torch.randn(8, 32)"),
        ("torch.softmax(x, -1)", "torch.randn(8, 32)"),
        ("x @ more[0]", "torch.randn(8, 32), torch.randn(32, 8)"),
        ("x.argmax(-1)", "torch.randn(64, 32)"),
        ("x.sum()", "torch.randn(8, 32)"),
        ("x.nanmean(-1)", "torch.randn(8, 32).where(torch.rand(8, 32) > 0.2, float('nan'))"),
        ("torch.softmax(x + more[0], -1)", "torch.randn(8, 8), torch.full((8, 8), -float('inf')).triu(1)"),
    ],
)
def test_good_tasks_are_not_flagged(body: str, inputs: str) -> None:
    assert quality(load_task(task_of(body, inputs))) == ()
    assert load_task(task_of(body, inputs), audit=True).flags == ()


def test_a_large_fixed_task_is_cut_along_the_axes_that_may_vary() -> None:
    text = task_of("torch.nn.functional.layer_norm(x, (512,), more[0])", "torch.randn(4096, 512), torch.randn(512)")
    task = load_task(text)
    axes = free_axes(task)
    assert [(a.size, a.outputs) for a in axes] == [(4096, ((0, 0),))]
    args = shrunk(task)
    assert args is not None and args[0].shape[1] == 512 and args[0].shape[0] < 4096
    full = task.module().sample()
    small = cut(full, {axes[0]: 5})
    assert torch.allclose(task.module().reference(small)[0], task.module().reference(full)[0][:5], atol=1e-6)


def test_axes_that_belong_together_are_cut_together() -> None:
    task = load_task(task_of("x @ more[0] + more[1]", "torch.randn(100, 60), torch.randn(60, 40), torch.randn(40)"))
    assert {(a.size, frozenset(a.axes)) for a in free_axes(task)} == {
        (100, frozenset({(0, 0)})),
        (60, frozenset({(0, 1), (1, 0)})),
        (40, frozenset({(1, 1), (2, 0)})),
    }


def test_a_task_of_gigabytes_is_audited_without_drawing_them() -> None:
    import resource

    text = task_of(
        "torch.nn.functional.conv2d(x, more[0]).relu()",
        "torch.randn(64, 16, 4096, 4096), torch.randn(8, 16, 3, 3)",
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    task = load_task(text)
    assert task.outputs[0].shape == (64, 8, 4094, 4094)
    assert quality(task) == ()
    args = shrunk(task, limit_bytes=1 << 20)
    assert args is not None and sum(a.numel() for a in args) < 1 << 18
    # kibibytes: the whole input would be 64 GiB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20


def test_what_is_written_into_arguments_and_another_dtype_are_no_faults_of_a_task() -> None:
    written = "import torch\ndef reference(x, y):\n    x.add_(torch.softmax(y, -1))\n"
    written += "def inputs():\n    return torch.randn(8, 32), torch.randn(8, 32)\n"
    assert not quality(load_task(written))
    assert not quality(load_task(task_of("x.to(torch.float8_e5m2)", "torch.randn(8, 32) * 10")))
    kept = "import torch\ndef reference(x, y):\n    x.add_(y, alpha=0)\n"
    kept += "def inputs():\n    return torch.randn(8, 32), torch.randn(8, 32)\n"
    assert {"identity", "unused-input"} & {f.rule for f in quality(load_task(kept))}


def test_a_sample_without_a_device_formats_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch keeps a call with its stack for each device that it might start; a verdict draws dozens of samples."""
    if torch.accelerator.current_accelerator() is not None:
        pytest.skip("this build of torch has devices, whose generators are seeded too")
    torch.manual_seed(7)
    want = torch.rand(3)
    monkeypatch.setattr(traceback, "format_stack", lambda *_: pytest.fail("a stack is formatted"))
    state = torch.get_rng_state()
    with seeded(7):
        assert torch.equal(torch.rand(3), want)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_torch_that_raises_for_want_of_an_accelerator_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch 2.6 does."""

    def refused() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", refused)
    assert not _has_accelerator()
