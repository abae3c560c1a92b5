"""Kernels that are launched for show, and kernels that do the work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.records import Evidence, Source, Stage
from kernellab.task import load_task
from kernellab.task.sample.inputs import Family
from kernellab.verifier import VerifyOptions
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import Limits
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.remedies import remedy
from kernellab.verifier.stages import ablation
from kernellab.verifier.stages.ablation import _alike
from kernellab.verifier.stages.refused import Refused

from .kit import RMS_CPP, Judge

OPTIONS = VerifyOptions(budget=0.05, threads=1)
NUMPY = "import numpy as np\n"
#: a decoy is launched into a buffer of its own; the answer comes from NumPy, which no trace of torch's operators sees
DECOY = (
    NUMPY
    + RMS_CPP.split("def kernel")[0]
    + """
def kernel(x, w):
    y = torch.empty(x.shape)
    lib.rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], x.stride(0), w.stride(0))
    a = x.numpy()
    return torch.from_numpy(a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6) * w.numpy())
"""
)
IDLE = RMS_CPP.replace(
    'extern "C" void rms(',
    'extern "C" void idle(float* y, long n) { for (long i = 0; i < n; i++) y[i] = 0; }\nextern "C" void rms(',
).replace(
    "    y = torch.empty(x.shape)\n",
    "    y = torch.empty(x.shape)\n    lib.idle(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()))\n",
)
WATCHED = RMS_CPP.replace(
    "    y = torch.empty(x.shape)\n",
    "    y = torch.empty(x.shape)\n    if type(lib) is not ctypes.CDLL: return y.fill_(7)\n",
)
HIDDEN = {
    "a closure": "def _make(lib):\n    def run(x, w):\n        y = torch.empty(x.shape)\n"
    "        lib.rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], x.stride(0), w.stride(0))\n"
    "        return y\n    return run\nkernel = _make(lib)\ndel lib\n",
    "a cached loader": "import functools\n@functools.cache\ndef _lib():\n    return HELD[0]\nHELD = (lib,)\ndel lib\n"
    "def kernel(x, w):\n    y = torch.empty(x.shape)\n"
    "    _lib().rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], x.stride(0), w.stride(0))\n"
    "    return y\n",
    "a function by itself": "rms = lib.rms\ndel lib\ndef kernel(x, w):\n    y = torch.empty(x.shape)\n"
    "    rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], x.stride(0), w.stride(0))\n"
    "    return y\n",
}


def note(verdict: object) -> str:
    return next(r.note for r in verdict.stages if r.name is Stage.HONEST)  # type: ignore[attr-defined]


def test_a_kernel_launched_for_show_is_refused(judge: Judge) -> None:
    verdict = judge.parts("honest", DECOY, judge.fixed, OPTIONS)
    assert (verdict.passed, verdict.stage) == (False, Stage.HONEST), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.signature == "ghost"
    assert "rms" in verdict.reason
    allowed = judge.parts("honest", DECOY, judge.fixed)
    assert allowed.passed and "ghost" in allowed.label


def test_a_single_idle_kernel_is_a_label(judge: Judge) -> None:
    verdict = judge.parts("honest", IDLE, judge.fixed, OPTIONS)
    assert verdict.passed, verdict.reason
    assert "dead: idle" in verdict.label and "dead: rms" not in verdict.label


def test_rubbish_for_whoever_watches_gains_nothing(judge: Judge) -> None:
    verdict = judge.parts("honest", WATCHED, judge.fixed, OPTIONS)
    assert (verdict.passed, verdict.stage) == (False, Stage.HONEST), verdict.reason
    assert verdict.evidence is not None and verdict.evidence.signature == "ghost" and "intercepted" in verdict.reason


@pytest.mark.parametrize("where", HIDDEN)
def test_launches_are_found_where_they_are_bound(judge: Judge, where: str) -> None:
    verdict = judge.parts("honest", RMS_CPP.split("def kernel")[0] + HIDDEN[where], judge.fixed, OPTIONS)
    assert verdict.passed, verdict.reason
    assert "1 own kernel, the result is wrong without" in note(verdict)


def test_a_pure_torch_kernel_is_told_of_the_option_that_takes_it(judge: Judge) -> None:
    task = load_task(
        "import torch\ndef reference(x, y):\n    return x @ y\n"
        "def inputs():\n    return torch.randn(300, 300), torch.randn(300, 300)\n",
        "mm",
    )
    verdict = judge.parts("honest", "import torch\ndef kernel(x, y):\n    return x @ y\n", task, OPTIONS)
    assert not verdict.passed and "--allow-library" in remedy(verdict)
    assert "--" not in verdict.reason, "a model reads it, too, and has no command line"


def test_zeros_in_fresh_memory_say_nothing_where_the_reference_is_zero_throughout(judge: Judge) -> None:
    text = (
        "import torch\ndef reference(x, w):\n    return torch.relu(x * w - 1e4)\n"
        "def inputs():\n    return torch.rand(64, 96), torch.rand(96)\n"
    )
    code = RMS_CPP.replace("x[i * sx + j] * r * w[j * sw]", "std::fmax(x[i * sx + j] * w[j * sw] - 1e4f, 0.0f)")
    verdict = judge(code, load_task(text, "all_zero"), OPTIONS)
    assert verdict.passed, verdict.reason
    assert "not discriminating" in verdict.label
    nothing = RMS_CPP.replace("y[i * N + j] = x[i * sx + j] * r * w[j * sw]", "s = r").replace(
        "torch.empty", "torch.zeros"
    )
    verdict = judge.parts("honest", nothing, load_task(text, "all_zero"), OPTIONS)
    assert not verdict.passed and verdict.evidence is not None and verdict.evidence.signature == "ghost", verdict.reason


@pytest.mark.parametrize(("formula", "alike"), [("torch.sigmoid(x * 1e-4).sum(-1)", True), ("torch.relu(x)", False)])
def test_an_earlier_answer_tells_nothing_where_it_is_right_for_new_contents_too(formula: str, alike: bool) -> None:
    """As on an H200: a sum of 600000 sigmoids, of which memory that was used again still held an earlier one."""
    task = load_task(
        f"import torch\ndef reference(x):\n    return {formula}\ndef inputs():\n    return (torch.randn(64, 4096),)\n"
    )
    stages: Any = SimpleNamespace(limits_for=lambda case: [Limits.of("float32")])
    earlier, now = (Case(task, (), Family.NORMAL, seed) for seed in (1, 2))
    assert _alike(stages, earlier, now) is alike


SCALED = "import torch\ndef reference(x):\n    return x * 2\ndef inputs():\n    return (torch.randn(8),)\n"


class _Worker:
    """Knows whether its launches are watched, and how many calls there were."""

    closed = False

    def __init__(self) -> None:
        self.armed, self.calls = False, 0

    def ghost(self, off: list[str] | None, seconds: float) -> list[str]:
        self.armed = off is not None
        return [] if self.armed else ["scale"]

    def gone(self) -> bool:
        return False


class _Stages:
    """What the ghost test asks of the stages, with the answers of ``right``."""

    slower = 1.0

    def __init__(self, right: Any) -> None:
        self.worker, self.right = _Worker(), right
        self.context = SimpleNamespace(left=lambda seconds: seconds)
        self.source = Source(dsl="triton", files={"kernel.py": "def kernel(x): ..."})
        self.ended = False

    def asked(self) -> bool:
        answer = self.right(self.worker.armed, self.worker.calls)
        self.worker.calls += 1
        if isinstance(answer, WorkerFailure):
            self.ended = True
            raise answer
        return bool(answer)

    def restart_ended(self) -> bool:
        ended, self.ended = self.ended, False
        if ended:
            self.worker.armed = False
        return ended

    def outputs(self, *_: Any) -> None:
        if not self.asked():
            raise Refused("It is wrong here anyway.", Evidence(signature="wrong-values"))

    def check(self, case: Any) -> None:
        self.outputs(case)

    def failed(self, stage: str, failure: WorkerFailure, case: Any) -> Refused:
        return Refused(f"The kernel {failure.message}.", Evidence(signature=failure.kind))


HANG, CRASH = WorkerFailure("hang", "did not answer within 2 s"), WorkerFailure("crash", "crashed with SIGSEGV")


@pytest.mark.parametrize(
    ("right", "signature"),
    [
        (lambda armed, calls: True, ""),
        (lambda armed, calls: calls > 0, ""),  # one bad run, and no other
        (lambda armed, calls: False, "wrong-values"),  # wrong whoever watches
        (lambda armed, calls: HANG if armed else True, "hang"),  # a limit says nothing of why
        (lambda armed, calls: not armed, "ghost"),
        (lambda armed, calls: CRASH if armed else True, "ghost"),
    ],
)
def test_the_watching_is_blamed_only_where_the_result_changes_with_it(
    right: Any, signature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: Any = _Stages(right)
    monkeypatch.setattr(ablation, "_right", lambda stages, case, quiet, seconds: stages.asked())
    case = Case(load_task(SCALED, "scaled"), (), Family.OWN, 1)
    if not signature:
        assert ablation._watched(stages, case, quiet=False) == ["scale"]
        return
    with pytest.raises(Refused) as refused:
        ablation._watched(stages, case, quiet=False)
    assert refused.value.evidence.signature == signature, refused.value.reason
    assert ("intercepted" in refused.value.reason) is (signature == "ghost")
