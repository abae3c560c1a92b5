"""Triton in a dry call: each launch is compiled for the request's architecture and recorded.

Triton compiles for a named target without a GPU; only its driver object needs one, and a stand-in replaces it. Checked
with Triton 3.4 to 3.9."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernellab.lens.dry.recorder import Recorder
from kernellab.lens.dry.records import Built, Request
from kernellab.lens.dry.tools import disassembled, tool
from kernellab.lens.read import ptx
from kernellab.lens.read.sass import instructions

#: the texts of a compiled kernel by stage, in order
TEXTS = ("ttir", "ttgir", "llir", "ptx")
_WARP = 32
_SECONDS = 60


class _Driver:
    """The part of a driver that Triton uses before it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]

        return GPUTarget("cuda", self.capability, _WARP)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def is_active(self) -> bool:
        return True


@contextlib.contextmanager
def compiled(request: Request, recorder: Recorder) -> Iterator[None]:
    """While active, a launch of a ``@triton.jit`` function compiles, and adds to ``recorder``."""
    try:
        from triton.runtime import autotuner, driver, jit  # type: ignore[import-untyped]
    except ImportError:
        yield
        return
    driver.set_active(_Driver(request.capability))
    run, tune = jit.JITFunction.run, autotuner.Autotuner.run

    def launch(self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> Any:
        compiled_kernel = run(self, *args, grid=grid, warmup=True, **options)
        names = dict(zip(self.arg_names, args, strict=False))
        places = grid({**names, **options}) if callable(grid) else grid
        meta = compiled_kernel.metadata
        texts = {name: _text(compiled_kernel.asm[name]) for name in TEXTS if name in compiled_kernel.asm}
        grid_sizes = [int(n) for n in places]
        recorder.calls.append([meta.name, three(grid_sizes)])
        recorder.add(
            Built(
                name=meta.name, texts=texts, grid=grid_sizes, block=meta.num_warps * _WARP,
                shared=int(meta.shared), stages=int(getattr(meta, "num_stages", 0) or 0),
            ),
            b"" if request.watched else _with_true_lines(compiled_kernel, request.capability),
        )  # fmt: skip
        if request.host:
            _host_code(compiled_kernel)
        return compiled_kernel

    def choose(self: Any, *args: Any, **options: Any) -> Any:
        if len(self.configs) > 1:
            many = len(self.configs)
            recorder.note(
                f"{self.base_fn.__name__} has {many} configurations; shown is the first, for only a GPU can choose."
            )
            self.configs = self.configs[:1]
        return tune(self, *args, **options)

    jit.JITFunction.run, autotuner.Autotuner.run = launch, choose
    try:
        yield
    finally:
        jit.JITFunction.run, autotuner.Autotuner.run = run, tune


def three(grid: list[int]) -> list[int]:
    """Return a grid with all three sizes."""
    return [*grid, 1, 1][:3]


def _host_code(compiled_kernel: Any) -> None:
    """Build the kernel's launcher into Triton's cache, which takes a C compiler a second or two."""
    # other versions use another name, and a machine may have no compiler or driver: the launcher is then built where it
    # is used
    with contextlib.suppress(Exception):
        from triton.backends.nvidia import driver  # type: ignore[import-untyped]

        driver.CudaUtils()
        driver.CudaLauncher(compiled_kernel.src, compiled_kernel.metadata)


def _with_true_lines(compiled_kernel: Any, capability: int) -> bytes:
    """Return the cubin with right lines: LLVM assigns those of an inline assembly (each load and store is one) to lines
    below, so the PTX is assembled again without these marks. If the instructions differ, return the cubin unchanged."""
    cubin = bytes(compiled_kernel.asm.get("cubin", b""))
    if not cubin or "ptx" not in compiled_kernel.asm:
        return cubin
    text = _text(compiled_kernel.asm["ptx"])
    target = re.search(r"^\.target\s+(sm_\w+)", text, re.MULTILINE)
    expected = instructions(disassembled(cubin))
    flags = [] if getattr(compiled_kernel.metadata, "enable_fp_fusion", True) else ["--fmad=false"]
    for assembler in _assemblers(capability):
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "a.ptx", Path(folder) / "a.cubin"
            source.write_text(ptx.relined(text), encoding="utf-8")
            command = [assembler, "-lineinfo", *flags, f"--gpu-name={target[1] if target else f'sm_{capability}'}"]
            done = subprocess.run(
                [*command, str(source), "-o", str(out)], capture_output=True, timeout=_SECONDS, check=False
            )
            again = out.read_bytes() if done.returncode == 0 else b""
        if again and instructions(disassembled(again)) == expected:
            return again
    return cubin


def _assemblers(capability: int) -> list[str]:
    """Return the ptxas that Triton uses for this architecture, then others."""
    assemblers = []
    with contextlib.suppress(Exception):
        from triton.backends.nvidia.compiler import get_ptxas  # type: ignore[import-untyped]

        assemblers.append(str(get_ptxas(capability).path))
    assemblers += [str(path) for name in ("ptxas", "ptxas-blackwell") if (path := tool(name))]
    return list(dict.fromkeys(assemblers))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
