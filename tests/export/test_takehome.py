"""Kernels as they leave: loaded in a fresh interpreter that cannot import kernellab."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.ci.subjects import Subject, Unread, subjects
from kernellab.conditions import (
    AlignmentLimit,
    Domain,
    DrawnLimit,
    FixedSizes,
    Mark,
    ScalarLimit,
    StridesLimit,
    Switched,
    of,
)  # fmt: skip
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, TaskError
from kernellab.export import VerifiedKernel, compiled, module_text, package
from kernellab.export.capsule import again, capsule_of, read_capsule, write_capsule
from kernellab.export.exportable import Choice
from kernellab.export.joined import joined
from kernellab.export.layouts import write_kernels, write_solution
from kernellab.export.reference import reference_text
from kernellab.export.runtime.guards import ShapeClass
from kernellab.export.wheel import write_wheel
from kernellab.records import Author, Source, Stage, Trust, Verdict
from kernellab.target import Backend
from kernellab.task import Dim, load_task
from kernellab.verifier import Verifier, VerifyOptions

TASK = """
import torch
from kernellab import Dim

M, N = Dim("M", 1, 512), Dim("N", 2, 300)
LIMIT = 3.0


def unused(x):
    return x


def reference(x, w, scale: float = 0.5):
    return torch.clamp(x * w, max=LIMIT) * scale


def inputs(M=37, N=65):
    return torch.randn(M, N), torch.rand(N)
"""

TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def k(x, w, y, n, N, scale, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    found = tl.minimum(tl.load(x + at, mask=at < n) * tl.load(w + at % N, mask=at < n), 3.0) * scale
    tl.store(y + at, found.to(tl.float16), mask=at < n)


def kernel(x, w, scale=0.5):
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty_like(x)
    k[(triton.cdiv(x.numel(), 512),)](x, w, y, x.numel(), x.shape[1], scale, 512)
    return y
"""

FRESH = """
import os, sys, warnings
sys.path[:0] = [sys.argv[1]]
sys.modules["kernellab"] = None
import torch, clamped
from torch.library import opcheck

def ref(x, w, scale=0.5):
    return torch.clamp(x * w, max=3.0) * scale

def said(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in seen]

same = torch.testing.assert_close
op = clamped.operator
x, w = torch.randn(30, 70) * 4, torch.rand(70)
assert not said(lambda: same(clamped.clamped(x, w), ref(x, w)))
assert "made for 0.5" in said(lambda: same(clamped.kernel(x, w, 2.0), ref(x, w, 2.0)))[0]
assert len(op._kernels) == 1, "the float32 class's kernel ran"
if sys.platform == "linux":  # a second OpenMP runtime would start threads of its own beside torch's warm ones
    libraries = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
    assert len([name for name in libraries if "libgomp" in name or "libomp" in name or "libiomp" in name]) == 1
# the other class, which is Triton's by its interpreter
half = [t.half() for t in (x, w)]
assert not said(lambda: same(clamped.clamped(*half), ref(*half), rtol=1e-2, atol=1e-2))
assert len(op._kernels) == 2
# outside both: the reference, said once for each kind of reason
wide = [t.double() for t in (x, w)]
first = said(lambda: same(clamped.clamped(*wide), ref(*wide)))
assert len(first) == 1 and "float64" in first[0] and "reference" in first[0], first
assert not said(lambda: clamped.clamped(*wide))
big = torch.randn(600, 70)
assert "M is 600, outside 1 to 512" in said(lambda: same(clamped.clamped(big, w), ref(big, w)))[0]
# another size outside is another reason
long, row = torch.randn(3, 301), torch.rand(301)
assert "N is 301, outside 2 to 300" in said(lambda: same(clamped.clamped(long, row), ref(long, row)))[0]
# a call like an earlier one goes past torch's dispatcher, with the same answer; one that is watched does not
assert op._straight_to and op.call is not op.op
same(clamped.clamped(x * 2, w), ref(x * 2, w))
with torch.profiler.profile() as seen:
    same(clamped.clamped(x, w), ref(x, w))
assert any("clamped" in e.key for e in seen.key_averages())
turned = torch.randn(70, 30).t()
assert "not contiguous" in said(lambda: same(clamped.clamped(turned, w), ref(turned, w)))[0]
low = w - 5
assert "outside 0 to inf" in said(lambda: same(clamped.clamped(x[:3], low), ref(x[:3], low)))[0]
# gradients are the reference's; torch's own checks of an operator; traced whole
leaves = [t.clone().requires_grad_() for t in (x, w)]
g = torch.randn(30, 70)
for found, wanted in zip(*(torch.autograd.grad(f(*leaves), leaves, g) for f in (clamped.clamped, ref))):
    same(found, wanted)
opcheck(op.op, (x, w, 0.5))
compiled = torch.compile(lambda x, w: clamped.clamped(torch.sin(x), w) + 1, fullgraph=True, backend="aot_eager")
same(compiled(x, w), ref(x.sin(), w) + 1)
compiled(*leaves).sum().backward()
assert leaves[0].grad is not None and leaves[1].grad is not None
# where it cannot be built: the reference, said once with what is needed
os.environ |= {"PATH": "", "TVM_FFI_CACHE_DIR": sys.argv[1] + "/nothing built"}
bare = type(op)(op.folder)
(told,) = said(lambda: same(bare.call(x, w), ref(x, w)))
assert "cannot be built here" in told and "a C++ compiler, or an export with compiled code" in told, told
assert not said(lambda: same(bare.call(x[:5], w), ref(x[:5], w)))
try:
    bare.call(x, 3)
except TypeError as error:
    assert "w is of type int, where a tensor is meant" in str(error), error
print("same")
"""

ELSEWHERE = """
import importlib.util, json, os, sys, warnings
sys.modules["kernellab"] = None
wheel, repository, solution, definition, carried = sys.argv[1:]
import torch
x, w = torch.randn(9, 20), torch.rand(20)
want = torch.clamp(x * w, max=3.0) * 0.5

# flashinfer-bench: the sources in a folder, the entry point of one file; the Definition's own reference
spec = json.load(open(solution))
here = os.path.dirname(solution) + "/unpacked"
for source in spec["sources"]:
    os.makedirs(os.path.dirname(f"{here}/{source['path']}"), exist_ok=True)
    open(f"{here}/{source['path']}", "w").write(source["content"])
def module(name, path):
    found = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(found)
    sys.modules[name] = loaded
    found.loader.exec_module(loaded)
    return loaded
file, _, entry = spec["spec"]["entry_point"].partition("::")
torch.testing.assert_close(getattr(module("solution", f"{here}/{file}"), entry)(x, w, 0.5), want)
stated = json.load(open(definition))
scope = {}
exec(stated["reference"], scope)
torch.testing.assert_close(scope["run"](x, w, 0.5), want)
assert list(stated["inputs"]) == ["x", "w", "scale"] and stated["inputs"]["scale"]["shape"] is None
assert all(a in stated["axes"] for t in stated["inputs"].values() for a in t["shape"] or [])

# kernels: a variant's folder is imported under the id of its metadata.json
variant = f"{repository}/build/torch-cpu"
metadata = json.load(open(f"{variant}/metadata.json"))
loaded = module(metadata["id"], f"{variant}/__init__.py")
torch.testing.assert_close(loaded.clamped(x, w), want)
torch.testing.assert_close(module("older", f"{variant}/clamped/__init__.py").clamped(x, w), want)

# the wheel: no compiler is found, so that its own library is what runs
os.environ["PATH"], os.environ["TVM_FFI_CACHE_DIR"] = "/nowhere", wheel + "/cache"
sys.path.insert(0, wheel)
import clamped
torch.testing.assert_close(clamped.clamped(x, w), want)

# a module brings its library, too, and says so where that is for other processors
with warnings.catch_warnings():
    warnings.simplefilter("error")
    inside = module("carried", carried)
    torch.testing.assert_close(inside.clamped(x, w), want)
(facts,) = inside.operator.folder.rglob("prebuilt.json")
facts.write_text(json.dumps({**json.loads(facts.read_text()), "flags": ["avx9999"]}))
with warnings.catch_warnings(record=True) as seen:
    torch.testing.assert_close(type(inside.operator)(inside.operator.folder).call(x, w), want)
assert "for another processor or system; it is compiled here" in str(seen[0].message), seen
print("same")
"""


def ran(code: str, *arguments: object, folder: Path) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "TRITON_INTERPRET": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def cpp() -> VerifiedKernel:
    """What the rules write for the task in C++, as if the Verifier had said that it needs contiguous inputs."""
    task = load_task(TASK, "clamped")
    target = detect_target("cpp")
    sketch = next(iter(RulesDesigner().designs(DesignBrief(task, target)))).sketch
    source = RulesCoder().code(CodeBrief(task, target, sketch)).source
    conditions = (StridesLimit(contiguous="all"), Domain(argument="w", low=0.0, refuted=True))
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="", trust=Trust.T2, conditions=conditions)
    return VerifiedKernel("clamped", task, source, verdict, target.backend, "cpp here", sketch)


@pytest.fixture(scope="module")
def triton() -> VerifiedKernel:
    """A kernel for half precision."""
    text = TASK.replace("torch.randn(M, N), torch.rand(N)", "torch.randn(M, N).half(), torch.rand(N).half()")
    source = Source(dsl="triton", files={"kernel.py": TRITON})
    verdict = Verdict(passed=True, stage=Stage.FAST, reason="", trust=Trust.T1)
    return VerifiedKernel("clamped", load_task(text, "clamped"), source, verdict, Backend.INTERPRETER, "triton here")


def imported(code: str) -> set[str]:
    """What a Python file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(code)))
    froms = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return froms | {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}


def test_one_module_holds_two_classes_and_the_reference_behind_them(
    cpp: VerifiedKernel, triton: VerifiedKernel, tmp_path: Path
) -> None:
    made = package([cpp, triton])
    text = module_text(made)
    # the tasks' texts, which `kernellab check` verifies again, do import it; they are data and never run
    for code in (text, *(file for name, file in made.files.items() if name.endswith(".py"))):
        assert not any(name.partition(".")[0] == "kernellab" for name in imported(code))
    (tmp_path / "clamped.py").write_text(text)
    assert ran(FRESH, tmp_path, folder=tmp_path) == "same"


BY_SIZE = """
import sys, warnings
sys.path[:0] = [sys.argv[1]]
sys.modules["kernellab"] = None
warnings.simplefilter("error")
import torch, clamped

op, first, second = clamped.operator, sys.argv[2], sys.argv[3]
w = torch.rand(70)
for rows, folder in ((20, first), (99, first), (100, second), (299, second), (300, ""), (512, "")):
    x = torch.randn(rows, 70)
    op._kernels.clear()
    op._signatures.clear()
    op._straight_to.clear()
    for _ in range(2):
        torch.testing.assert_close(clamped.clamped(x, w), torch.clamp(x * w, max=3.0) * 0.5)
    assert list(op._kernels) == ([f"kernels/k{folder}"] if folder else []), (rows, list(op._kernels))
# where the kernel that was chosen does not take the call, another one does: the second takes up to 400 rows
op.choice = op.choice._replace(starts=[op.choice.starts[0]._replace(least=0, folder=f"kernels/k{second}")])
x = torch.randn(500, 70)
torch.testing.assert_close(clamped.clamped(x, w), torch.clamp(x * w, max=3.0) * 0.5)
assert list(op._kernels) == [f"kernels/k{first}"]
print("same")
"""


def test_an_operator_of_two_kernels_takes_the_one_that_was_measured_fastest_at_a_size(
    cpp: VerifiedKernel, tmp_path: Path
) -> None:
    files = {name: text.replace("BLOCK", "BLOCK_") for name, text in cpp.source.files.items()}
    task = load_task(cpp.task.text.replace('"M", 1, 512', '"M", 1, 400'), cpp.task.name)
    other = replace(cpp, task=task, source=cpp.source.model_copy(update={"files": files | {"note.txt": "another one"}}))
    made = package([cpp, other], choice=Choice("M", ((0, 0), (100, 1), (300, None))))
    sources = [k.source.hash for k in (cpp, other)]
    said = f"M from 0: {sources[0]}, M from 100: {sources[1]}, M from 300: eager"
    assert said in " ".join(made.files["__init__.py"].split())
    (tmp_path / "clamped.py").write_text(module_text(made))
    assert ran(BY_SIZE, tmp_path, *sources, folder=tmp_path) == "same"


def _other(cpp: VerifiedKernel, low: int, high: int) -> VerifiedKernel:
    """The same kernel, for another range of M."""
    text = cpp.task.text.replace('"M", 1, 512', f'"M", {low}, {high}').replace("M=37", f"M={low}")
    source = cpp.source.model_copy(update={"files": {**cpp.source.files, "note.txt": "another one"}})
    return replace(cpp, task=load_task(text, cpp.task.name), source=source)


def test_kernels_are_verified_as_one_on_both_sides_of_each_switch(cpp: VerifiedKernel, tmp_path: Path) -> None:
    one = joined([cpp, _other(cpp, 300, 3000)], Choice("M", ((0, 0), (401, 1), (2500, None))))
    assert one.starts == ((1, 0), (401, 1)) and one.task.dims[0] == Dim("M", 1, 3000)
    with Verifier() as verifier:
        found = one.verified(verifier, detect_target("cpp"), VerifyOptions(level=Trust.T1))
        assert found.verdict.passed and of(found.verdict.conditions, Switched), found.verdict.reason
        assert "M from 1 to 3000 with the sizes on both sides of 401" in found.summary
        # wrong at one size, that before the switch
        late = cpp.source.files["kernel.py"].replace("    return y\n", "    return y * 2 if M == 400 else y\n")
        wrong = replace(cpp, source=cpp.source.model_copy(update={"files": {**cpp.source.files, "kernel.py": late}}))
        again = joined([wrong, _other(cpp, 300, 3000)], Choice("M", ((0, 0), (401, 1))))
        refused = again.verified(verifier, detect_target("cpp"), VerifyOptions(level=Trust.T1)).verdict
    assert not refused.passed and "M=400" in refused.reason and not of(refused.conditions, Switched)
    made = package(one.kernels, choice=Choice("M", ((0, 0), (401, 1))), verified_as_one=found)
    (tmp_path / "clamped.py").write_text(module_text(made))
    subject, *each = subjects([tmp_path])
    assert isinstance(subject, Subject) and subject.source.files == one.source.files and "3000" in subject.task
    assert [one.name for one in each] == ["clamped.py#1", "clamped.py#2"]
    (tmp_path / "clamped.py").write_text(module_text(replace(made, binaries={"kernels/k/prebuilt.so": bytes(5 << 20)})))
    again, *_, unread = subjects([tmp_path])
    assert again == subject and isinstance(unread, Unread) and "compiled code" in unread.reason


def test_without_a_choice_the_narrower_kernel_runs_and_what_is_no_one_is_said(cpp: VerifiedKernel) -> None:
    assert joined([_other(cpp, 300, 3000), cpp]).starts == ((1, 1), (513, 0))
    assert joined([cpp, _other(cpp, 100, 200)]).starts == ((1, 0), (100, 1), (201, 0))
    with pytest.raises(KernellabError, match="none takes M from 513 to 599"):
        joined([cpp, _other(cpp, 600, 3000)])
    half = replace(cpp, source=cpp.source.model_copy(update={"dsl": "triton"}))
    with pytest.raises(KernellabError, match="several languages"):
        joined([cpp, half])
    with pytest.raises(KernellabError, match="nothing of their shapes differs"):
        joined([cpp, cpp])


def test_a_wheel_a_repository_and_a_solution_are_taken_by_others(cpp: VerifiedKernel, tmp_path: Path) -> None:
    made = package([cpp])
    wheel = write_wheel(compiled(made), tmp_path / "wheels", "1.2.0")
    assert wheel.name.startswith("clamped-1.2.0-py3-none-")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
        metadata = archive.read("clamped-1.2.0.dist-info/METADATA").decode()
    assert "Requires-Dist: apache-tvm-ffi" in metadata and "kernellab" not in metadata.lower().partition("\n\n")[0]
    repository = write_kernels(made, tmp_path / "repository", "Apache-2.0")
    solution, definition = write_solution(cpp, tmp_path / "clamped.solution.json")
    facts = json.loads((repository / "build/torch-cpu/metadata.json").read_text())
    assert facts["name"] == "clamped" and facts["python-depends"] == ["tvm-ffi"] and facts["backend"] == {"type": "cpu"}
    (tmp_path / "carried.py").write_text(module_text(compiled(made)))
    paths = (tmp_path / "wheel", repository, solution, definition, tmp_path / "carried.py")
    assert ran(ELSEWHERE, *paths, folder=tmp_path) == "same"


def test_a_capsules_task_runs_on_consent_alone(cpp: VerifiedKernel, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    capsule = capsule_of(cpp)
    theirs = capsule.model_copy(update={"task": f"open({str(planted)!r}, 'w').close()\n{capsule.task}"})
    with pytest.raises(KernellabError, match=r"would run with your own rights.*--trust-task"):
        again(theirs, VerifyOptions(level=Trust.T1))
    assert not planted.exists()


def test_a_capsule_is_verified_again_and_a_changed_one_refused(cpp: VerifiedKernel, tmp_path: Path) -> None:
    path = write_capsule(cpp, tmp_path / "clamped.capsule.json")
    found = again(read_capsule(path), VerifyOptions(level=Trust.T1), trusted=True)
    assert found.passed, found.verdict.reason
    assert any(line.startswith("labels: contiguous-only") for line in found.differences)
    path.write_text(path.read_text().replace("max=LIMIT", "min=LIMIT"))
    with pytest.raises(KernellabError, match=r"The task in .* does not have the hash"):
        read_capsule(path)
    path.write_text("{}")
    with pytest.raises(KernellabError, match="is not a capsule"):
        read_capsule(path)


def test_what_a_verdict_says_becomes_guards(cpp: VerifiedKernel) -> None:
    limits = (
        AlignmentLimit(), Mark(kind="expanded-inputs-unsupported"),
        ScalarLimit(argument="scale", value=0.5, refuted=True),
    )  # fmt: skip
    verdict = cpp.verdict.model_copy(update={"conditions": limits})
    facts = replace(cpp, verdict=verdict).facts("k")
    assert (facts["layout"], facts["alignment"], facts["expanded"]) == ("any", 16, False)
    assert facts["only"] == {"scale": 0.5} and facts["intervals"] == {}
    assert cpp.facts("k")["intervals"] == {"w": [0.0, None]} and cpp.facts("k")["layout"] == "contiguous"
    own = cpp.verdict.model_copy(update={"conditions": (Mark(kind="constructor-parameters"),)})
    with pytest.raises(KernellabError, match="constructor only"):
        replace(cpp, verdict=own).facts("k")


def test_a_kernel_with_an_arguments_values_built_in_is_not_exported(cpp: VerifiedKernel) -> None:
    limit = DrawnLimit(argument="index", values="index as drawn only", built_in=True)
    verdict = cpp.verdict.model_copy(update={"conditions": (limit,)})
    with pytest.raises(KernellabError, match="own values of index only"):
        replace(cpp, verdict=verdict).facts("k")


def test_integers_and_shared_memory_that_were_wrong_are_guarded(cpp: VerifiedKernel) -> None:
    text = (
        "import torch\ndef reference(i, j):\n    return i + j\n"
        "def inputs():\n    return torch.randint(0, 9, (4, 6)), torch.randint(0, 9, (4, 6))\n"
    )
    limits = (
        DrawnLimit(argument="i", values="i beyond 0..8 not handled", low=0, high=8), Mark(kind="tensor-given-twice"),
        FixedSizes(shapes=((4, 6),)),
    )  # fmt: skip
    verdict = cpp.verdict.model_copy(update={"conditions": limits})
    kernel = replace(cpp, task=load_task(text, "added"), verdict=verdict)
    guards = ShapeClass.of(json.loads(json.dumps(kernel.facts("k"))))
    one, two = torch.zeros(4, 6, dtype=torch.int64), torch.ones(4, 6, dtype=torch.int64)
    assert guards.refuses((one, two)) is None and guards.refuses_values((one, two)) is None
    assert guards.refuses_shared((one, two)) is None
    assert guards.refuses_shared((one, one)) is not None
    wide = torch.zeros(5, 6, dtype=torch.int64)
    assert guards.refuses_shared((wide[:4], wide[1:])) is not None
    assert guards.refuses_values((one - 1, two)) is not None and guards.refuses_values((one + 9, two)) is not None
    assert guards.refuses((wide, wide)) is not None
    assert ShapeClass.of(cpp.facts("k")).shared


def test_a_dim_within_an_expression_is_guarded() -> None:
    shapes = {"ends": ["R + 1"], "pairs": ["2 * R - N", "N * N"]}
    parameters = [{"name": n, "kind": "tensor", "dtype": "float32", "shape": s} for n, s in shapes.items()]
    guards = ShapeClass.of(
        {"folder": "k", "entry_file": "kernel.py", "entry": "kernel", "dsl": "cpp", "device": "cpu",
         "parameters": parameters, "dims": {"R": (1, 8), "N": (1, 5)}}
    )  # fmt: skip

    def reason(ends: int, *pairs: int) -> str:
        refusal = guards.refuses((torch.zeros(ends), torch.zeros(pairs)))
        return refusal.reason if refusal else ""

    assert guards.sizes((torch.zeros(8), torch.zeros(11, 9))) == {"R": 7, "N": 3}
    assert reason(8, 11, 9) == "" and reason(8, 11, 8) == "pairs has 8 where N * N is meant"
    assert reason(10, 15, 9) == "R is 9, outside 1 to 8" and reason(8, 8, 36) == "N is 6, outside 1 to 5"


def test_an_extent_that_no_size_gives_is_refused() -> None:
    parameter = {"name": "x", "kind": "tensor", "dtype": "float32", "shape": ["2 * N"]}
    common = {"folder": "k", "entry_file": "kernel.py", "entry": "kernel", "dsl": "cpp", "device": "cpu"}
    guards = ShapeClass.of({**common, "parameters": [parameter], "dims": {"N": (1, 8)}})
    refusal = guards.refuses((torch.zeros(7),))
    assert refusal is not None and refusal.reason == "x has 7 where 2 * N is meant"


def test_a_reference_goes_along_without_its_inputs_and_without_kernellab(cpp: VerifiedKernel) -> None:
    text = reference_text(cpp.task)
    assert "LIMIT = 3.0" in text and "def call(x, w, scale)" in text
    assert "kernellab" not in text and "unused" not in text and "def inputs" not in text
    bound = TASK.replace("max=LIMIT", "max=float(M.max)")
    with pytest.raises(TaskError, match="of kernellab, which an export"):
        reference_text(load_task(bound.replace("M, N = Dim", "from kernellab import Dim as D\nM, N = D"), "clamped"))


def test_a_model_brings_its_own_parameters() -> None:
    task = load_task(
        "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def __init__(self, n):\n"
        "        super().__init__()\n        self.linear = nn.Linear(n, 3)\n\n    def forward(self, x):\n"
        "        return self.linear(x)\n\ndef get_inputs():\n    return [torch.randn(5, 7)]\n\n"
        "def get_init_inputs():\n    return [7]\n",
        "linear",
    )
    scope: dict[str, object] = {}
    exec(reference_text(task), scope)
    args = task.module().sample(seed=3)
    fresh = [args[0], *(a * 2 for a in args[1:])]
    (want,) = task.module().reference(fresh)
    assert scope["call"](*fresh).equal(want)  # type: ignore[operator]


def test_what_cannot_go_together_is_refused(cpp: VerifiedKernel, tmp_path: Path) -> None:
    other = replace(cpp, task=load_task(TASK.replace("LIMIT = 3.0", "LIMIT = 4.0"), "clamped"))
    with pytest.raises(KernellabError, match="compute different things"):
        package([cpp, other])
    written = cpp.source.model_copy(update={"origin": Author.MODEL})
    alone = compiled(package([replace(cpp, source=written)]))
    assert not alone.binaries and "written by a model" in alone.source_only[0]
    with pytest.raises(KernellabError, match="is not a package version"):
        write_wheel(package([cpp]), tmp_path, version="one")
