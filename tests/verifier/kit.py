"""Tasks and sources that the tests of this room feed to the judge."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from kernellab.records import Author, Source, Stage, Trust, Verdict
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task
from kernellab.verifier import Verifier, VerifyOptions
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.judge.pool import Pool
from kernellab.verifier.stages import robust
from kernellab.verifier.stages.candidate import Stages
from kernellab.verifier.stages.context import Request
from kernellab.verifier.stages.correct import smoke
from kernellab.verifier.stages.fast import fast
from kernellab.verifier.stages.honest import honest
from kernellab.verifier.stages.pipeline import Verification
from kernellab.verifier.stages.precision import precision_class
from kernellab.verifier.stages.robustness import ordinary
from tests.breadth import everything

TARGET = Target("cpp", Backend.CPU, Chip("test", "cpu", 2))

RELU_ADD = """
import torch
def reference(x, y):
    return torch.relu(x) + y
def inputs():
    return torch.randn(48, 70), torch.randn(48, 70)
"""

SCALE = """
import torch
from kernellab import Dim
M = Dim("M", 1, 4096)
N = Dim("N", 1, 4096)
def reference(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
def inputs(M=96, N=200):
    return torch.randn(M, N), torch.randn(N)
"""

#: the same at one size, for what no Dim is asked of: a verdict on it takes half the time
FIXED = """
import torch
def reference(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
def inputs():
    return torch.randn(96, 200), torch.randn(200)
"""

#: in the precision that ``policy`` says
MATMUL = """
import torch
{policy}
def reference(x, y):
    return x @ y
def inputs():
    return torch.randn(96, 256), torch.randn(256, 64)
"""
#: the factors of a kernel that rounds as tensor cores do
TF32 = """
import torch
def tf32(t):
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
"""

#: a C++ kernel without any binding library: compiles in a tenth of a second
RMS_CPP = r'''
import ctypes, os, subprocess, torch
CODE = r"""
#include <cmath>
extern "C" void rms(const float* x, const float* w, float* y, long M, long N, long sx, long sw) {
  #pragma omp parallel for
  for (long i = 0; i < M; i++) {
    float s = 0;
    for (long j = 0; j < N; j++) s += x[i * sx + j] * x[i * sx + j];
    float r = 1.0f / std::sqrt(s / N + 1e-6f);
    for (long j = 0; j < N; j++) y[i * N + j] = x[i * sx + j] * r * w[j * sw];
  }
}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.rms.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 4
def kernel(x, w):
    y = torch.empty(x.shape)
    lib.rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], x.stride(0), w.stride(0))
    return y
'''

QUICK = VerifyOptions(allow_library=True, budget=0.05, threads=1, level=Trust.T2)
#: for what the stages up to correct find
QUICK_LOOK = QUICK.model_copy(update={"level": Trust.T1})


def _in_an_ordinary_process(stages: Stages) -> str:
    process = ordinary.begin(stages)
    assert process is not None
    return ordinary.check(stages, process)


#: part of a stage (robust, if :data:`_STAGES` does not say) -> what runs it, given two cases of the families' size.
#: That the stages run each of them is tested in test_pipeline.py
PARTS: Mapping[str, Callable[[Stages, Case, Case], object]] = {
    "repeated": lambda stages, first, second: robust.repeated(stages, first, second),
    "metamorphic": lambda stages, first, second: robust.metamorphic(stages, second, stages.check(second)),
    "left_to_caller": lambda stages, first, second: robust.left_to_caller(stages, first),
    "burst": lambda stages, first, second: robust.burst(stages, first, second),
    "twice_when_long": lambda stages, first, second: robust.twice_when_long(stages),
    "elsewhere": lambda stages, first, second: robust.elsewhere(stages, second),
    "many": lambda stages, first, second: robust.many(stages),
    "pages": lambda stages, first, second: robust.pages(stages),
    "beyond_own_inputs": lambda stages, first, second: robust.beyond_own_inputs(stages, first),
    "drawn": lambda stages, first, second: robust.drawn(stages, stages.ahead.survey()),
    "properties": lambda stages, first, second: robust.properties(stages, first),
    "along_paths": lambda stages, first, second: robust.along_paths(stages),
    "fixed_sizes": lambda stages, first, second: robust.fixed_sizes(stages),
    "launches": lambda stages, first, second: robust.launches(stages),
    "honest": lambda stages, first, second: honest(stages),
    "fast": lambda stages, first, second: fast(stages),
    "precision_class": lambda stages, first, second: precision_class(stages),
    "ordinary": lambda stages, first, second: _in_an_ordinary_process(stages),
}


#: parts of other stages than robust
_STAGES = {"precision_class": Stage.HONEST, "honest": Stage.HONEST, "fast": Stage.FAST}


class _Parts(Verification):
    """A verification that runs static, build, smoke, and of the later stages only ``names`` (:data:`PARTS`)."""

    def __init__(self, request: Request, pool: Pool, names: tuple[str, ...]) -> None:
        super().__init__(request, pool, lambda _: None)
        self.names = names

    def _calls(self, stages: Stages) -> None:
        self.steps.take(Stage.SMOKE, smoke, stages)
        first, second = stages.ahead.small(), stages.ahead.small()

        def run(stages: Stages, name: str) -> str:
            found = PARTS[name](stages, first, second)
            return found if isinstance(found, str) else ", ".join(found) if name == "metamorphic" else ""

        for name in self.names:
            self.steps.take(_STAGES.get(name, Stage.ROBUST), partial(run, name=name), stages)


class Judge:
    """``judge(code)`` verifies Python text against a task, quickly."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.relu_add = load_task(RELU_ADD, "relu_add")
        self.scale = load_task(SCALE, "scale")
        self.fixed = load_task(FIXED, "scale")
        self._pool: Pool | None = None
        self._verdicts: dict[tuple[str, str], Verdict] = {}

    def __call__(
        self, code: str, task: Task | None = None, options: VerifyOptions = QUICK, origin: Author = Author.HUMAN
    ) -> Verdict:
        source = Source(dsl="cpp", files={"kernel.py": code}, origin=origin)
        return self.verifier.verify(task or self.relu_add, source, TARGET, options=options)

    def once(self, code: str, task: Task | None = None) -> Verdict:
        """``judge(code, task)``, once for all tests of a process that ask the same."""
        task = task or self.relu_add
        if (code, task.text) not in self._verdicts:
            self._verdicts[code, task.text] = self(code, task)
        return self._verdicts[code, task.text]

    def parts(
        self, names: str, code: str | Source, task: Task | None = None, options: VerifyOptions = QUICK,
        origin: Author = Author.HUMAN, target: Target = TARGET,
    ) -> Verdict:  # fmt: skip
        """What ``judge(code)`` says by the parts ``names`` (:data:`PARTS`, by spaces) of the stage robust alone, in
        this process: of a verdict's processor time a tenth to a half. ``make prove`` asks for the whole verdict."""
        task = task or self.relu_add
        files = {"kernel.py": code} if isinstance(code, str) else code.files
        source = Source(dsl=target.dsl, files=files, origin=origin)
        if everything():
            return self.verifier.verify(task, source, target, options=options)
        self._pool = self._pool or Pool()
        # a quick look begins no process before its time
        options = options.model_copy(update={"level": Trust.T1})
        request = Request(task.text, task.name, source, target.backend, target.chip.name, options)
        threads = torch.get_num_threads()
        try:
            return _Parts(request, self._pool, tuple(names.split())).run()
        finally:
            torch.set_num_threads(threads)

    def close(self) -> None:
        """End the processes of :meth:`parts`."""
        if self._pool is not None:
            self._pool.close()


def processes_below(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    stack = [pid]
    while stack:
        parent = stack.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            children = [int(c) for t in tasks for c in Path(f"/proc/{parent}/task/{t}/children").read_text().split()]
        except OSError:
            continue
        found += children
        stack += children
    return found
