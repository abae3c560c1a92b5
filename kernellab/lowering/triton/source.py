"""Sketch -> Triton: one file that defines a ``@triton.jit`` function for each sketch and ``kernel(*args)``."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.errors import LoweringError
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.gluon import Asynchronous, Refused, asynchronous
from kernellab.lowering.gluon import names as gluon_names
from kernellab.lowering.kernel_cache import remembered
from kernellab.lowering.library_call import own_kernels
from kernellab.lowering.triton.host import LAUNCH_OPTIONS, WIDE_ELEMENTS, Host
from kernellab.lowering.triton.kernel import KernelWriter, Written
from kernellab.lowering.triton.text import join_comments
from kernellab.lowering.triton.text import library as library_text
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import Loop, Program
from kernellab.sketch.program.walk import statements
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
    own, reasons = _asynchronous(program, binding, known, wide, target)
    host = Host(program, binding, kernels, "INDEX" if wide == "INDEX" else "", own)
    host_text = host.write()

    head = f'"""{", ".join(k.name for k in program.kernels)}: written from a kernellab sketch.{_routes(reasons)}"""\n\n'
    head += ("import functools\nimport warnings\n\n" if own else "") + "import torch\nimport triton\n"
    head += (
        "import triton.language as tl\n\n" + (f"{gluon_names.IMPORTS}\n\n{gluon_names.HELPERS}" if own else "") + "\n"
    )
    named = frozenset().union(*(written.used for written in kernels))
    named |= frozenset().union(*(f.used() for a in own.values() for f in a.functions))
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
        if kernel.name in own:
            text += "if gluon is not None:\n\n"
            for start, part in own[kernel.name].text():
                text += start
                body, lines = join_comments(part, program.text.splitlines(), text.count("\n") + 1)
                text += body + "\n"
                mapped.update(lines)
            text += "\n"
    return Source(
        dsl="triton", files={_FILE: text + host_text}, entry_file=_FILE, entry="kernel", line_map={_FILE: mapped}
    )


def why_not_asynchronous(program: Program, binding: Binding, target: Target) -> dict[str, str]:
    """Kernel -> why it has no form in Gluon on ``target``; "" where it has one."""
    known = _known(program, binding)
    _, reasons = _asynchronous(program, binding, known, _wide(program, known), target)
    return {k.name: reasons.get(k.name, "no loop is hinted copy_engine") for k in own_kernels(program)}


def _asynchronous(
    program: Program, binding: Binding, known: dict[str, int], wide: str, target: Target
) -> tuple[dict[str, Asynchronous], dict[str, str]]:
    """The kernels that have a form in Gluon, and of each whose hints ask for one why it has none, "" where it has."""
    found: dict[str, Asynchronous] = {}
    reasons: dict[str, str] = {}
    options = {
        name: int(binding.constexpr.get(name) or default) for name, default in (("num_warps", 8), ("num_stages", 3))
    }
    for kernel in own_kernels(program):
        if not any(isinstance(s, Loop) and s.hints.copy_engine for s in statements(kernel.body)):
            continue
        try:
            found[kernel.name] = asynchronous(program, kernel, known, wide, target, options)
            reasons[kernel.name] = ""
        except Refused as refused:
            reasons[kernel.name] = str(refused)
    return found, reasons


def _routes(reasons: Mapping[str, str]) -> str:
    """A line for each kernel whose hints ask for Gluon."""
    lines = [
        f"\n\n{name}: Triton, since {why}." if why
        else f"\n\n{name}: Gluon, and Triton where the copy engine refuses a tensor or Gluon is missing."
        for name, why in reasons.items()
    ]  # fmt: skip
    return "".join(lines) + ("\n" if lines else "")


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
