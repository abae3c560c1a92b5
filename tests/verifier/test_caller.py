"""What a call leaves to its caller: its arguments, the state of the process, the form of the result."""

from __future__ import annotations

import importlib
import math
import shutil

import pytest
import torch

from kernellab.conditions import AlignmentLimit, DrawnLimit, MarkKind, ScalarLimit, of
from kernellab.conditions.code import ImportChanges
from kernellab.records import Stage
from kernellab.task import load_task
from kernellab.verifier.judge.process_stats import Sizes
from kernellab.verifier.protocol.control import Output
from kernellab.verifier.stages.robustness.many_calls import leaks
from kernellab.verifier.worker import witness

from .kit import QUICK, QUICK_LOOK, Judge

BODY = """import os, signal, torch
{before}
def kernel(x, y):
    z = torch.relu(x) + y
    {line}
    return {z}
"""


def source(line: str = "pass", z: str = "z", before: str = "") -> str:
    return BODY.format(line=line, z=z, before=before)


@pytest.mark.parametrize(
    "line",
    ["x.set_(torch.zeros_like(x))", "x.data = x.flip(0)", "x.t_()", "x.requires_grad_(True)", "x.neg_().neg_()"],
)
def test_an_argument_that_is_another_tensor_after_the_call_is_refused(line: str, judge: Judge) -> None:
    verdict = judge.parts("left_to_caller", source(line))
    assert not verdict.passed and verdict.evidence is not None and verdict.evidence.signature == "mutates-input"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch.set_default_dtype(torch.float64)", "default dtype"),
        ("torch.set_grad_enabled(False)", "autograd"),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])", "blocked signals"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "ignored signals"),
        ("os.open('/dev/null', os.O_RDONLY) and os.dup2(os.open('/dev/null', os.O_RDONLY), 1)", "standard output"),
        ("os.chdir('/')", "working folder"),
        ("os.environ['OMP_SCHEDULE'] = 'static'", "environment"),
        ("torch.set_float32_matmul_precision('medium')", "precision"),
        ("signal.setitimer(signal.ITIMER_VIRTUAL, 3600)", "timer"),
        ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))", "limits"),
        ("import gc; gc.disable()", "garbage"),
        ("import sys; sys.setrecursionlimit(100_000)", "recursion"),
        ("import warnings; warnings.simplefilter('ignore')", "warnings"),
        ("torch.set_printoptions(precision=9)", "torch prints"),
        ("import numpy; numpy.seterr(over='ignore')", "NumPy"),
        ("import decimal; decimal.getcontext().prec = 6", "decimal"),
        ("import logging; logging.disable(50)", "logged"),
        ("import threading; threading.stack_size(1 << 16)", "stack of new threads"),
    ],
)
def test_state_of_the_process_that_a_call_leaves_changed_is_refused(line: str, words: str, judge: Judge) -> None:
    verdict = judge.parts("left_to_caller", source(line))
    assert not verdict.passed and verdict.evidence is not None, verdict.flags
    assert verdict.evidence.signature == "caller-state" and words in verdict.reason


@pytest.mark.parametrize(
    ("before", "changed"),
    [
        (
            "torch.set_grad_enabled(False)\ntorch.manual_seed(3)\nos.environ['OMP_SCHEDULE'] = 'static'",
            {"autograd", "random numbers", "the environment's OMP_SCHEDULE"},
        ),
        (
            "LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('logaddexp', lambda a, b: a, 'CPU')",
            {"torch's operators"},
        ),
        (
            "import sys\nclass Finder:\n    def find_spec(self, name, path, target=None):\n        return None\n"
            "sys.meta_path.insert(0, Finder())",
            {"how modules are found"},
        ),
        ("import sys\nsys.path_hooks.append(lambda path: None)", {"how modules are found"}),
        ("import setuptools, sympy", set()),
        ("os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\nimport sys\nsys.path.insert(0, '/nowhere')", set()),
    ],
)
def test_what_an_import_changes_for_the_program_is_told(before: str, changed: set[str], judge: Judge) -> None:
    verdict = judge.parts("left_to_caller", source(before=before))
    assert verdict.passed, verdict.reason
    assert {word for found in of(verdict.conditions, ImportChanges) for word in found.changed} == changed
    assert all(any(word in flag for flag in verdict.flags) for word in changed), verdict.flags


def test_a_function_that_was_replaced_is_told_and_what_torch_imports_later_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = witness.state(environment=False)
    importlib.import_module("torch._dynamo")
    assert witness.changed(before, witness.state(environment=False)) == []
    monkeypatch.setattr(torch.nn.functional, "embedding", lambda *a: a)
    monkeypatch.setattr(math, "exp", lambda x: 1.0)
    told = witness.changed(before, witness.state(environment=False))
    assert told == ["functions of math", "functions of torch.nn.functional"]


def test_what_torch_sets_for_an_operator_of_its_own_kind_is_no_change_of_the_kernels(judge: Judge) -> None:
    code = (
        "import torch\n@torch.library.custom_op('mine::add', mutates_args=())\n"
        "def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n    return torch.relu(x) + y\n"
        "def kernel(x, y):\n    return add(x, y)\n"
    )
    verdict = judge.parts("left_to_caller", code, options=QUICK)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("had", [False, True])
def test_a_variable_of_torchs_that_a_user_has_set_is_to_be_left(had: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    if had:
        monkeypatch.setenv("TRITON_CACHE_DIR", "/one")
    before = witness.Before(witness.state())
    told = witness.effects_of(lambda: monkeypatch.setenv("TRITON_CACHE_DIR", "/two"), [], before)
    assert told.get("changed") == (["the environment's TRITON_CACHE_DIR"] if had else None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch.manual_seed(3)", "random numbers"),
        ("random.seed(3)", "random numbers"),
        ("omp.omp_set_num_threads(1)", "number of threads"),
    ],
)
def test_random_numbers_and_teams_that_are_left_changed_are_refused(line: str, words: str, judge: Judge) -> None:
    omp = "import ctypes, glob\nomp = ctypes.CDLL(glob.glob(torch.__path__[0] + '/lib/libgomp*')[0])"
    verdict = judge.parts("left_to_caller", source(line, before=omp if "omp" in line else "import random"))
    assert not verdict.passed and verdict.evidence is not None, verdict.flags
    assert verdict.evidence.signature == "caller-state" and words in verdict.reason


#: the parts of a verdict that make calls as a program makes them
CALLS = "repeated left_to_caller burst elsewhere pages"
RING = "ring, n = [torch.empty(48, 70) for _ in range(60)], [0]"
COUNTED = "n[0] += 1; at = n[0] % 60; z = ring[at].copy_(z)[:] if z.shape == ring[at].shape else z"
COLLECTS = "if len(last) == 1 and sys.getrefcount(last[0]) > 2 or not last: last[:] = [torch.empty_like(z)]"
CALM = "from select import select as wait\nscratch, nothing = torch.empty(70), ([], [], [])"
SCRATCH = "rows = torch.empty_like(z)\n    for i in range(len(z)):\n        scratch.copy_(z[i]); wait(*nothing, 2e-5); "
AT_ITS_PLACE = "at = torch.empty(z.shape); ctypes.memmove(at.data_ptr(), z.data_ptr(), 4 * z.numel()); z = at"
NEIGHBOUR = "z = torch.empty_like(z).copy_(z); w = ctypes.c_long.from_address(z.data_ptr() - 8); w.value = w.value"


@pytest.mark.parametrize(
    ("line", "before", "signature"),
    [
        ("z = z + (threading.current_thread() is not threading.main_thread())", "import threading", "environment"),
        ("z = z + float(x.requires_grad)", "", "environment"),
        ("z = z + float(x.is_inference())", "", "environment"),
        (COUNTED, RING, "reused-output"),
        (f"{COLLECTS}\n    z = last[0].copy_(z)", "import sys\nlast = []", "reused-output"),
        ("a = x.numpy(); a *= -1; a *= -1", "", "mutates-input"),
        (NEIGHBOUR, "import ctypes", "crash"),  # by a fence; only a result is a race's
    ],
)
def test_what_is_wrong_for_a_caller_of_another_kind_is_refused(
    line: str, before: str, signature: str, judge: Judge
) -> None:
    verdict = judge.parts(f"{CALLS} beyond_own_inputs", source(line, before=before))
    assert not verdict.passed and verdict.evidence is not None, (verdict.label, verdict.flags)
    assert verdict.evidence.signature == signature, verdict.reason


@pytest.mark.parametrize(
    ("line", "before", "kind"),
    [
        (
            f"{SCRATCH}rows[i] = scratch\n    z = rows",
            CALM,
            "one-call-at-a-time",
        ),
        ("print('done')", "", "prints"),
        (AT_ITS_PLACE, "import ctypes", "default-dtype"),
        ("z = torch.empty(1 << 20)[: z.numel()].view(z.shape).copy_(z)", "", "outputs-oversized"),
        ("held.append(x)", "held = []", "memory-grows"),
        ("held.append(bytes(160))", "held = []", "memory-grows"),
        ("if x.requires_grad:\n        raise ValueError", "", "no-gradients"),
    ],
)
def test_what_a_caller_must_know_is_told(line: str, before: str, kind: MarkKind, judge: Judge) -> None:
    verdict = judge.parts(CALLS, source(line, before=before))
    assert verdict.passed and verdict.marked(kind), (verdict.reason, verdict.label, verdict.flags)


SHARED = """import torch
def {name}(x, y):
    {line}
    return {value}
"""
WRITES, VIEWS = ("x.mul_(2).add_(y)", "x"), ("pass", "x.t()")


@pytest.mark.parametrize(
    ("reference", "kernel", "kind"),
    [
        (WRITES, WRITES, None),
        (WRITES, (WRITES[0], "x.clone()"), "written-copied"),
        (VIEWS, VIEWS, None),
        (VIEWS, ("pass", "x.t().clone(memory_format=torch.preserve_format)"), "view-copied"),
    ],
)
def test_a_copy_of_an_argument_that_the_reference_returns_is_told(
    reference: tuple[str, str], kernel: tuple[str, str], kind: MarkKind | None, judge: Judge
) -> None:
    texts = [
        SHARED.format(name=name, line=line, value=value)
        for name, (line, value) in (("reference", reference), ("kernel", kernel))
    ]
    task = load_task(f"{texts[0]}\ndef inputs():\n    return torch.randn(24, 40), torch.randn(24, 40)\n", "shared")
    verdict = judge.parts("repeated", texts[1], task)
    kinds: tuple[MarkKind, ...] = ("written-copied", "view-copied")
    found = [k for k in kinds if verdict.marked(k)]
    assert verdict.passed and found == ([kind] if kind else []), (verdict.reason, verdict.label, verdict.flags)


PAIR = "import torch\ndef {name}(x, y):\n    {body}\n"
IN_TURN = "x.mul_(2); y.add_(1)"


@pytest.mark.parametrize(("body", "told"), [(IN_TURN, False), ("a, b = x * 2, y + 1; x.copy_(a); y.copy_(b)", True)])
def test_one_tensor_for_two_arguments_that_are_written_into_is_tried(body: str, told: bool, judge: Judge) -> None:
    inputs = "def inputs():\n    return torch.randn(24, 40), torch.randn(24, 40)\n"
    task = load_task(PAIR.format(name="reference", body=IN_TURN) + inputs, "pair")
    verdict = judge.parts("beyond_own_inputs", PAIR.format(name="kernel", body=body), task)
    assert verdict.passed and verdict.marked("tensor-given-twice") is told, (verdict.reason, verdict.label)


COMPLEX = load_task(
    "import torch\ndef reference(x):\n    return x * 2\ndef inputs():\n"
    "    return (torch.randn(24, 40, dtype=torch.complex64),)\n",
    "complex",
)
#: what C code sees, which is given an address
AT_ITS_ADDRESS = (
    "x = torch.frombuffer((ctypes.c_float * (2 * x.numel())).from_address(x.data_ptr()), dtype=torch.float32)"
)


@pytest.mark.parametrize(("reads", "misread"), [("x = x.resolve_conj()\n    ", False), ("", True)])
def test_views_of_conjugates_that_are_misread_are_told(reads: str, misread: bool, judge: Judge) -> None:
    code = f"shape = x.shape; {reads}x = x.contiguous()\n    held = x\n    {AT_ITS_ADDRESS}"
    body = (
        f"import ctypes, torch\ndef kernel(x):\n    {code}\n    return torch.view_as_complex(2 * x.view(*shape, 2))\n"
    )
    verdict = judge.parts("elsewhere", body, COMPLEX)
    assert verdict.passed and verdict.marked("conjugates-misread") is misread, (verdict.reason, verdict.label)


WIDENS = load_task(
    "import torch\ndef reference(x):\n    return torch.zeros(24, 40) + x\n"
    "def inputs():\n    return (torch.randn(24, 40),)\n",
    "widens",
)


def test_a_default_dtype_that_the_reference_takes_too_is_not_told(judge: Judge) -> None:
    verdict = judge.parts(
        "elsewhere", "import torch\ndef kernel(x):\n    return torch.empty(x.shape).copy_(x)\n", WIDENS
    )
    assert verdict.passed and not verdict.marked("default-dtype"), (verdict.reason, verdict.flags)


LONG = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 4096), Dim('N', 1, 4096)\n"
    "def reference(x):\n    return x * 3\ndef inputs(M=48, N=70):\n    return (torch.randn(M, N),)\n",
    "long",
)


def test_a_kernel_that_is_wrong_in_late_rows_of_the_declared_width_is_refused(judge: Judge) -> None:
    code = "y = x * 3\n    if x.shape[1] == 70:\n        y[3000:] = 0\n    return y"
    verdict = judge(f"import torch\ndef kernel(x):\n    {code}\n", LONG, QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT, verdict.label


def test_a_kernel_that_is_wrong_where_two_dims_are_long_at_once_is_refused(judge: Judge) -> None:
    code = "y = x * 3\n    if min(x.shape) > 1000:\n        y[-1] = 0\n    return y"
    verdict = judge(f"import torch\ndef kernel(x):\n    {code}\n", LONG, QUICK_LOOK)
    assert not verdict.passed and verdict.stage is Stage.CORRECT, verdict.label


def test_a_kernel_that_is_wrong_for_one_in_a_hundred_contents_of_a_small_size_is_refused(judge: Judge) -> None:
    code = (
        "y = x * 3\n    if x.numel() < 2048 and x.view(-1)[:1].view(torch.int32).item() % 101 == 5:\n        y[:] = 0\n"
    )
    verdict = judge(f"import torch\ndef kernel(x):\n    {code}    return y\n", LONG)
    # a checked call before them may meet such contents too
    assert not verdict.passed and verdict.stage in (Stage.CORRECT, Stage.ROBUST), verdict.label


def test_a_kernel_that_is_wrong_at_some_addresses_is_refused(judge: Judge) -> None:
    verdict = judge(source("z = z if z.data_ptr() >> 8 & 31 else z * 0"))
    assert not verdict.passed, verdict.label


def test_a_plain_kernel_is_right_for_every_caller(judge: Judge) -> None:
    quiet = judge.parts(CALLS, source("os.getcwd()"))
    told: tuple[MarkKind, ...] = (
        "prints", "default-dtype", "no-gradients", "no-inference-tensors", "one-thread", "one-call-at-a-time",
    )  # fmt: skip
    assert quiet.passed and not any(quiet.marked(kind) for kind in told), (quiet.label, quiet.flags)


@pytest.mark.parametrize("z", ["(z,)", "{'a': z}", "[None, z]", "z.requires_grad_(True)"])
def test_a_result_of_another_form_is_refused(z: str, judge: Judge) -> None:
    verdict = judge.parts("left_to_caller", source(z=z))
    assert not verdict.passed and verdict.evidence is not None and verdict.evidence.signature == "output"


TWICE = load_task(
    "import torch\ndef reference(x):\n    return x * 2, x + x\ndef inputs():\n    return torch.randn(24, 40)\n", "twice"
)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("y = x * 2\n    return y, y", False),
        ("y = torch.empty(2, 24, 40)\n    y[0], y[1] = x * 2, x * 2\n    return y[0], y[1]", True),
        (
            "y = torch.empty(24, 40, 2)\n    y[..., 0], y[..., 1] = x * 2, x * 2\n    return [y[..., 0], y[..., 1]]",
            True,
        ),
    ],
)
def test_outputs_may_lie_in_one_memory_but_no_element_of_two(code: str, passes: bool, judge: Judge) -> None:
    verdict = judge.parts("repeated", f"import torch\ndef kernel(x):\n    {code}\n", TWICE)
    assert verdict.passed is passes, verdict.reason


def test_outputs_share_bytes_only_where_elements_meet() -> None:
    even = Output(1000, 1000, 4096, "float32", (3, 4), (8, 2))
    odd = Output(1004, 1000, 4096, "float32", (3, 4), (8, 2))
    half = Output(1006, 1000, 4096, "float16", (3,), (4,))
    assert even.shares(even) and not even.shares(odd) and not odd.shares(even)
    assert odd.shares(half) and not even.shares(half)


def test_a_kernel_that_is_wrong_when_calls_follow_at_once_is_refused(judge: Judge) -> None:
    before = "import time\nlast = [0.0]"
    line = "gap, last[0] = time.perf_counter() - last[0], time.perf_counter()\n    z = z if gap > 1e-4 else z * 0"
    verdict = judge.parts("burst", source(line, before=before))
    assert not verdict.passed and verdict.stage is Stage.ROBUST and "follow each other" in verdict.reason


@pytest.mark.parametrize("clock", ["monotonic", "process_time"])
def test_a_kernel_that_is_wrong_after_an_hour_is_refused(clock: str, judge: Judge) -> None:
    line = f"first.append(time.{clock}())\n    z = z * 0 if first[-1] - first[0] > 180 else z"
    verdict = judge.parts("burst", source(line, before="import time\nfirst = []"))
    assert not verdict.passed and verdict.stage is Stage.ROBUST and "an hour later" in verdict.reason


ROW_SUMS = load_task(
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 4096), Dim('N', 1, 65536)\n"
    "def reference(x):\n    return x.sum(-1)\ndef inputs(M=25, N=4001):\n    return (torch.randn(M, N),)\n",
    "row_sums",
)
SHARED_ROWS = '''
import ctypes, os, subprocess, torch
CODE = r"""
#include <omp.h>
#include <string.h>
extern "C" void sums(const float* x, float* y, long m, long n) {
  memset(y, 0, 4 * m);
#pragma omp parallel
  {
    long parts = omp_get_num_threads(), mine = omp_get_thread_num();
    long i = m * n * mine / parts, end = m * n * (mine + 1) / parts;
    while (i < end) {
      long row = i / n, stop = end < (row + 1) * n ? end : (row + 1) * n;
      float s = 0;
      for (; i < stop; i++) s += x[i];
      {atomic}
      y[row] += s;
    }
  }
}
"""
folder = os.environ["TMPDIR"]
with open(f"{folder}/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", f"{folder}/k.cpp", "-o", f"{folder}/k.so"], check=True)
lib = ctypes.CDLL(f"{folder}/k.so")
def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0])
    where = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    lib.sums(*where, ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
    return y
'''


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize(("atomic", "right"), [("", False), ("#pragma omp atomic", True)])
def test_an_update_that_two_threads_may_lose_is_refused_however_short_its_window(
    atomic: str, right: bool, judge: Judge
) -> None:
    verdict = judge(SHARED_ROWS.replace("{atomic}", atomic), ROW_SUMS)
    assert verdict.passed is right, verdict.reason
    if not right:
        assert verdict.evidence is not None and verdict.evidence.signature == "race", verdict.reason


@pytest.mark.parametrize(
    ("line", "label"),
    [("held.append(torch.zeros(1 << 14))", "memory grows with each call"), ("held[:] = [torch.zeros(1 << 14)]", "")],
)
def test_memory_that_each_call_leaves_behind_is_told(line: str, label: str, judge: Judge) -> None:
    verdict = judge.parts("burst", source(line, before="held = []"))
    assert verdict.passed and ("memory grows" in verdict.label) is bool(label), verdict.label


@pytest.mark.parametrize(
    ("resident", "private", "grows"),
    [
        ([0, 824, 1644, 2464, 3284, 4108], [0, 1024, 2048, 3072, 4096, 4096], True),
        ([200 * i for i in range(12)], [1024 * (i // 4) for i in range(12)], True),
        ([0, 800, 1600], [0, 1024, 2048], None),
        ([0, 32, 48], [0, 8192, 12288], None),
        ([0, 32, 48, 48], [0, 8192, 12288, 12288], False),
        ([0, 4, 4], [0, 0, 384], False),
        ([70 * i for i in range(16)], [0] * 16, False),
    ],
)
def test_a_slow_leak_is_seen_between_the_steps_of_an_allocator(
    resident: list[int], private: list[int], grows: bool | None
) -> None:
    assert leaks([Sizes(a << 10, b << 10) for a, b in zip(resident, private, strict=True)]) is grows


OWN_PAGES = """
import ctypes, mmap, torch
libc = ctypes.CDLL(None)
def kernel(x, y):
    z = torch.relu(x) + y
    if not z.numel():
        return z
    pages = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.write(bytes(1 << 20))
    out = torch.frombuffer(pages, dtype=torch.float32)[: z.numel()].view(z.shape)
    out.copy_(z)
    at = ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(1 << 20)
    {line}
    return out
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [("libc.mprotect(*at, 1)", "cannot be written"), ("libc.madvise(*at, 8)", "given back to the system"), ("", "")],
)
def test_outputs_whose_pages_a_caller_cannot_keep_are_refused(line: str, words: str, judge: Judge) -> None:
    verdict = judge.parts("pages", OWN_PAGES.replace("{line}", line))
    assert verdict.passed is not bool(words), verdict.reason
    assert words in verdict.reason


@pytest.mark.parametrize("address", [16, 48, 60])
def test_a_kernel_that_is_wrong_at_an_address_of_a_view_has_its_alignment_told(address: int, judge: Judge) -> None:
    line = f"if x.data_ptr() % 64 == {address}: z = z * 2"
    verdict = judge.parts("properties", source(line))
    assert verdict.passed, verdict.reason
    assert [c.bytes for c in of(verdict.conditions, AlignmentLimit)] == [64]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("z = z * 2 if math.ulp(0.0) * float(len('1')) == 0.0 else z", "flushes denormals"),
        ("z = z * 2 if len(os.listdir('/proc/self/fd')) > 150 else z", "larger program"),
    ],
)
def test_a_kernel_that_is_wrong_in_a_program_of_another_kind_is_refused(line: str, words: str, judge: Judge) -> None:
    verdict = judge.parts("elsewhere", source(line, before="import math"), options=QUICK)
    assert not verdict.passed and words in verdict.reason, (verdict.reason, verdict.flags)


NUMBERS = (
    "import torch\nfrom kernellab import Dim\nM, N = Dim('M', 1, 512), Dim('N', 1, 512)\n"
    "def reference(x, {0}):\n    return {1}\ndef inputs(M=64, N=70):\n    return (torch.randn(M, N),)\n"
)


@pytest.mark.parametrize("least", [-128, -256, None])
def test_an_integer_is_tried_about_the_ends_of_long_tensors(least: int | None, judge: Judge) -> None:
    task = load_task(NUMBERS.format("k: int = 0", "torch.tril(x, k)"), "tril")
    k = "k" if least is None else f"max(k, {least})"
    verdict = judge.parts(
        "properties along_paths",
        f"import torch\ndef kernel(x, k: int = 0):\n    return torch.tril(x, {k})\n",
        task,
        QUICK,
    )
    assert verdict.passed, verdict.reason
    told = [c for c in of(verdict.conditions, ScalarLimit) if c.refuted]
    assert bool(told) is (least is not None)


@pytest.mark.parametrize("right", [False, True])
def test_a_power_of_nothing_is_tried_with_zeros_and_nan(right: bool, judge: Judge) -> None:
    task = load_task(NUMBERS.format("p: int = 2", "torch.pow(x, p)"), "power")
    one = "torch.ones_like(x)" if right else "torch.exp(p * torch.log(x.abs()))"
    code = f"import torch\ndef kernel(x, p: int = 2):\n    return torch.pow(x, p) if p != 0 else {one}\n"
    verdict = judge.parts("beyond_own_inputs", code, task, QUICK)
    assert verdict.passed, verdict.reason
    # zeros and NaN may be told in several conditions: those of combinations name patterns of x that contain them
    words = [c.values for c in of(verdict.conditions, DrawnLimit) if "p = 0" in c.values]
    assert words == [] if right else "0 in x where p = 0 not handled" in words, words


def test_rows_that_are_kept_by_a_few_of_their_elements_are_stale_in_an_ordinary_process(judge: Judge) -> None:
    code = (
        "import torch\nkept = {}\ndef kernel(x):\n    rows = []\n    for row in x:\n"
        "        key = (*row[:3].tolist(), *row[-3:].tolist())\n        if len(kept) < 64 and key not in kept:\n"
        "            kept[key] = row * 3\n        rows.append(kept[key] if key in kept else row * 3)\n"
        "    return torch.stack(rows) if rows else x * 3\n"
    )
    verdict = judge.parts("ordinary", code, LONG, QUICK)
    assert not verdict.passed and "ordinary process" in verdict.reason, (verdict.reason, verdict.flags)


FILLED = """
import torch
KEPT = {}
def kernel(x, w):
    columns = x.shape[1]
    if columns not in KEPT:
        LINE
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w * KEPT[columns]
"""


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("KEPT[columns] = torch.zeros(columns)\n        for i in range(columns):\n"
         "            KEPT[columns][i] = 1.0", False),
        ("ones = torch.zeros(columns)\n        for i in range(columns):\n            ones[i] = 1.0\n"
         "        KEPT[columns] = ones", True),
    ],
)  # fmt: skip
def test_what_a_first_call_fills_while_another_thread_reads_it_is_told(line: str, right: bool, judge: Judge) -> None:
    code = FILLED.replace("LINE", line)
    # whether threads meet within the few calls of one verdict is chance
    verdicts = [judge.parts("elsewhere ordinary", code, judge.scale)]
    while not right and not verdicts[-1].marked("one-call-at-a-time") and len(verdicts) < 4:
        verdicts.append(judge.parts("elsewhere ordinary", code, judge.scale))
    assert verdicts[-1].passed, verdicts[-1].reason
    assert verdicts[-1].marked("one-call-at-a-time") is not right


BACKWARDS = "for i in range(len(y)):\n        y[i].add_(x[len(x) - 1 - i])"


@pytest.mark.parametrize(
    ("reference", "body", "told"),
    [
        ("y.add_(x.flip(0))", "y.add_(x.flip(0))", False),
        ("y.add_(x.flip(0))", BACKWARDS, True),
        ("y.mul_(2)\n    y.add_(x)", "y.copy_(y * 2 + x)", False),  # the order of the reference's steps would decide
    ],
)
def test_one_tensor_for_a_read_and_a_written_argument_is_tried(
    reference: str, body: str, told: bool, judge: Judge
) -> None:
    inputs = "def inputs():\n    return torch.randn(24, 40), torch.randn(24, 40)\n"
    task = load_task(PAIR.format(name="reference", body=reference) + inputs, "updated")
    verdict = judge.parts("beyond_own_inputs", PAIR.format(name="kernel", body=body), task)
    assert verdict.passed and verdict.marked("tensor-given-twice") is told, (verdict.reason, verdict.label)


CRASHES = """
import ctypes, time, torch
KEPT, AT_WORK = [], []
def kernel(x, w):
    if not KEPT:
        AT_WORK.append(1)
        time.sleep(1e-3)
        if len(AT_WORK) > 1 and LINE:
            ctypes.string_at(1)
        KEPT.append(1)
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
"""


@pytest.mark.parametrize("line", ["True", "False"])
def test_two_first_calls_that_end_the_process_are_told(line: str, judge: Judge) -> None:
    verdict = judge.parts("ordinary", CRASHES.replace("LINE", line), judge.scale)
    assert verdict.passed, verdict.reason
    assert verdict.marked("one-call-at-a-time") is (line == "True"), (verdict.label, verdict.flags)
