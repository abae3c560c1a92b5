"""Code of a kernel that ran in none of the checked calls is a condition of its verdict."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from kernellab.conditions import StridesLimit, of
from kernellab.conditions.code import CodeRegion, CoverageUnknown, NeverRan
from kernellab.records import Verdict
from kernellab.verifier.coverage import build, gcov, native, python, stage
from kernellab.verifier.coverage.native import Gap
from kernellab.verifier.coverage.placing import Placing, stretched
from kernellab.verifier.static.native import in_file
from tests.pythons import PYTHONS, interpreter, watched

from .kit import RMS_CPP, Judge

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

CODE = """\
#include <stdexcept>
template <class T> static T twice(T x) { if (x > T(1e30)) return x; return x + x; }
extern "C" int sums(const float* x, float* y, long m, long n) {
  if (m < 0) throw std::runtime_error("a number below zero");
  #pragma omp parallel for
  for (long i = 0; i < m; i++) {
    float s = 0;
    for (long j = 0; j < n; j++) s += twice(x[i * n + j]);
    if (n > 300 && m == 7) {
      s *= 1.01f;

      s += 1;
    }
    s += (n == 12345) * 1e-3f;
    y[i] = s;
  }
  return 0;
}
"""
MAIN = """
#include <vector>
extern "C" int sums(const float*, float*, long, long);
int main() { std::vector<float> x(800, 1.f), y(8); return sums(x.data(), y.data(), 8, 100); }
"""


def _counted(folder: Path, code: str, header: str = "") -> list[Gap]:
    source = folder / "src"
    source.mkdir()
    (source / "k.h").write_text(header)
    (source / "k.cpp").write_text(code)
    (source / "main.cpp").write_text(MAIN)
    for command in (
        ["g++", "-O1", "-fno-early-inlining", "-fopenmp", "--coverage", "-c", "k.cpp", "-o", "k.o"],
        ["g++", "-fopenmp", "--coverage", "main.cpp", "k.o", "-o", "main"], ["./main"],
    ):  # fmt: skip
        subprocess.run(command, cwd=source, check=True)
    found = [c for c in native.compiled(folder) if c[0].name == "k.gcda"]
    for counts, notes in found:
        gcov.add_counts(notes, native.plain(counts))
    return native.gaps(found, native.Places(folder, {"k.cpp": code}))


@needs_gcc
def test_blocks_that_did_not_run_are_named_with_the_condition_before_them(tmp_path: Path) -> None:
    gaps = {(gap.lines, gap.guard, gap.part) for gap in _counted(tmp_path, CODE)}
    assert ((10, 12), 9, False) in gaps, "in a parallel region, whose function the compiler made"
    assert ((2,), 2, True) in gaps and ((14,), 14, True) in gaps, "a part of a line"
    assert not any(4 in lines or 5 in lines for lines, _, _ in gaps), "code that only raises, and the compiler's own"
    assert {lines for lines, _, part in gaps if not part} == {(10, 12)}


@needs_gcc
def test_all_code_that_ran_leaves_no_gap(tmp_path: Path) -> None:
    code = CODE.replace("n > 300 && m == 7", "n > 3 && m == 8").replace("x > T(1e30)", "i % 2 == 0")
    code = code.replace("s += (n == 12345) * 1e-3f;", "").replace("twice(T x)", "twice(T x, long i)")
    code = code.replace("twice(x[i * n + j])", "twice(x[i * n + j], j)").replace("n > 3 && m == 8", "i > 2")
    assert _counted(tmp_path, code) == []


EXPORT = """\
#include <exception>
#define EXPORT(name) static void name##_body(const float*, float*, long, long); \
  extern "C" int name(const float* x, float* y, long m, long n) { \
    try { name##_body(x, y, m, n); } catch (const std::exception&) { return -1; } return 0; } \
  static void name##_body(const float* x, float* y, long m, long n)
"""
EXPORTED = """\
#include "k.h"
#include <stdexcept>
EXPORT(sums) {
  if (n > 300) throw std::runtime_error("too long");
  #pragma omp parallel for
  for (long once = 0; once < 1; once++) y[0] = x[0];
}
"""


@needs_gcc
def test_what_a_header_does_after_an_exception_is_no_gap_of_a_candidate_that_catches_none(tmp_path: Path) -> None:
    assert _counted(tmp_path, EXPORTED, EXPORT) == []


@needs_gcc
def test_what_a_candidate_does_after_an_exception_that_it_catches_is_a_gap(tmp_path: Path) -> None:
    own = """
#include <stdexcept>
static float far(long n) { if (n > 300) throw 1; return 0; }
extern "C" int sums(const float* x, float* y, long m, long n) {
  try { y[0] = far(n); } catch (int) {
    y[0] = 7;
  }
  return 0;
}
"""
    assert any(6 in gap.lines for gap in _counted(tmp_path, own))


@needs_gcc
@pytest.mark.parametrize("end", ["gcno", "gcda"])
def test_damaged_files_of_a_worker_raise_value_errors_alone(tmp_path: Path, end: str) -> None:
    _counted(tmp_path, CODE)
    notes_of, counts_of = ((tmp_path / "src" / f"k.{e}").read_bytes() for e in ("gcno", "gcda"))
    data = notes_of if end == "gcno" else counts_of
    failures = 0
    for at in range(0, len(data), 3):
        for damaged in (data[:at], data[:at] + b"\xff" * 4 + data[at + 4 :]):
            try:
                notes = gcov.read_notes(damaged if end == "gcno" else notes_of)
                gcov.add_counts(notes, damaged if end == "gcda" else counts_of)
            except ValueError:
                failures += 1
    assert failures > 10


def test_a_workers_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        native.plain(tmp_path / "a")


def test_lines_of_a_generated_file_are_found_in_the_source(tmp_path: Path) -> None:
    source = 'CODE = """\n#include <cmath>\nfloat half(float x) {\n  return x / 2.0f;\n}\n"""\n'
    made = tmp_path / "cache" / "main.cpp"
    made.parent.mkdir()
    made.write_text("#include <other>\n\n#include <cmath>\nfloat half(float x) {\n  return x / 2.0f;\n}\nint more;\n")
    places = native.Places(tmp_path, {"kernel.py": source})
    assert places.of("/", str(made), 5) == ("kernel.py", 4)
    assert places.of("/", str(made), 7) is None
    assert places.of("/", "/usr/include/math.h", 5) is None


PYTHON = '''
"""A module."""
import torch

def never_called(x):
    return x

def slow(x):
    """Slow."""
    return x + 1

def kernel(x, n=2):
    if x.dim() != 2:
        raise ValueError("two dimensions")
    if n > 300 and x.shape[0] == 7:
        x = x * 2
        return x
    y = slow(x) if n > 40 else x
    if n == 1:
        return y
    for i in range(0):
        y = y + i
    return y

if __name__ == "__main__":
    print(kernel(torch.ones(2, 2)))
'''


#: forks of a process that has imported torch and computed nothing: threads of one that has may hold locks
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", watched.__module__])


def _traced(tmp_path: Path, text: str, script: str) -> list[Gap]:
    """What of ``text`` did not run in a process that was watched while ``script`` called it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "src" / "kernel.py").write_text(text)
    process = _FORKS.Process(target=watched, args=(str(tmp_path / "src"), script))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    told = json.loads((tmp_path / "work" / "covered.json").read_text())
    code = python.Code({"kernel.py": text})
    return code.gaps(code.ran(told["python"]))


def test_statements_of_python_that_did_not_run(tmp_path: Path) -> None:
    gaps = {(g.lines, g.guard, g.part) for g in _traced(tmp_path, PYTHON, "kernel.kernel(torch.ones(2, 2))")}
    assert gaps == {((16, 17), 15, False), ((18,), 18, True), ((20,), 19, False), ((22,), 21, False)}


CHECKS = """
import platform
import torch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
try:
    import no_such_module
    HAS = True
except ImportError:
    HAS = False
try:
    import math
except ModuleNotFoundError:
    math = None

def fits(x, shape):
    if x.shape == shape:
        return
    count = 1
    for extent in shape:
        count *= extent
    if x.numel() != count:
        raise ValueError("another shape")

def flags():
    if platform.system() == "Darwin":
        return ["-Xpreprocessor"]
    return []

def kernel(x):
    if x.dtype == torch.float64:
        return x * 1.0
    if x.dtype in (torch.bfloat16, torch.float16):
        x = x.float()
    flags()
    fits(x, SHAPE)
    return x
"""


@pytest.mark.parametrize("shape", ["(2, 2)", "(4,)"])
def test_checks_and_code_for_another_system_are_no_gap(tmp_path: Path, shape: str) -> None:
    assert _traced(tmp_path, CHECKS.replace("SHAPE", shape), "kernel.kernel(torch.ones(2, 2))") == []


@pytest.mark.parametrize(("old", "new"), [
    ("count *= extent", "count = x.mul_(1)"), ("import platform", "class platform: system = str"),
    ("        return\n    count", "        return 7\n    count = 1\n    count"),
])  # fmt: skip
def test_code_that_may_do_more_is_a_gap(tmp_path: Path, old: str, new: str) -> None:
    text = CHECKS.replace("SHAPE", "(4,)" if "7" in new else "(2, 2)").replace(old, new)
    assert _traced(tmp_path, text, "kernel.kernel(torch.ones(2, 2))")


def test_python_that_ran_leaves_no_gap(tmp_path: Path) -> None:
    text = PYTHON.replace("n > 300 and x.shape[0] == 7", "n > 300").replace("range(0)", "range(2)")
    calls = "\n".join(f"kernel.kernel(torch.ones(2, 2), {n})" for n in (1, 2, 41, 301))
    assert _traced(tmp_path, text, calls) == []


@pytest.mark.parametrize("code", [
    "int f(int n) { static void* to[] = {&&a, &&b}; goto *to[n > 9]; a: return 1; b: return 2; }",
    "__attribute__((no_profile_instrument_function)) int f() { return 1; }", "[[gnu::no_sanitize_coverage]] int f();",
    "const char* made = __TIME__;", '#if __has_include("mark.h")\nint x;\n#endif',
    "int f(int n) { return __builtin_constant_p(n); }",
    'extern "C" void __gcov_reset();', "#ifdef __OPTIMIZE__\nint x;\n#endif", '#line 1 "/usr/include/cmath"\nint x;',
    '# 7 "/usr/include/cmath"\nint x;',
    'int f(long n) { long q; asm("cmp $7, %1; sete %b0" : "=q"(q) : "r"(n)); return q; }',
])  # fmt: skip
def test_ways_around_the_count_are_flagged_by_name(code: str) -> None:
    assert "hidden-code" in {finding.rule for finding in in_file(code, "k.cpp")}


def test_plain_assembly_and_directives_are_not_flagged() -> None:
    code = '#include <cmath>\n#define LINE 3\nvoid f() { asm volatile("vmovaps %ymm0, %ymm1; mfence"); jump(); }'
    assert not in_file(code, "k.cpp")


BRANCH = "float r = 1.0f"
NEVER = "if (N == 5003) { s *= 1.5f; }\n    float r = 1.0f"


def _unreached(verdict: Verdict) -> list[str]:
    return [region.condition for limit in of(verdict.conditions, NeverRan) for region in limit.regions]


@needs_gcc
def test_a_verdict_names_a_branch_that_no_checked_call_takes(judge: Judge) -> None:
    verdict = judge(RMS_CPP.replace(BRANCH, NEVER), judge.scale)
    assert verdict.passed
    assert any("5003" in condition for condition in _unreached(verdict))


@needs_gcc
def test_two_sizes_and_a_remainder_that_decide_at_once_are_met(judge: Judge) -> None:
    code = RMS_CPP.replace(BRANCH, "if (N % 97 == 41 && M == 913) { s *= 1.5f; }\n    float r = 1.0f")
    verdict = judge(code, judge.scale)
    assert not verdict.passed and "M=913" in verdict.reason


@needs_gcc
def test_sizes_and_a_stride_that_decide_at_once_are_met(judge: Judge) -> None:
    strided = "if (N > 300 && sx == N + 7 && i == 2) { s *= 1.5f; }\n    float r = 1.0f"
    verdict = judge(RMS_CPP.replace(BRANCH, strided), judge.scale)
    assert verdict.passed and StridesLimit(contiguous="all") in verdict.conditions, (verdict.reason, verdict.label)


@pytest.mark.parametrize("text", [
    "[]", "7", "not json", "[" * 100_000, '{"compared": 7}', '{"compared": [7]}',
    '{"compared": [{"file": "k.cpp", "line": 1}]}', '{"compared": [{"file": "k.cpp", "line": 1, "pairs": 7}]}',
    '{"compared": [{"file": "k.cpp", "line": 1, "pairs": [[1]]}]}',
    '{"compared": [{"file": "k.cpp", "line": 1, "pairs": [[1, [2]]]}]}',
    '{"compared": [{"file": "k.cpp", "line": 1, "pairs": [[1, 1' + "0" * 400 + "]]}]}",
    '{"compared": [{"file": "k.cpp", "line": 1, "pairs": [[1, Infinity]]}]}',
])  # fmt: skip
def test_a_forged_answer_is_read_as_none(text: str) -> None:
    with pytest.raises(ValueError):
        stage.report(text.encode())


def test_an_answer_has_operands_of_comparisons_and_names_of_what_json_has_not() -> None:
    one = {"file": "k.cpp", "line": 3, "pairs": [[1, -2.5], ["nan", "inf"]]}
    assert stage.report(json.dumps({"python": {}, "compared": [one]}).encode()).compared == [one]


def test_a_compiler_that_failed_once_is_asked_again(tmp_path: Path) -> None:
    program = tmp_path / "gcc"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert not build._is_gcc(str(program)) and build._hooks(str(program)) is None
    program.write_text(
        '#!/bin/sh\necho "#define __GNUC__ 12"\nfor last; do :; done\n[ -f "$last" ] || echo > "$last"\n'
    )
    assert build._is_gcc(str(program)) and build._hooks(str(program)) is not None


def test_the_places_that_other_calls_left_are_a_field() -> None:
    region = CodeRegion(file="k.cpp", first=3, last=5, guard=2, condition="if (n > 300) {")
    unknown = CoverageUnknown(left=2, regions=(region,), more=1)
    assert "2 calls" in unknown.flag and region.text in unknown.flag and "1 more place)" in unknown.flag


def test_a_stride_a_remainder_of_an_address_and_a_team_are_reached_for() -> None:
    args = (torch.randn(5, 300), torch.randn(300))
    plain = Placing()
    by_row = [p for p in plain.others(args, [0, 1], 300, 307, 0) if (0, 0, 307) in p.strides]
    places = by_row[0].layout(args).places
    assert places[0].strides == (307, 1) and places[1].strides == (1,)
    assert any((1, 0, 2) in p.strides for p in plain.others(args, [1], 1, 1, 0)), "a step where the operands are equal"
    moved = next(p for p in plain.others(args, [0], 0, 4, 0) if p.moved)
    assert moved.layout(args).places[0].offset % 64 == 4
    assert {p.threads for p in plain.others(args, [], 2, 7, 2)} == {6, 7, 8}
    assert not list(plain.others(args, [], 2, 7, 0)), "the source does not ask for its team"
    with pytest.raises(ValueError, match="share memory"):
        stretched((5, 300), {0: 299})


@needs_gcc
def test_a_plain_kernel_has_no_such_condition(judge: Judge) -> None:
    verdict = judge.once(RMS_CPP, judge.scale)
    assert verdict.passed
    assert not of(verdict.conditions, NeverRan) and not of(verdict.conditions, CoverageUnknown)


@needs_gcc
def test_a_build_that_counts_nothing_is_named(judge: Judge) -> None:
    compiler = shutil.which("g++")
    verdict = judge(RMS_CPP.replace('["g++"', f'["{compiler}"'), judge.fixed)
    assert verdict.passed
    assert of(verdict.conditions, CoverageUnknown)


SIGN = """\
ONE = 1

def kernel(x):
    if x > 0:
        return ONE
    return -ONE
"""
#: lines noted while the module is loaded, in the first call, in the second one, and in one of another thread
NOTED = """\
import json, sys, threading
from kernellab.verifier.coverage import inside

root = sys.argv[1]
inside.watch(root)
sys.path.insert(0, root)

def noted(function, *args):
    result = function(*args)
    return result, sorted({place[0] for held in inside._python(root).values() for place in held} - {0})

def threaded(*args):
    thread = threading.Thread(target=kernel, args=args)
    thread.start()
    thread.join()

module, lines = noted(__import__, "kernel")
kernel = module.kernel
print(json.dumps([lines, *(noted(*call)[1] for call in ((kernel, 1), (kernel, -1), (threaded, 1)))]))
"""


@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_notes_the_lines_of_a_modules_load_and_of_first_calls(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    (tmp_path / "kernel.py").write_text(SIGN)
    # where kernellab is, without this Python's packages
    code = f"import sys\nsys.path.append({str(Path(__file__).parents[2])!r})\n{NOTED}"
    run = subprocess.run([python, "-I", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    # Python 3.10 notes an instruction's line alone, and a definition's is its function's first
    loaded, *calls = (set(lines) for lines in json.loads(run.stdout))
    assert loaded == {1, 3}
    assert [lines - {3} for lines in calls] == [{4, 5}, {4, 6}, {4, 5}]
