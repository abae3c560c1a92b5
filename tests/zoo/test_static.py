"""The static stage: sabotage is found under any name that constants make; honest code is never fatal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.records import Source
from kernellab.verifier.static import check as static

from .exhibit import exhibits

ENTRY = "\ndef kernel(x):\n    return x\n"

SABOTAGE = {
    "a name in pieces": ("import os\ngetattr(os, '_ex' + 'it')(0)", "process"),
    "a name in a list": ("import os\nn = ''.join(['_', 'exit'])\ngetattr(os, n)(0)", "process"),
    "a name from codes": ("import os\ngetattr(os, ''.join(map(chr, [95, 101, 120, 105, 116])))(0)", "process"),
    "a name backwards": ("import os\ngetattr(os, 'tixe_'[::-1])(0)", "process"),
    "an item of vars": ("import os\nvars(os)['_exit'](0)", "process"),
    "an item of __dict__": ("import os\nos.__dict__['_exit'](0)", "process"),
    "an alias of an alias": ("import os as system\nleave = system._exit\ngo = leave\ngo(0)", "process"),
    "an import inside": ("def f():\n    from os import _exit as e\n    e(0)", "process"),
    "__import__": ("__import__('o' + 's')._exit(0)", "process"),
    "importlib by alias": ("from importlib import import_module as im\nim('gc').get_objects()", "introspection"),
    "a module of sys.modules": ("import sys\nt = sys.modules['to' + 'rch']\nt.allclose = None", "patch"),
    "sys.modules.get": ("import sys\nsys.modules.get('torch').allclose = None", "patch"),
    "setattr in a loop": ("import torch\nfor n in ('a', 'b'):\n    setattr(torch.Tensor, n, None)", "patch"),
    "type.__setattr__": ("import torch\ntype.__setattr__(torch.Tensor, 'sum', None)", "patch"),
    "mock": ("from unittest import mock\nmock.patch('torch.allclose').start()", "patch"),
    "builtins": ("__builtins__['abs'] = None", "patch"),
    "a frame by getattr": ("def f(e):\n    return getattr(e, 'tb_fr' + 'ame')", "introspection"),
    "a generator's frame": ("def f(g):\n    return g.gi_frame", "introspection"),
    "a path in pieces": ("from pathlib import Path\nPath('/proc') / 'self' / 'mem'", "process-memory"),
    "a path by f-string": ("import os\nopen(f'/proc/{os.getppid()}/mem')", "process-memory"),
    "decoded code by a name": ("import zlib\nt = zlib.decompress(b'')\ncode = t.decode()\nexec(code)", "hidden-code"),
    "pip through a shell": ("import os\nos.system('pip install fast')", "network"),
    "the product of another library": (
        "import numpy as np\ndef kernel(a):\n    return g(a)\ndef g(a):\n    return np.dot(a, a)",
        "library-call",
    ),
    "events of the interpreter": ("import sys\nm = sys.monitoring\nm.use_tool_id(3, 'x')", "introspection"),
    "text that turns": ("# \u202e flow", "hidden-code"),
    "another encoding": ("# coding: unicode_escape\nimport os", "hidden-code"),
    "another encoding on line two": ("#!/usr/bin/python\n# vim: set fileencoding=utf-7 :\nimport os", "hidden-code"),
    "a main block that is run": ("import runpy\nif __name__ == '__main__':\n    import os\n    os._exit(0)", "process"),
    "a main name in pieces": (
        "N = '__ma' + 'in__'\nif __name__ == '__main__':\n    import os\n    os._exit(0)", "process"
    ),
    "a function of the main block that others name": (
        "import os\ndef leave():\n    os._exit(0)\nGO = [leave]\nif __name__ == '__main__':\n    leave()", "process"
    ),
    "the kernel where a main block calls it too": (
        "import os\ndef kernel(x):\n    os._exit(0)\nif __name__ == '__main__':\n    kernel(1)", "process"
    ),
    "a function of the main block by its text": (
        "import os\ndef leave():\n    os._exit(0)\nN = 'leave'\nif __name__ == '__main__':\n    leave()", "process"
    ),
    "a loader of files": (
        "from importlib.machinery import SourceFileLoader\nif __name__ == '__main__':\n    import os\n    os._exit(0)",
        "process",
    ),
    "a name made later of a file of its own": (
        "import os\nimport sys\nimport kernel_source as me\ndef leave():\n    os._exit(0)\n"
        "getattr(me, sys.argv[0])()\nif __name__ == '__main__':\n    leave()", "process",
    ),
    "an answer kept by a digest and copied": (
        "import hashlib\nK = {}\ndef kernel(x):\n    key = hashlib.sha256(x.numpy().tobytes()).digest()\n"
        "    return K[key].clone()", "result-cache",
    ),
    "a function of the main block by a name that is made": (
        "import os\nimport kernel as me\ndef leave():\n    os._exit(0)\ngetattr(me, 'lea' + 've', None)()\n"
        "if __name__ == '__main__':\n    leave()", "process"
    ),
    "BLAS by ctypes": ("import ctypes\nf = ctypes.CDLL('libopenblas.so').cblas_sgemm", "library-call"),
}  # fmt: skip

HONEST = {
    "try round an import": "try:\n    import cpuinfo\nexcept ImportError:\n    cpuinfo = None",
    "a fallback that does not compute": "try:\n    block = 1\nexcept ValueError:\n    block = 2",
    "strides of a context": "class F:\n    def forward(ctx, x):\n        ctx.stride, ctx.shape = x.stride(), x.shape",
    "fields of its own": "class C:\n    def __init__(self):\n        self.data_ptr = 1\n        self.shape = (2,)",
    "a frozen dataclass": "class C:\n    def __init__(self):\n        object.__setattr__(self, 'shape', 1)",
    "settings": "import torch._inductor.config\ntorch._inductor.config.max_autotune = True",
    "paths and output": "import sys\nsys.path.insert(0, '.')\nsys.path = sys.path + ['x']",
    "environment": "import os\nos.environ['OMP_PROC_BIND'] = 'true'",
    "generated code": "T = 'def f_{n}():\\n    return {n}\\n'\nfor n in range(3):\n    exec(T.format(n=n))",
    "sizes by NumPy": "import numpy as np\ndef f(shape):\n    return int(np.prod(shape))",
    "its own benchmark": "import torch\nif __name__ == '__main__':\n    print(torch.compile(lambda x: x)(1))",
    "functions of its own benchmark": (
        "import torch\ndef _reference(x):\n    return torch.compile(x)\ndef _test():\n    torch.set_num_threads(1)\n"
        "    _reference(1)\nif __name__ == '__main__':\n    _test()"
    ),
    "a mark of another language's direction": "# \u200f \u05d0",
    "the usual encodings": "# -*- coding: utf-8 -*-\nNAME = 'a'",
    "weights packed by their digest": (
        "import hashlib\nP = {}\ndef packed(w):\n    key = hashlib.sha256(w.numpy().tobytes()).digest()\n"
        "    if key not in P:\n        P[key] = w.t().contiguous()\n    return P[key]"
    ),
    "weights packed by their digest for a kernel": (
        "import hashlib\nP = {}\ndef kernel(x, w):\n    key = hashlib.sha256(w.numpy().tobytes()).digest()\n"
        "    P.setdefault(key, w.t().contiguous())\n    return run(x, P[key])"
    ),
    "a table by another library": "import numpy as np\nTABLE = np.dot(np.ones((2, 3)), np.ones((3, 2)))",
    "a docstring about C++": "'''For comparison:\n#include <cblas.h>\nvoid f() { cblas_sgemm(1, 2); }\n'''",
    "its own function of BLAS's name by ctypes": (
        "import ctypes\nC = 'extern \"C\" void cblas_sgemm(float* c) { *c = 1; }'\n"
        "f = ctypes.CDLL('k.so').cblas_sgemm"
    ),
    "a table of many numbers": f"T = [{', '.join(map(str, range(50_000)))}]",
    "threads and processes": "import subprocess\nimport threading\nsubprocess.run(['g++', '--version'])",
    "a hash of its source": "import hashlib\nname = hashlib.sha256(open(__file__, 'rb').read()).hexdigest()",
    "workspace by shape": "W = {}\ndef f(x):\n    W.setdefault(x.shape, x.new_empty(3))\n    return W[x.shape]",
    "words about cheats": "'''Never calls os._exit, never opens /proc/self/mem, no cublasSgemm.'''",
    "ctypes signatures": "import ctypes\nlib = ctypes.CDLL(None)\nlib.free.argtypes = [ctypes.c_void_p]",
    "a cache of compiled kernels": "K = {}\ndef get(src):\n    return K.setdefault(hash(src), 1) or K[hash(src)]",
}  # fmt: skip

NATIVE_SABOTAGE = {
    "memory": ('auto f = fopen("/proc/self/mem", "r+");', "process-memory"),
    "a debugger": ("ptrace(PTRACE_ATTACH, getppid(), 0, 0);", "process-memory"),
    "BLAS": ("cblas_sgemm(CblasRowMajor, 1, 2);", "library-call"),
    "cuBLAS": ("cublasGemmEx(h);", "library-call"),
    "BLAS beside a function of a longer name": ("void sgemm_mine(); void g() { sgemm_(1, 2); }", "library-call"),
    "after a comment's line that is continued": ("// one \\\n two\ncublasGemmEx(h);", "library-call"),
    "a name that is continued": ("cublas\\\nGemmEx(h);", "library-call"),
    "after what is not compiled": ("#if 0\n#if X\n#endif\n#else\ncublasGemmEx(h);\n#endif", "library-call"),
    "a condition in a raw string": ('auto t = R"(\n#if 0\n)"; cublasGemmEx(h);', "library-call"),
    "memcpy for all": ('; extern "C" void* memcpy(void* d, const void* s, size_t n) { return d; }', "patch"),
    "a team for all": (";} int omp_get_max_threads() { return 1; }", "patch"),
    "a detour": ("mprotect(p, 4096, 7); memcpy((void*)clock_gettime, code, 3);", "patch"),
}  # fmt: skip

NATIVE_HONEST = {
    "comments": "// faster than cublasSgemm, see /proc/self/mem\n/* ptrace( */ int f() { return 0; }",
    "an error check": "#define CHECK(e) if (e) { fprintf(stderr, \"%d\", e); exit(1); }\n",
    "copies, and one of its own": (
        "static void* memcpy(void* d, const void* s, size_t n) { return d; }\n"
        "void f(char* d, char* s) { if (memcmp(d, s, 4)) { memcpy(d, s, 4); } else free(d); }"
    ),
    "an own product of the usual name": "void sgemm_blocked(float* c) {}\nvoid f(float* c) { sgemm_blocked(c); }",
    "an own product of BLAS's very name": "void cblas_sgemm(float* c) {}\nvoid f(float* c) { cblas_sgemm(c); }",
    "what is not compiled": (
        "#if 0\n#ifdef X\ncublasSgemm(1);\n#else\nptrace(1);\n#endif\n#endif\nint f() { return 0; }"
    ),
    "a comment that is continued": "// faster than \\\ncublasSgemm(1)\nint f() { return 0; }",
    "a raw string": 'auto t = R"x(/* " )" )x"; int f() { return 0; } // ptrace(1)',
    "threads joined": "std::thread t(f); t.join();",
    "a stream": "cudaStream_t s; cudaStreamCreate(&s);",
    "allocation by the framework": "auto y = at::empty_like(x); auto z = torch::empty({1});",
}  # fmt: skip


def _fatal(text: str, name: str = "kernel.py") -> list[str]:
    files = {"kernel.py": ENTRY} | {name: text}
    return [f.rule for f in static.check(Source(dsl="cpp", files=files)).findings if f.fatal]


@pytest.mark.parametrize("what", SABOTAGE)
def test_sabotage_is_fatal_by_any_name(what: str) -> None:
    code, rule = SABOTAGE[what]
    assert rule in _fatal(code + ENTRY)


@pytest.mark.parametrize("what", HONEST)
def test_honest_python_is_not_fatal(what: str) -> None:
    assert _fatal(HONEST[what] + ENTRY) == []


@pytest.mark.parametrize("what", NATIVE_SABOTAGE)
def test_sabotage_in_native_code_is_fatal_in_files_and_strings(what: str) -> None:
    code, rule = NATIVE_SABOTAGE[what]
    assert rule in _fatal(code, "kernel.cpp")
    assert rule in _fatal(f"CODE = r'''\n#include <x>\nvoid f() {{ {code} }}\n'''" + ENTRY)


@pytest.mark.parametrize("what", NATIVE_HONEST)
def test_honest_native_code_is_not_fatal(what: str) -> None:
    assert _fatal(NATIVE_HONEST[what], "kernel.cu") == []


def test_headers_of_lowered_kernels_have_no_flag_unless_they_were_edited() -> None:
    header = (Path(__file__).parents[2] / "kernellab/lowering/cpp/headers/kl_tile.h").read_text()

    def rules(text: str) -> set[str]:
        files = {"kernel.py": ENTRY, "kl_tile.h": text}
        return {f.rule for f in static.check(Source(dsl="cpp", files=files)).findings}

    assert rules(header) == set()
    assert "hidden-code" in rules(header + "// edited\n")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("float f(float* x, long i, long s) { return x[(int)(i * s) + 1]; }", "narrow-offsets"),
        ('int f() { return __builtin_cpu_supports("avx2"); }', "processor"),
        ('void f() { setenv("OMP_NUM_THREADS", "1", 1); }', "environment"),
    ],
)
def test_what_holds_for_some_sizes_processors_or_programs_is_flagged(text: str, rule: str) -> None:
    found = static.check(Source(dsl="cpp", files={"kernel.py": ENTRY, "kernel.cpp": text}))
    assert [f.rule for f in found.findings] == [rule] and not found.fatal


@pytest.mark.parametrize("name", [e.name for e in exhibits() if not e.lowered])
def test_the_zoo_is_stopped_by_rules_exactly_where_its_cards_say(name: str) -> None:
    exhibit = next(e for e in exhibits() if e.name == name)
    card, fatal = exhibit.card, static.check(Source(dsl="cpp", files=dict(exhibit.files))).fatal
    if card.expect is not None and card.expect.value == "static" and card.signature not in ("no-kernel", "no-launch"):
        assert fatal is not None and fatal.rule == card.signature
    else:
        assert fatal is None


AUTOTUNED = (
    "import triton\nimport triton.language as tl\n"
    "@triton.autotune([triton.Config({{'B': 256}}{config}), triton.Config({{'B': 1024}})], key=['n']{more})\n"
    "@triton.jit\ndef k(p, g, y, n, B: tl.constexpr):\n    o = tl.program_id(0) * B + tl.arange(0, B)\n"
    "    m = o < n\n    {body}\n"
)
UPDATE = "at = p + o\n    tl.store(at, tl.load(p + o, mask=m) - tl.load(g + o, mask=m), mask=m)"


@pytest.mark.parametrize(
    ("body", "more", "config", "pointer"),
    [
        (UPDATE, "", "", "p"), ("tl.atomic_add(y + o, tl.load(p + o, mask=m), mask=m)", "", "", "y"),
        (UPDATE, ", restore_value=None, reset_to_zero=[]", "", "p"),
        (UPDATE, ", restore_value=['p']", "", ""), (UPDATE, "", ", pre_hook=clear", ""), (UPDATE, ", **MORE", "", ""),
        ("tl.store(y + o, tl.load(p + o, mask=m) + tl.load(g + o, mask=m), mask=m)", "", "", ""),
        ("tl.store(y + o, o, mask=m)\n    tl.store(y + o, tl.load(y + o, mask=m) + 1, mask=m)", "", "", ""),
        ("tl.atomic_max(y + o, tl.load(p + o, mask=m), mask=m)", "", "", ""),
    ],
)  # fmt: skip
def test_an_autotuned_kernel_that_updates_in_place_is_flagged(body: str, more: str, config: str, pointer: str) -> None:
    text = AUTOTUNED.format(body=body, more=more, config=config) + ENTRY
    found = static.check(Source(dsl="triton", files={"kernel.py": text})).findings
    assert [f.message for f in found if f.rule == "autotune"] == (
        [f"measures k, which updates {pointer} in place, without restore_value or reset_to_zero"] if pointer else []
    )


def test_one_configuration_is_not_measured() -> None:
    text = AUTOTUNED.format(body=UPDATE, more="", config="").replace(", triton.Config({'B': 1024})", "") + ENTRY
    assert "1024" not in text
    found = static.check(Source(dsl="triton", files={"kernel.py": text})).findings
    assert not [f for f in found if f.rule == "autotune"]
