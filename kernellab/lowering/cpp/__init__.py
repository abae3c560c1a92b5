"""Sketch -> C++: kernel.cpp (OpenMP, loops that vectorise), its headers, and kernel.py that builds and calls it."""

from __future__ import annotations

from importlib.resources import files

from kernellab.lowering.c_family.helpers import defined_helpers, used_helpers
from kernellab.lowering.c_family.names import function, safe
from kernellab.lowering.c_family.types import MEMORY_TYPE
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.cpp.host import python_source
from kernellab.lowering.cpp.kernel import KernelEmitter
from kernellab.lowering.cpp.stages import Stage, stages
from kernellab.lowering.library_call import library_calls, library_made, own_kernels
from kernellab.lowering.tunables import choices_text
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import DType, Program
from kernellab.target import Target

HEADERS = ("kl_math.h", "kl_tile.h")
#: products over windows, where a kernel has some
WINDOWS = "kl_window.h"
#: rows in order, where a kernel sorts
SORTS = "kl_sort.h"
#: rows of f16 and bf16
HALVES = "kl_half.h"
#: functions that few kernels need
SPECIAL = "kl_special.h"


def lower_cpp(program: Program, binding: Binding, target: Target) -> Source:
    """C++ that computes what ``program`` means.

    Raises:
        LoweringError: a statement that has no C++ form here, with its line.
    """
    extents = {c.name for c in program.constexprs if c.is_extent}
    runtime = tuple(n for n in binding.scalars if n not in extents)
    consts = {n: int(v) for n, v in binding.constexpr.items() if n not in runtime and float(v).is_integer()}
    consts |= binding.fixed
    writer = Writer(program.text, (n for k in own_kernels(program) for n in index_lines(program, k)))
    calls = library_calls(program)
    emitters = [KernelEmitter(program, k, consts, runtime) for k in own_kernels(program)]
    halves = any(t.dtype in (DType.F16, DType.BF16) for t in program.tensors)
    special = bool(used_helpers(program) & defined_helpers(_header(SPECIAL)))
    _preamble(writer, program, binding, runtime, [h for h, used in ((HALVES, halves), (SPECIAL, special)) if used])
    for emitter in emitters:
        emitter.emit(writer)
        writer()
    symbols = [s for s in program.symbols if s not in consts]
    exports = stages(program, emitters, runtime, calls, set(library_made(calls)))
    for stage in exports:
        _export(writer, program, stage, symbols)
    wanted: tuple[str, ...] = HEADERS
    if any(e.gathers for e in emitters):
        wanted = (*HEADERS, WINDOWS)
        writer.lines[0] = f'#include "{WINDOWS}"'
    if any(e.sorts for e in emitters):
        wanted = (*wanted, SORTS)
        writer.lines[1] = f'#include "{SORTS}"'
    if halves:
        wanted = (*wanted, HALVES)
    if special:
        wanted = (*wanted, SPECIAL)
    headers = {name: _header(name) for name in wanted}
    return Source(
        dsl="cpp",
        files={
            "kernel.py": python_source(program, binding, exports, symbols, wanted[len(HEADERS) :]),
            "kernel.cpp": writer.text,
            **headers,
        },
        line_map={"kernel.cpp": writer.line_map},
    )


def _header(name: str) -> str:
    return (files("kernellab.lowering.cpp") / "headers" / name).read_text()


def _preamble(w: Writer, program: Program, binding: Binding, runtime: tuple[str, ...], more: list[str]) -> None:
    w('#include "kl_tile.h"')
    w()
    for header in more:
        w(f'#include "{header}"')
        w()
    for constexpr in program.constexprs:
        if constexpr.name in runtime:
            continue
        value = binding.constexpr[constexpr.name]
        kind = "int64_t" if constexpr.is_extent or float(value).is_integer() else "double"
        text = str(int(value)) if kind == "int64_t" else repr(float(value))
        name, choices = safe(constexpr.name), choices_text(constexpr, binding)
        w(f"constexpr {kind} {name} = {text};" + (f"  // {choices}" if choices else ""))
        if constexpr.name in binding.held:
            w(f'static_assert({name} == {text}, "lower the sketch again for another {name}");')
    for symbol in program.symbols:
        if symbol in binding.fixed:
            w(f"constexpr int64_t {safe(symbol)} = {binding.fixed[symbol]};")
    w()


def _export(w: Writer, program: Program, stage: Stage, symbols: list[str]) -> None:
    """The function that kernel.py calls with addresses, sizes and numbers in this order."""
    order = [*stage.tensors, *symbols, *stage.numbers]
    with w.block(f"KL_EXPORT({stage.name})", said=False):
        for n, name in enumerate(order):
            if n < len(stage.tensors):
                w(f"auto* const {safe(name)} = args.pointer<{MEMORY_TYPE[program.tensor(name).dtype]}>({n});")
            elif name in symbols:
                w(f"const int64_t {safe(name)} = args.integer({n});")
            else:
                w(f"const double {safe(name)} = args.number({n});")
        for name in stage.fresh:
            count = " * ".join(map(stage.emitters[0].ints.operand, program.tensor(name).shape)) or "1"
            w(f"kl::advise_fresh({safe(name)}, {count} * int64_t(sizeof(*{safe(name)})));")
        for emitter in stage.emitters:
            arguments = [*map(safe, emitter.tensors), *map(safe, emitter.symbols), *map(safe, emitter.numbers)]
            w(f"{function(program, emitter.kernel)}({', '.join(arguments)});")
