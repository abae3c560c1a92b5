"""The static stage of hostile and of odd texts: it ends, within its limits, with a sentence; honest ways pass it."""

from __future__ import annotations

import random
import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kernellab.dsls import get_adapter
from kernellab.errors import JudgeBusy
from kernellab.records import Source
from kernellab.verifier.static import bounded
from kernellab.verifier.static.bounded import Analysis, analyse

ENTRY = "\ndef kernel(x):\n    return x\n"
ZOO = Path(__file__).parents[1] / "zoo"


def analysed(files: dict[str, str], dsl: str = "cpp") -> Analysis:
    return analyse(Source(dsl=dsl, files=files), get_adapter(dsl))


JOINED = "x0 = 'a' * 3\n" + "".join(f"x{i + 1} = ''.join([{', '.join([f'x{i}'] * 60)}])\n" for i in range(8))
HOSTILE = {
    "a sum of very many": "y = " + "+".join(["1"] * 100_000),
    "parentheses without end": "y = " + "(" * 50_000 + ")" * 50_000,
    "attributes without end": "y = x" + ".a" * 100_000,
    "strings joined of each other": JOINED,
    "calls in calls": "y = " + "f(" * 5_000 + ")" * 5_000,
    "many executions of one text": "t = " + "+".join(["b''"] * 900) + "\n" + "exec(t)\n" * 20_000,
    "a surrogate": "y = '\udc80'",
    "a null": "y = '\0'",
}
HOSTILE_NATIVE = {
    "comments that never end": "/*a" * 50_000,
    "strings that never end": '\\"' * 80_000 + "\n",
    "empty lines": "\n" * 200_000,
    "linkages without a function": 'extern "C" ' * 40_000,
    "braces": "{" * 100_000,
    "calls that are none": "at::a" * 80_000,
    "a very long word": "a" * 1_000_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_text_of_python_is_read_within_limits(what: str) -> None:
    start = processor()
    found = analysed({"kernel.py": HOSTILE[what] + ENTRY})
    assert processor() - start < 6
    assert found.refused or found.errors or found.findings


def processor() -> float:
    """Seconds of the processor's time that the children which ended have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_busy_machine_refuses_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bounded.check
    monkeypatch.setattr(bounded, "check", lambda source: (time.sleep(3), whole(source))[1])
    monkeypatch.setattr(bounded, "STATIC", replace(bounded.STATIC, processor_seconds=1.0))
    assert not analysed({"kernel.py": ENTRY}).refused, "it waited three seconds and worked less than one"
    monkeypatch.setattr(bounded, "STATIC", replace(bounded.STATIC, wall_seconds=0.3))
    with pytest.raises(JudgeBusy, match=r"too busy.*0 s"):
        analysed({"kernel.py": ENTRY})


@pytest.mark.parametrize("what", HOSTILE_NATIVE)
def test_a_hostile_text_of_cpp_is_read_in_linear_time(what: str) -> None:
    inside = f"CODE = {'#include <x>' + HOSTILE_NATIVE[what]!r}" + ENTRY
    for files in ({"kernel.py": ENTRY, "kernel.cpp": HOSTILE_NATIVE[what]}, {"kernel.py": inside}):
        assert not analysed(files).refused


def test_what_is_too_large_is_said_so() -> None:
    assert "5 MB of text" in analysed({"kernel.py": "#" * 5_000_000}).refused
    assert "2000 files" in analysed({f"f{i}.py": "" for i in range(2000)}).refused


def test_a_class_model_new_counts_and_its_name_in_a_comment_does_not() -> None:
    assert analysed({"kernel.py": "class ModelNew:\n    pass\n"}).model
    assert not analysed({"kernel.py": "# class ModelNew:\n" + ENTRY}).model
    assert not analysed({"kernel.py": "class ModelNew:\n    pass\n" + ENTRY}).model
    assert not analysed({"kernel.py": ENTRY, "other.py": "class ModelNew:\n    pass\n"}).model


C = "void twice(const float* x, float* y, long n) { for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }\n"
BY_CTYPES = """
import ctypes, subprocess
subprocess.run(['gcc', '-shared', 'kernel.c', '-o', 'k.so'])
lib = ctypes.CDLL('./k.so')
def kernel(x):
    lib.twice(x)
"""
BY_CFFI = """
import cffi
ffi = cffi.FFI()
ffi.cdef('void twice(const float*, float*, long);')
lib = ffi.verify('''CODE''')
def kernel(x):
    lib.twice(x)
""".replace("CODE", C)
BY_LOAD = """
import torch.utils.cpp_extension as e
CODE = '''#include <torch/extension.h>
at::Tensor twice(at::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
'''
open('k.cpp', 'w').write(CODE)
m = e.load('k', ['k.cpp'])
def kernel(x):
    return m.twice(x)
"""
BY_TORCH_LIBRARY = """
import torch
import torch.utils.cpp_extension as e
e.load('k', ['k.cpp'], is_python_module=False)
def kernel(x):
    return torch.ops.own.twice(x)
"""
REGISTERED = """
#include <torch/library.h>
at::Tensor t(at::Tensor x) { return x; }
TORCH_LIBRARY(own, m) { m.def("twice(Tensor x) -> Tensor"); m.impl("twice", t); }
"""
BY_TEXT = "import ctypes\nlib = ctypes.CDLL('k.so')\nf = getattr(lib, 'twice')\ndef kernel(x):\n    f(x)\n"
BY_NAME = "import ctypes\nlib = ctypes.CDLL('k.so')\ndef kernel(x):\n    lib.twice(x)\n"
WAYS = {
    "plain C by ctypes": {"kernel.py": BY_CTYPES, "kernel.c": "static float half(float x) { return x / 2; }\n" + C},
    "C in a string by cffi": {"kernel.py": BY_CFFI},
    "load() of a text that the file writes": {"kernel.py": BY_LOAD},
    "TORCH_LIBRARY": {"kernel.py": BY_TORCH_LIBRARY, "k.cpp": REGISTERED},
    "a function by its text": {"kernel.py": BY_TEXT, "k.cpp": 'extern "C" {\n' + C + "}\n"},
    "linkage with an attribute": {
        "kernel.py": BY_NAME,
        "k.cpp": 'extern "C" __attribute__((visibility("default")))\n' + C,
    },
}


@pytest.mark.parametrize("what", WAYS)
def test_honest_ways_to_build_are_not_refused(what: str) -> None:
    found = analysed(WAYS[what])
    assert [f for f in found.findings if f.fatal] == [] and not found.refused and not found.errors


def test_mutated_sources_never_break_the_analysis() -> None:
    assert mutated(60, seed=5) < 5


def mutated(count: int, seed: int) -> float:
    """Analyses ``count`` mutations of the zoo's sources, each of which must be answered; CPU seconds of the longest.

    ``python -c "from tests.verifier.test_static_bounded import mutated; print(mutated(10_000, 1))"`` looks longer.
    """
    draw = random.Random(seed)
    texts = [p.read_text() for p in sorted(ZOO.glob("*/*.py"))]
    longest = 0.0
    for _ in range(count):
        text = draw.choice(texts)
        for _ in range(draw.randrange(1, 5)):
            text = draw.choice((_cut, _doubled, _replaced, _nested, _repeated, _quoted))(text, draw)[:4_000_000]
        files = {"kernel.py": ENTRY} | {draw.choice(("kernel.py", "kernel.py", "kernel.cpp")): text}
        start = time.process_time()
        assert isinstance(analysed(files, draw.choice(("cpp", "triton", "cuda_c"))), Analysis)
        longest = max(longest, time.process_time() - start)
    return longest


def _cut(text: str, draw: random.Random) -> str:
    first, last = sorted(draw.randrange(len(text) + 1) for _ in range(2))
    return text[:first] + text[last:]


def _doubled(text: str, draw: random.Random) -> str:
    first, last = sorted(draw.randrange(len(text) + 1) for _ in range(2))
    return text[:last] + text[first:last] * draw.randrange(1, 20) + text[last:]


def _replaced(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text) + 1)
    pieces = (
        "\0",
        "\udc80",
        "\r",
        "\f",
        "\x1b[2J",
        "'''",
        '"',
        "/*",
        "\\",
        "\u2028",
        "# coding: utf-7\n",
        "\U0001d499",
    )
    return text[:at] + draw.choice(pieces) + text[at + draw.randrange(3) :]


def _nested(text: str, draw: random.Random) -> str:
    at, depth = draw.randrange(len(text) + 1), draw.choice((10, 100, 1000, 20_000))
    first, last = draw.choice((("(", ")"), ("[", "]"), ("f(", ")"), ("-", ""), ("not ", ""), ("lambda: ", "")))
    return text[:at] + first * depth + last * depth + text[at:]


def _repeated(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text) + 1)
    piece = draw.choice(("/*a", '\\"', "x.", "a+", "\n", " ", "{", 'extern "C" ', "#define a(b) ", "f'{x}'"))
    return text[:at] + piece * draw.choice((10, 1000, 50_000)) + text[at:]


def _quoted(text: str, draw: random.Random) -> str:
    return f"CODE = {('#include <x>' + text)!r}\n" + text
