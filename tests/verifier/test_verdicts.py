"""Honest kernels pass, wrong and dishonest ones fail at the stage and with the signature that fits."""

from __future__ import annotations

import pytest

from kernellab.agents.rules.contrast import contrast_lines
from kernellab.records import Author, Stage, StageState, Trust
from kernellab.task import load_task
from kernellab.verifier import VerifyOptions, reproduce
from kernellab.verifier.protocol.rules import TIMING

from .kit import QUICK, QUICK_LOOK, RMS_CPP, Judge

HONEST = """
import torch
def kernel(x, y):
    return torch.relu(x) + y
"""


def body(text: str, before: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in text.strip().splitlines())
    return f"import torch\n{before}\ndef kernel(x, y):\n{lines}"


def test_an_honest_kernel_passes_all_stages(judge: Judge) -> None:
    seen = []
    from kernellab.records import Source

    from .kit import TARGET

    source = Source(dsl="cpp", files={"kernel.py": RMS_CPP})
    verdict = judge.verifier.verify(judge.scale, source, TARGET, options=QUICK, progress=seen.append)
    assert verdict.passed, verdict.reason
    assert verdict.stage is Stage.FAST and verdict.trust is Trust.T2
    assert [r.name for r in seen if r.state is StageState.PASSED] == list(Stage)
    assert [r for r in seen if r.state is not StageState.RUNNING] == verdict.stages
    under_way = [(r.name, r.note) for r in seen if r.state is StageState.RUNNING]
    assert list(dict.fromkeys(name for name, _ in under_way)) == list(Stage)
    cases = [note for name, note in under_way if name is Stage.CORRECT and note]
    last = next(n for n, note in enumerate(cases) if not note.startswith("case "))
    assert cases[:last] == [f"case {n} of {last}" for n in range(1, last + 1)] and last > 3
    # what follows takes as long: it says what it does, too
    assert cases[last:] == [
        "sizes at the ends of their ranges", "sizes from all of their ranges",
        "contents far from zero, and repeated calls",
    ]  # fmt: skip
    drawn, coverage = [note for name, note in under_way if name is Stage.ROBUST and note], verdict.coverage
    assert coverage is not None
    assert drawn == [f"drawn input {n} of {coverage.cases + coverage.untried}" for n in range(1, coverage.cases + 1)]
    assert (Stage.FAST, "timing against eager") in under_way
    assert verdict.time is not None and verdict.time.median_ms > 0
    eager = verdict.against("eager")
    assert eager is not None and eager.low <= eager.speedup <= eager.high
    assert verdict.own_share is not None and verdict.own_share > 0.9
    assert verdict.sol_ms is not None and verdict.sol_ms > 0
    assert verdict.environment.bandwidth > 1e8 and verdict.environment.flops > 1e8
    assert verdict.environment.sandbox and verdict.environment.threads == 1


WRONG = {
    "all-zero": (body("return torch.zeros_like(x)"), Stage.CORRECT),
    "off-by-scale": (body("return 1.01 * (torch.relu(x) + y)"), Stage.CORRECT),
    "off-by-constant": (body("return torch.relu(x) + y + 0.5"), Stage.CORRECT),
    "identity": (body("return x.clone()"), Stage.CORRECT),
    "accumulate-dtype": (body("return (x.bfloat16().relu() + y.bfloat16()).float()"), Stage.CORRECT),
    "nan": (body("z = torch.relu(x) + y\nz[3, 5] = float('nan')\nreturn z"), Stage.CORRECT),
    "edge-tile": (body("z = torch.relu(x) + y\nz[:, 64:] = 0\nreturn z"), Stage.CORRECT),
    "shape": (body("return (torch.relu(x) + y)[None]"), Stage.SMOKE),
    "dtype": (body("return (torch.relu(x) + y).double()"), Stage.SMOKE),
    "count": (body("z = torch.relu(x) + y\nreturn z, z"), Stage.SMOKE),
    "output": (body("return 'done'"), Stage.SMOKE),
    "exception": (body("raise ValueError('no such tile')"), Stage.SMOKE),
    "race": (body("return torch.relu(x) + y + torch.rand_like(x)"), Stage.CORRECT),
    "mutates-input": (body("z = torch.relu(x) + y\nx.mul_(2)\nreturn z"), Stage.SMOKE),
    "reused-output": (
        body("z = torch.relu(x) + y\nout = B.setdefault('z', torch.empty_like(z))\nreturn out.copy_(z)", "B = {}"),
        Stage.CORRECT,
    ),
    "stale": (
        body("k = (x.data_ptr(), x.shape)\nif k not in C: C[k] = torch.relu(x) + y\nreturn C[k].clone()", "C = {}"),
        Stage.CORRECT,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_fails_with_its_signature(judge: Judge, name: str) -> None:
    code, stage = WRONG[name]
    verdict = judge(code)
    assert not verdict.passed
    assert verdict.evidence is not None
    assert (verdict.evidence.signature, verdict.stage) == (name, stage), verdict.reason
    assert verdict.time is None


def test_returning_an_input_is_refused_even_where_its_values_are_right(judge: Judge) -> None:
    task = load_task(
        "import torch\ndef reference(x):\n    return torch.relu(x)\ndef inputs():\n    return torch.rand(40, 50)\n",
        "relu",
    )
    verdict = judge("import torch\ndef kernel(x):\n    return x\n", task)
    assert (verdict.passed, verdict.stage) == (False, Stage.SMOKE), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.signature == "aliases-input"


def test_evidence_shows_where_and_reproduces(judge: Judge) -> None:
    verdict = judge(WRONG["edge-tile"][0])
    found = verdict.evidence
    assert found is not None and found.first_wrong == [0, 64]
    assert isinstance(found.got, float) and found.got != found.want
    assert found.wrong_fraction == pytest.approx(6 / 70, abs=0.01)
    assert len(found.error_map) == 16 and all(row.endswith("x") and row.startswith(".") for row in found.error_map)
    scope: dict = {}
    exec(found.reproduction.split("for g, w")[0], scope)
    got, want = scope["got"][0], scope["want"][0]
    assert got[tuple(found.first_wrong)].item() == pytest.approx(found.got)
    assert want[tuple(found.first_wrong)].item() == pytest.approx(found.want)
    assert reproduce is scope["reproduce"]


def test_a_step_that_is_left_out_of_a_long_sum_is_no_loss_of_digits(judge: Judge) -> None:
    """One of many terms is as small a share as the digits of a narrow sum; of few terms it is a large one."""
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 64), Dim('N', 1, 8192)\n"
        "def reference(x):\n    return x.sum(-1)\ndef inputs(M=8, N=4096):\n    return (torch.rand(M, N),)\n",
        "sums",
    )
    told = judge("import torch\ndef kernel(x):\n    return x[:, : max(1, x.shape[1] - 1)].sum(-1)\n", task)
    assert told.evidence is not None and told.evidence.signature not in ("accumulate-dtype", None), told.reason
    narrow = judge("import torch\ndef kernel(x):\n    return x.bfloat16().sum(-1).float()\n", task)
    assert narrow.evidence is not None and narrow.evidence.signature == "accumulate-dtype", narrow.reason


def test_a_kernel_without_a_parameter_for_a_default_number_is_reproduced() -> None:
    task = "import torch\ndef reference(x, slope=0.5):\n    return x * slope\ndef inputs():\n    return torch.ones(3)\n"
    source = {"dsl": "cpp", "files": {"kernel.py": "def kernel(x):\n    return x * 0.5\n"}, "origin": "human"}
    args, got, want = reproduce(task, source, sizes={}, family="inputs", seed=1)
    assert len(args) == 2 and got[0].tolist() == want[0].tolist() == [0.5] * 3


EDGES = {
    "the store's mask": ("for (long j = 0; j < N; j++) y", "for (long j = 0; j < (N + 15) / 16 * 16; j++) y"),
    "the load's mask": ("for (long j = 0; j < N; j++) s", "for (long j = 0; j < (N + 15) / 16 * 16; j++) s"),
    "the row mask": ("i < M;", "i < (M + 7) / 8 * 8;"),
    "the tail": ("for (long j = 0; j < N; j++) y", "for (long j = 0; j < N / 16 * 16; j++) y"),
}


@pytest.mark.parametrize("what", EDGES)
def test_a_deleted_edge_mask_is_seen_as_edge_tile(judge: Judge, what: str) -> None:
    old, new = EDGES[what]
    assert old in RMS_CPP
    verdict = judge(RMS_CPP.replace(old, new), judge.scale)
    assert not verdict.passed
    assert verdict.evidence is not None and verdict.evidence.signature == "edge-tile", verdict.reason
    assert verdict.stage in (Stage.SMOKE, Stage.CORRECT)


def test_after_a_wrong_answer_other_sizes_tell_which_dim_and_which_multiple(judge: Judge) -> None:
    old, new = EDGES["the tail"]
    found = judge(RMS_CPP.replace(old, new), judge.scale).evidence
    assert found is not None
    assert {case.sizes["N"] % 16 == 0 for case in found.tried if case.right} == {True}
    assert {case.sizes["N"] % 16 == 0 for case in found.tried if not case.right} == {False}
    told = "where N is a multiple of 16"
    assert told in contrast_lines(found)[-1]


@pytest.mark.parametrize(
    ("fault", "signature"), [("ctypes.string_at(8)", "crash"), ("out += 1", "off-by-constant")], ids=["crash", "wrong"]
)
def test_a_fault_of_all_large_sizes_is_no_edge(judge: Judge, fault: str, signature: str) -> None:
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 640), Dim('N', 1, 4096)\n"
        "def reference(x):\n    return x * 2\ndef inputs(M=601, N=77):\n    return (torch.randn(M, N),)\n",
        "double",
    )
    code = f"import ctypes\ndef kernel(x):\n    out = x * 2\n    if x.shape[0] > 600: {fault}\n    return out\n"
    found = judge(code, task).evidence
    assert found is not None and found.sizes["M"] > 600 and found.signature == signature, found


def test_what_is_lost_between_whole_tiles_is_no_edge(judge: Judge) -> None:
    # right in one tile, wrong from the second on: no mask of a tail mends it
    task = load_task(
        "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 4096), Dim('N', 1, 4096)\n"
        "def reference(x):\n    return x.cumsum(-1)\ndef inputs(M=64, N=256):\n    return (torch.randn(M, N),)\n",
        "running_sum",
    )
    verdict = judge(
        "import torch\ndef kernel(x):\n    return torch.cat([t.cumsum(-1) for t in x.split(64, -1)], -1)\n", task
    )
    assert (verdict.passed, verdict.stage) == (False, Stage.CORRECT), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.sizes == {"M": 64, "N": 256}
    assert verdict.evidence.signature == "wrong-values", verdict.reason


def test_a_write_past_the_end_of_a_fixed_shape_is_seen(judge: Judge) -> None:
    task = load_task(
        "import torch\ndef reference(x, w):\n"
        "    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w\n"
        "def inputs():\n    return torch.randn(33, 64), torch.randn(64)\n",
        "fixed",
    )
    assert judge(RMS_CPP, task, QUICK_LOOK).passed
    verdict = judge(RMS_CPP.replace("i < M;", "i < (M + 7) / 8 * 8;"), task)
    assert not verdict.passed and verdict.evidence is not None
    assert verdict.evidence.signature == "edge-tile" and "outside" in verdict.reason


def test_a_compile_error_names_file_and_line(judge: Judge) -> None:
    code = RMS_CPP.replace("float r = 1.0f", "float r = undeclared + 1.0f").replace(
        "check=True)", "check=True, stderr=None)"
    )
    verdict = judge(code, judge.scale)
    assert (verdict.passed, verdict.stage) == (False, Stage.BUILD)
    assert verdict.evidence is not None and verdict.evidence.compiler
    assert "undeclared" in verdict.evidence.log


def test_a_syntax_error_stops_at_the_first_stage(judge: Judge) -> None:
    verdict = judge("def kernel(x, y:\n    return x\n")
    assert (verdict.passed, verdict.stage) == (False, Stage.STATIC)
    assert verdict.evidence is not None and verdict.evidence.compiler[0].line == 1
    assert [r.state for r in verdict.stages][1:] == [StageState.NOT_REACHED] * 6


def test_an_import_error_is_a_build_failure_with_its_line(judge: Judge) -> None:
    verdict = judge("import torch\nimport not_there_at_all\ndef kernel(x, y):\n    return x\n")
    assert (verdict.passed, verdict.stage) == (False, Stage.BUILD)
    assert verdict.evidence is not None and verdict.evidence.compiler[0].line == 2


def test_an_exception_in_a_library_names_the_candidates_line_and_the_librarys(judge: Judge) -> None:
    verdict = judge("import json\ndef kernel(x, y):\n    return json.loads('[')\n")
    assert (verdict.passed, verdict.stage) == (False, Stage.SMOKE), verdict.reason
    assert verdict.reason.startswith("kernel.py, line 3: ") and " (in json/decoder.py, line " in verdict.reason


def test_library_operators_are_refused_unless_allowed(judge: Judge) -> None:
    task = load_task(
        "import torch\ndef reference(x, y):\n    return x @ y\n"
        "def inputs():\n    return torch.randn(400, 400), torch.randn(400, 400)\n",
        "mm",
    )
    code = RMS_CPP.split("def kernel")[0] + "def kernel(x, y):\n    lib.rms\n    return torch.matmul(x, y)\n"
    verdict = judge.parts("honest", code, task, VerifyOptions(budget=0.05, threads=1))
    assert (verdict.passed, verdict.stage) == (False, Stage.HONEST), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.signature == "library"
    allowed = judge.parts("honest", code, task)
    assert allowed.passed and "library" in allowed.label and allowed.own_share is not None and allowed.own_share < 0.9


def test_a_kernel_that_needs_contiguous_inputs_gets_a_label_or_fails(judge: Judge) -> None:
    code = RMS_CPP.replace("x.stride(0)", "x.shape[1]")
    assert "contiguous-only" in judge.parts("properties", code, judge.fixed).label
    ours = judge.parts("properties", code, judge.fixed, origin=Author.RULES)
    assert (ours.passed, ours.stage) == (False, Stage.ROBUST)


def test_a_kernelbench_model_is_judged_on_its_parameters(judge: Judge) -> None:
    text = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs():
    return [torch.rand(20, 33)]
def get_init_inputs():
    return [33, 17]
"""
    task = load_task(text, "linear_relu")
    same = text.replace("class Model", "class ModelNew").replace("super()", "super(ModelNew, self)")
    renamed = same.replace("self.linear", "self.fc")
    unfit = same.replace("nn.Linear(n, m)", "nn.Linear(n, m, bias=False)")
    function = "import torch\ndef kernel(x, w, b):\n    return torch.relu(x @ w.T + b)\n"
    for code, options in ((same, QUICK), (renamed, QUICK_LOOK), (function, QUICK_LOOK)):
        verdict = judge(code, task, options)
        assert verdict.passed, verdict.reason
    verdict = judge(unfit, task)
    assert (verdict.passed, verdict.stage) == (False, Stage.SMOKE)
    assert "state_dict" in verdict.reason


def test_contents_that_the_reference_refuses_are_asked_of_no_kernel(judge: Judge) -> None:
    """A few rows of large numbers, and the sum of a matrix and 64 on its diagonal is not positive definite any more:
    among the secret contents some are, in most verdicts."""
    body = "torch.linalg.cholesky(x @ x.mT + 64 * torch.eye(x.shape[-1])) * 2"
    task = load_task(
        "import torch\nfrom kernellab import Dim\nB = Dim('B', 1, 64)\nN = Dim('N', 2, 128)\n"
        f"def reference(x):\n    return {body}\ndef inputs(B=16, N=64):\n    return torch.randn(B, N, N)\n",
        "factors",
    )
    verdict = judge(f"import torch\ndef kernel(x):\n    return {body}\n", task)
    assert verdict.passed, verdict.reason
    wrong = judge(f"import torch\ndef kernel(x):\n    return {body.replace('* 2', '* 2.01')}\n", task, QUICK_LOOK)
    assert not wrong.passed


def test_levels_stop_where_they_say(judge: Judge) -> None:
    lint = judge(HONEST, options=QUICK.model_copy(update={"level": Trust.T0}))
    assert lint.passed and lint.trust is Trust.T0 and lint.stage is Stage.STATIC
    quick = judge(HONEST, options=QUICK.model_copy(update={"level": Trust.T1}))
    assert quick.passed and quick.trust is Trust.T1 and quick.stage is Stage.CORRECT and quick.time is None
    sealed = judge(HONEST, options=QUICK.model_copy(update={"level": Trust.T3}))
    assert sealed.passed and sealed.trust is Trust.T2 and "not native: " in sealed.label


def test_repeated_timing_counts_the_calls_of_all_runs(judge: Judge) -> None:
    verdict = judge(RMS_CPP, judge.scale, QUICK.model_copy(update={"repeat": 2}))
    assert verdict.passed and verdict.time is not None
    # twice as many calls as one run has at least; on a busy machine only the calm ones count
    assert verdict.time.samples >= (3 if "busy machine" in verdict.label else 2 * TIMING.min_pairs)
