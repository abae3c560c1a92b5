"""KernelBench's ``ModelNew`` files as they are, whatever they compile with: torch's own loader, in the sandbox."""

from __future__ import annotations

import shutil

import pytest

from kernellab.dsls import get_adapter
from kernellab.dsls.detect import dsl_of
from kernellab.records import Author, Source, Stage
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.register_buffer("shift", torch.randn(1))

    def forward(self, x):
        return torch.relu(x) * self.weight + self.shift


def get_inputs():
    return [torch.rand(64, 300)]


def get_init_inputs():
    return [300]
"""

BY_TORCH = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp = """
#include <torch/extension.h>

torch::Tensor scaled_relu(torch::Tensor x, torch::Tensor w, torch::Tensor s) {
  x = x.contiguous();
  auto y = torch::empty_like(x);
  const int64_t rows = x.size(0), n = x.size(1);
  const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>(), shift = *s.data_ptr<float>();
  float* c = y.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * n + j] = (a[i * n + j] > 0.0f ? a[i * n + j] : 0.0f) * b[j] + shift;
  return y;
}
"""
ops = load_inline(name="scaled_relu_ext", cpp_sources=cpp, functions=["scaled_relu"], verbose=False)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        # of other names: loaded by order and shape
        self.w = nn.Parameter(torch.zeros(features))
        self.register_buffer("s", torch.zeros(1))

    def forward(self, x):
        return ops.scaled_relu(x, self.w, self.s)
'''
TARGET = Target("cpp", Backend.CPU, Chip("test", "cpu", 2))


def _source(text: str) -> Source:
    return Source(
        dsl=dsl_of({"new.py": text}) or "cpp", files={"new.py": text}, entry_file="new.py", origin=Author.HUMAN
    )


def test_torch_s_loader_is_read_as_what_it_compiles() -> None:
    assert _source(BY_TORCH).dsl == "cpp"
    assert get_adapter("cpp").static(_source(BY_TORCH)) == []
    cuda = BY_TORCH.replace('cpp = """', 'cuda = "__global__ void k(float* x) { x[0] = 1; }"\ncpp = """')
    assert _source(cuda).dsl == "cuda_c"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch's loader needs ninja")
def test_a_model_that_torch_s_loader_builds_passes_with_the_reference_s_parameters(verifier: Verifier) -> None:
    """Half a minute of compiling torch's headers on an idle machine."""
    verdict = verifier.verify(
        load_task(TASK, "scaled_relu"), _source(BY_TORCH), TARGET,
        options=VerifyOptions(threads=1, budget=0.1, deadline=900.0),
    )  # fmt: skip
    assert verdict.passed, f"{verdict.stage}: {verdict.reason} {verdict.evidence.log if verdict.evidence else ''}"
    assert verdict.build_seconds is not None and verdict.build_seconds > 3
    assert verdict.speedup is not None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch's loader needs ninja")
def test_an_error_that_torch_s_loader_finds_is_at_the_string_s_line(verifier: Verifier) -> None:
    broken = BY_TORCH.replace("return y;", "return nothing_of_the_kind;")
    verdict = verifier.verify(
        load_task(TASK, "scaled_relu"), _source(broken), TARGET, options=VerifyOptions(threads=1, deadline=900.0)
    )
    assert (verdict.passed, verdict.stage) == (False, Stage.BUILD), verdict.reason
    assert verdict.evidence is not None
    first = verdict.evidence.compiler[0]
    line = 1 + next(i for i, text in enumerate(broken.splitlines()) if "nothing_of_the_kind" in text)
    assert (first.file, first.line) == ("new.py", line), verdict.evidence.log[-3000:]
    assert "nothing_of_the_kind" in first.message


def test_a_model_whose_parameters_do_not_fit_says_which(verifier: Verifier) -> None:
    other = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, features):\n"
    other += "        super().__init__()\n        self.w = torch.nn.Parameter(torch.zeros(features + 1))\n\n"
    other += "    def forward(self, x):\n        return x\n"
    verdict = verifier.verify(
        load_task(TASK, "scaled_relu"), _source(other), TARGET, options=VerifyOptions(threads=1, allow_library=True)
    )
    assert (verdict.passed, verdict.stage) == (False, Stage.SMOKE), verdict.reason
    assert "fits the reference's (['weight', 'shift']) neither by name nor by order and shape" in verdict.reason
