"""A quick look on a machine with little memory: what is held while an answer is checked."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._decomp import get_decompositions

from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.cases.prefetch import Ahead
from kernellab.verifier.cases.selection import both_long, is_small_inside
from kernellab.verifier.compare import roundings
from kernellab.verifier.judge.pool import Pool

ATTENTION = load_task(
    "import torch\nfrom kernellab import Dim\nB, S = Dim('B', 1, 64), Dim('S', 1, 4096)\n"
    "def reference(q, k):\n    return torch.softmax(q @ k.transpose(1, 2), -1).sum(-1)\n"
    "def inputs(B=4, S=128):\n    return torch.randn(B, S, 16), torch.randn(B, S, 16)\n",
    "scores",
)
ROWS = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 4096), Dim('N', 1, 4096)\n"
    "def reference(x):\n    return x * 2\ndef inputs(M=64, N=4096):\n    return (torch.randn(M, N),)\n",
    "rows",
)


def test_what_the_reference_computes_inside_counts_as_its_inputs_do() -> None:
    assert is_small_inside(ATTENTION, {"B": 1, "S": 1024}, 8 << 20)
    assert not is_small_inside(ATTENTION, {"B": 8, "S": 4096}, 8 << 20)
    assert input_bytes(ATTENTION, {"B": 8, "S": 4096}) < 8 << 20
    assert is_small_inside(ATTENTION, {"B": 8, "S": 4096}, 0)
    known = [cases.case(ATTENTION, {"B": 1, "S": s}, Family.OWN) for s in (3, 64)]
    for _ in range(4):
        long = both_long(ATTENTION, known, 8 << 20)
        assert long is None or is_small_inside(ATTENTION, dict(long.sizes), 8 << 20)


def test_a_reference_that_needs_values_has_no_limit_inside() -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nN = Dim('N', 1, 4096)\n"
        "def reference(x):\n    return x * (2 if x.sum().item() > 0 else 3)\n"
        "def inputs(N=64):\n    return (torch.randn(N),)\n",
        "values",
    )
    assert is_small_inside(task, {"N": 64}, 1)


def test_cases_made_ahead_have_at_most_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = selection.correct_cases
    left: list[cases.Case] = []

    def correct_cases(*args: object) -> list[cases.Case]:
        planned = drawn(*args)  # type: ignore[arg-type]
        left[:] = [case for case in planned if case.computed.native is None]  # choosing some needs their outputs
        return planned

    monkeypatch.setattr(selection, "correct_cases", correct_cases)

    def made(most: int) -> int:
        for _ in Ahead(ROWS, False, most=most).make():
            pass
        return sum(input_bytes(ROWS, dict(case.sizes)) for case in left if case.computed.native is not None)

    assert 0 < made(2 << 20) <= 2 << 20 < made(0)


def test_a_checked_case_keeps_its_seconds_and_no_tensor() -> None:
    case = cases.case(ROWS, {"M": 3, "N": 5}, Family.OWN)
    assert case.references and case.reference_seconds > 0
    timed = case.timed()
    assert timed == case and timed.reference_seconds == case.reference_seconds
    assert not any(isinstance(part, torch.Tensor) for value in vars(timed).values() for part in _parts(value))


def _parts(value: object) -> list[object]:
    if isinstance(value, (cases.Computed, cases.Native)):
        value = tuple(vars(value).values())
    if isinstance(value, (tuple, list)):
        return [part for one in value for part in _parts(one)]
    return [value]


ROWS_OF = [torch.randn(3, 5, dtype=d) for d in (torch.float64, torch.float32, torch.bfloat16, torch.float16)]
ROWS_OF += [torch.tensor(2.5), torch.zeros(0, 4), torch.zeros(4, 0), torch.full((2, 3), -torch.inf)]
ROWS_OF += [torch.tensor([[torch.inf, 1.0], [torch.nan, 2.0]])]


@pytest.mark.parametrize("x", ROWS_OF, ids=lambda x: f"{x.dtype}-{tuple(x.shape)}")
def test_own_forms_of_sums_are_torchs(x: torch.Tensor) -> None:
    aten = torch.ops.aten
    torchs = get_decompositions([aten._softmax, aten._log_softmax, aten.logsumexp, aten.gelu])
    own = {**roundings._WITH_SUMS, **roundings._hidden()}
    calls: list[tuple[object, tuple[object, ...], dict[str, str]]] = [
        (aten._softmax.default, (x, -1, False), {}), (aten._log_softmax.default, (x, -1, False), {}),
        (aten.gelu.default, (x,), {}), (aten.gelu.default, (x,), {"approximate": "tanh"}),
    ]  # fmt: skip
    if x.dim():
        calls += [(aten.logsumexp.default, (x, [-1], keep), {}) for keep in (True, False)]
    for operator, args, kwargs in calls:
        ours, theirs = own[operator](*args, **kwargs), torchs[operator](*args, **kwargs)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_a_judged_softmax_loads_no_symbolic_algebra() -> None:
    code = (
        "import sys, torch\nfrom kernellab.verifier.compare.roundings import Piled, Reordered\n"
        "x = torch.randn(4, 9, dtype=torch.float64)\n"
        "for mode in (Piled(0), Reordered(1e-7, 0)):\n    with mode:\n"
        "        torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1), torch.nn.functional.gelu(x)\n"
        "print([name for name in ('sympy', 'torch._dynamo') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_workers_of_another_tasks_baseline_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        closed = False

        def close(self) -> None:
            self.closed = True

    pool = Pool()
    try:
        workers = {task: Fake() for task in (ROWS, ATTENTION)}
        for task, worker in workers.items():
            pool._baselines["eager", task.name, task.hash, 1, 0] = worker  # type: ignore[assignment]
        pool.end_others(ROWS)
        assert {task.name: worker.closed for task, worker in workers.items()} == {"rows": False, "scores": True}
    finally:
        pool.close()
