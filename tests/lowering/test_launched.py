"""Launches by what Triton compiled before are the launches that Triton makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kernellab.lowering.triton.launched import HELPERS, MAPS
from kernellab.records import Source
from kernellab.verifier.static.check import check

_HEAD = "import functools\nimport operator\n\nimport torch\nimport triton\nimport triton.language as tl\n\n\n"
_KERNEL = """

@kl_launched
@triton.jit
def case_kernel(x, y, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, (tl.load(x + at, mask=at < n) * scale).to(y.dtype.element_ty), mask=at < n)


@kl_launched
@triton.jit
def pair_kernel(pair, n):
    tl.store(pair[0] + n, tl.load(pair[1] + n))
"""


def test_each_call_runs_the_kernel_that_triton_chooses_on_the_current_stream_and_is_seen(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(f"{_HEAD}{HELPERS}{_KERNEL}")
    (tmp_path / "helpers.py").write_text(f"{_HEAD}{HELPERS}\n\n{MAPS}")
    env = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    script = Path(__file__).with_name("launches.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_verifier_finds_nothing_in_them() -> None:
    text = f"{_HEAD}{HELPERS}\n\n{MAPS}{_KERNEL}\n\ndef kernel(x):\n    case_kernel[(1,)](x, x, 1, 1.0, 32)\n"
    source = Source(dsl="triton", files={"kernel.py": text}, entry_file="kernel.py", entry="kernel", line_map={})
    assert not check(source).findings
