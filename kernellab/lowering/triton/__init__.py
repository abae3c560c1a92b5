"""Sketch -> Triton: one file that defines a ``@triton.jit`` function for each sketch and ``kernel(*args)``."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.errors import LoweringError
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.kernel_cache import remembered
from kernellab.lowering.library_call import own_kernels
from kernellab.lowering.triton.host import LAUNCH_OPTIONS, WIDE_ELEMENTS, Host
from kernellab.lowering.triton.kernel import KernelWriter, Written
from kernellab.lowering.triton.text import join_comments
from kernellab.lowering.triton.text import library as library_text
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Program
from kernellab.target import Backend, Target

_FILE = "kernel.py"


def lower_triton(program: Program, binding: Binding, target: Target) -> Source:
    """``kernel.py`` (needs torch and triton only) that computes what ``program`` means.

    The kernels run on Triton 3.6 and later, on a GPU and in Triton's interpreter; for the interpreter some library
    functions have other bodies, since it treats NaN, bfloat16 and custom combines differently.

    Raises:
        LoweringError: a statement has no Triton form, with the reason.
    """
    interpreter = target.backend is not Backend.CUDA
    known = _known(program, binding)
    wide = _wide(program, known)
    kernels = []
    for kernel in own_kernels(program):
        kernels.append(_write(program, kernel.name, known, wide, interpreter=interpreter))
    host = Host(program, binding, kernels, "INDEX" if wide == "INDEX" else "")
    host_text = host.write()

    head = f'"""{", ".join(k.name for k in program.kernels)}: written from a kernellab sketch."""\n\n'
    head += "import torch\nimport triton\nimport triton.language as tl\n\n\n"
    named = frozenset().union(*(written.used for written in kernels))
    helpers = library_text(named, interpreter=interpreter)
    text = head + (helpers + "\n\n" if helpers else "")
    mapped: dict[int, int] = {}
    for kernel, written in zip(own_kernels(program), kernels, strict=True):
        signature = ", ".join(map(str, host.kernel_parameters(written)))
        text += f"@triton.jit\ndef {written.name}({signature}):\n"
        first, quiet = text.count("\n") + 1, index_lines(program, kernel)
        body, lines = join_comments(written.lines, program.text.splitlines(), first, quiet)
        text += body + "\n\n"
        mapped.update(lines)
    return Source(
        dsl="triton", files={_FILE: text + host_text}, entry_file=_FILE, entry="kernel", line_map={_FILE: mapped}
    )


def _write(program: Program, name: str, known: dict[str, int], wide: str, *, interpreter: bool) -> Written:
    kernel = next(k for k in program.kernels if k.name == name)

    def written(consts: Mapping[str, int]) -> Written:
        writer = KernelWriter(program, kernel, consts, wide, interpreter=interpreter)
        try:
            return writer.write()
        except LoweringError as error:
            line = writer.out.at
            if not line or error.line:
                raise
            raise LoweringError(error.message, error.remedy, line) from error

    return remembered(program, ("triton", name, wide, interpreter), known, written)


def _known(program: Program, binding: Binding) -> dict[str, int]:
    """Integers whose value is fixed when lowering: constexprs, and symbols of a static task."""
    known = {name: value for name, value in binding.fixed.items() if name in program.symbols}
    for constexpr in program.constexprs:
        value = binding.constexpr.get(constexpr.name, constexpr.value)
        if constexpr.name in LAUNCH_OPTIONS or (constexpr.name in binding.scalars and not constexpr.is_extent):
            continue
        if value is None:
            raise LoweringError(
                f"The constexpr {constexpr.name!r} has no value.", f"Set it: {constexpr.name} = ... in the sketch."
            )
        if isinstance(value, int) or (float(value).is_integer() and constexpr.is_extent):
            known[constexpr.name] = int(value)
    return known


def _wide(program: Program, known: dict[str, int]) -> str:
    """The dtype that index scalars are cast to: "" (i32 is enough), tl.int64, or INDEX when the host decides."""
    largest = 0
    for tensor in program.tensors:
        total = 1
        for extent in tensor.shape:
            if not extent.names() <= known.keys():
                return "INDEX"
            total *= extent.evaluate(known)
        largest = max(largest, total)
    return "tl.int64" if largest >= WIDE_ELEMENTS else ""


__all__ = ["lower_triton"]
