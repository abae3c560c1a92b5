"""C++ under the lens: levels, links in both directions, facts that follow the code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernellab.dsls.cpp import compiler
from kernellab.errors import SessionError
from kernellab.lens import difference, look
from kernellab.lens.cpp.build import compiled
from kernellab.lens.cpp.mca import available
from kernellab.records import Source
from kernellab.sandbox import landlock

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")

ENTRY = 'FLAGS = ["-O3", "-mavx2", "-mfma", "-ffast-math"]\n'
CODE = """static inline float positive(float v) {
  return v > 0 ? v : 0.0f;
}
void scale(float* __restrict y, const float* __restrict x, long n) {
  for (long i = 0; i < n; ++i)
    y[i] = positive(x[i]) * x[i];
}
"""
CHAIN = """double chain(double a, long n) {
  for (long i = 0; i < n; ++i)
    a = 1.0 / (a + 1.0);
  return a;
}
"""


def cpp(code: str, flags: str = ENTRY) -> Source:
    return Source(dsl="cpp", files={"kernel.py": flags, "kernel.cpp": code})


def test_each_line_links_to_what_it_became_and_back_also_where_it_was_inlined() -> None:
    lens = look(cpp(CODE))
    asm = lens.level("asm")
    assert lens.file == "kernel.cpp" and asm is not None
    text = asm.text.split("\n")
    down = {line: [text[n - 1] for n in numbers] for line, numbers in asm.down.items()}
    # the product is line 6's, and the maximum is line 2's, inlined into line 6
    assert any("mulps" in one for one in down[6])
    if shutil.which("addr2line"):
        tops = [n for n in asm.down[2] if "maxps" in text[n - 1]]
        assert tops and all(6 in asm.up[n] for n in tops)
    for line, numbers in asm.down.items():
        assert all(line in asm.up[n] for n in numbers)
    middle = lens.level("gimple") or lens.level("llir")
    assert middle is not None and 6 in middle.down


def test_a_shell_follows_a_line_down_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernellab.cli.main import main

    for name, text in cpp(CODE).files.items():
        (tmp_path / name).write_text(text)
    call = ["lens", str(tmp_path), "--level", "asm"]
    assert main([*call, "--line", "6"]) == 0
    number = next(one.split()[0] for one in capsys.readouterr().out.splitlines() if "mulps" in one)
    assert main([*call, "--back", number]) == 0
    assert "kernel.cpp:6: " in capsys.readouterr().out
    assert main([*call, "--back", "99999"]) == 2 and "Name one of them with --back" in capsys.readouterr().err
    assert main(["lens", str(tmp_path), "--back", "1"]) == 2


def test_vector_width_and_loops_are_facts_of_the_code() -> None:
    wide = {fact.name: fact for fact in look(cpp(CODE)).facts}
    assert wide["vector width"].value == "256 bits" and "all of it" in wide["vector width"].sentence
    assert "line 5" in wide["loops vectorised"].sentence or "line 6" in wide["loops vectorised"].sentence
    one = {fact.name: fact for fact in look(cpp(CHAIN)).facts}
    assert one["vector width"].value == "scalar"
    assert one["divisions in the loop"].value == "1"
    assert one["spills in the loop"].value == "0"


@pytest.mark.skipif(available() is None, reason="llvm-mca is not installed")
def test_a_chain_of_divisions_takes_more_cycles_than_a_stream() -> None:
    """A division waits for the one before: more than its latency an iteration, on any CPU."""
    cycles = {fact.name: float(fact.value) for fact in look(cpp(CHAIN)).facts if fact.name == "cycles an iteration"}
    assert cycles["cycles an iteration"] > 8


def test_what_the_compiler_refuses_is_one_sentence() -> None:
    with pytest.raises(SessionError, match=r"refuses this source: .*kernel.cpp:1:.*nothing_here"):
        look(cpp("int f() { return nothing_here; }\n"))
    with pytest.raises(SessionError, match="does not read numba"):
        look(Source(dsl="numba", files={"kernel.py": ""}))


def test_a_source_makes_the_compiler_read_no_file_of_the_person(tmp_path: Path) -> None:
    """What an agent cannot read is not read for it."""
    if not landlock.abi():
        pytest.skip("this machine has no Landlock")
    (tmp_path / "key.h").write_text("static const int KEY = 1;\n")
    text = f'#include "{tmp_path / "key.h"}"\nint f(int x) {{ return x + KEY; }}\n'
    with pytest.raises(SessionError, match=r"Permission denied|No such file"):
        compiled((("k.cpp", text),), "k.cpp", ("-O2",))


def test_a_function_with_a_section_to_itself_is_placed_in_the_file_that_it_stands_in() -> None:
    header = "\n" * 6 + "template <int N> __attribute__((noinline)) float some(const float* x) {\n"
    header += "  float sum = 0;\n  for (int i = 0; i < N; ++i) sum += x[i] / (x[i] + N);\n  return sum;\n}\n"
    code = '#include "parts.h"\nfloat both(const float* x) { return some<5>(x) + some<900>(x); }\n'
    made = compiled((("main.cpp", code), ("parts.h", header)), "main.cpp", ("-O2",))
    functions = made.functions
    assert len(functions) == 3, "two of them are of a template, and have a section each"
    for name, function in functions.items():
        offsets = function.offsets
        files = {file for row in function.lines for file, _ in made.places.get(row, ())[:1]}
        assert files == ({"main.cpp"} if "both" in name else {"parts.h"}), name
        assert offsets[0] == 0 and offsets == sorted(offsets)


def test_two_candidates_differ_at_a_level_and_in_facts() -> None:
    fast, plain = look(cpp(CODE)), look(cpp(CODE, 'FLAGS = ["-O1", "-mavx2", "-fno-tree-vectorize"]\n'))
    assert difference(fast, plain, "source").text == ""
    found = difference(fast, plain, "asm", ("fast", "plain"))
    assert "ymm" in found.text and found.removed > 0 and not found.same
    assert ("vector width", "256 bits", "scalar") in [(f.name, f.a, f.b) for f in found.facts]
    again = difference(fast, fast, "asm")
    assert not again.text and again.same and not again.facts
    with pytest.raises(SessionError, match="no level 'sass'"):
        difference(fast, plain, "sass")
