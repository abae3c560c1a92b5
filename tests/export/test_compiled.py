"""GPU code that goes along with a kernel: what a dry call compiled is found by the compilers of another process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.content import written
from kernellab.dsls.machine import named_chip
from kernellab.export import VerifiedKernel, compiled, package
from kernellab.export.runtime import prebuilt
from kernellab.lens.gpu import look
from kernellab.lens.gpu.look import cubins
from kernellab.lens.look import arguments
from kernellab.records import Environment, Source, Stage, Trust, Verdict
from kernellab.target import Backend, Target
from kernellab.task import load_task

TASK = """
import torch
from kernellab import Dim
M = Dim("M", 1, 4096)
def reference(x):
    return torch.softmax(x * 2, dim=-1)
def inputs(M=32):
    return (torch.randn(M, 64),)
"""

#: Triton with a driver that names a chip and launches nothing, and a listener that says whether it compiled
TRITON = """
import sys
from pathlib import Path
from triton import knobs
from kernellab.export.runtime import prebuilt
from kernellab.lens.dry import triton
from kernellab.lens.dry.main import arguments, gpu
from kernellab.lens.dry.recorder import Recorder
from kernellab.lens.dry.records import Request

def called(capability):
    hits, told = [], []
    knobs.compilation.listener = lambda **seen: hits.append(seen["cache_hit"])
    request = Request(files={}, entry_file="kernel.py", entry="kernel", capability=capability, cores=132, allowed=True,
                      arguments=[{"shape": [32, 64], "dtype": "float32"}])
    with triton.compiled(request, Recorder()), gpu(request):
        module = prebuilt.load(Path(sys.argv[1]) / "kernel.py", f"kernel{capability}", told.append)
        module.kernel(*arguments(request.arguments))
    return hits, told

hits, told = called(90)
assert hits and all(hits) and not told, (hits, told)
hits, told = called(80)
assert hits == [False] and "sm_90 (NVIDIA H100), and this GPU is sm_80" in told[0], (hits, told)
print("same")
"""


#: what lies next to a source: folders, and what says of the chip
_OTHER = (".json", "")


def _files(dsl: str, tmp_path: Path) -> Path:
    """The folder of a rules' kernel for an H100, with its compiled code."""
    task, target = load_task(TASK, "soft"), Target(dsl=dsl, backend=Backend.CUDA, chip=named_chip("h100"))
    sketch = next(iter(RulesDesigner().designs(DesignBrief(task, target)))).sketch
    source = RulesCoder().code(CodeBrief(task, target, sketch)).source
    where = Environment(chip=target.chip.name)
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="", trust=Trust.T2, environment=where)
    made = compiled(package([VerifiedKernel("soft", task, source, verdict, Backend.CUDA, "on an H100", sketch)]))
    assert not made.source_only and any(name.endswith(".cubin") for name in made.binaries), made.source_only
    return made.write(tmp_path) / "kernels" / f"k{source.hash}"


def test_triton_finds_its_cubins_and_says_where_they_are_for_another_chip(tmp_path: Path) -> None:
    folder = _files("triton", tmp_path)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", TRITON, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "same", done.stderr


def test_what_launches_a_kernel_goes_along_from_cache_to_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    key = hashlib.sha256(b"a source of the host").hexdigest()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "made"))
    cache.get_cache_manager(key).put(b"code", "host.so")
    for name, data in look._of_triton(tmp_path / "made").items():
        written(tmp_path / "carried" / name, data)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "here"))
    prebuilt._fill_cache(tmp_path / "carried")
    assert Path(cache.get_cache_manager(key).get_file("host.so")).read_bytes() == b"code"


def test_programs_of_cuda_core_take_the_cubin_of_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core")
    folder = _files("cuda_c", tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    said: list[str] = []
    module = prebuilt.load(folder / "kernel.py", "carried_cuda_kernel", said.append)
    source = Source(dsl="cuda_c", files={p.name: p.read_text() for p in folder.iterdir() if p.suffix not in _OTHER})
    for text in cubins(source, arguments(load_task(TASK, "soft")), named_chip("h100")).programs:
        # the object of cuda-core loads its code when a kernel of it is asked for, which needs a driver
        carried = (folder / prebuilt.CUBINS / prebuilt.cubin_name(text)).read_bytes()
        assert module.Program(text, "c++").compile("cubin").code == carried
        assert not module.Program(f"{text} ", "c++").cubin.exists()
    assert not said
