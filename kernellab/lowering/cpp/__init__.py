"""Sketch -> C++: kernel.cpp (OpenMP, loops that vectorise), its headers, and kernel.py that builds and calls it."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.resources import files

import jinja2

from kernellab.lowering.c_family.helpers import defined_helpers, used_helpers
from kernellab.lowering.c_family.names import function, safe
from kernellab.lowering.c_family.types import MEMORY_TYPE
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.comment_only import index_lines
from kernellab.lowering.cpp.kernel import KernelEmitter
from kernellab.lowering.cpp.stages import Stage, stages
from kernellab.lowering.host import HostFunction, Shape
from kernellab.lowering.library_call import library_calls, library_made, own_kernels
from kernellab.lowering.python_text import python_int
from kernellab.lowering.tunables import choices_text
from kernellab.records import Source
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import DType, Program, Tensor, TensorRole
from kernellab.target import Target

HEADERS = ("kl_math.h", "kl_tile.h")
#: products over windows
WINDOWS = "kl_window.h"
#: sorted rows
SORTS = "kl_sort.h"
#: rows of f16 and bf16
HALVES = "kl_half.h"
#: functions that few kernels need
SPECIAL = "kl_special.h"


def lower_cpp(program: Program, binding: Binding, target: Target) -> Source:
    """Return C++ source that computes ``program``.

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
    special = bool(used_helpers(program, "cpp") & defined_helpers(_header(SPECIAL)))
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
    """Write the function that kernel.py calls with addresses, sizes and numbers, in this order."""
    order = [*stage.tensors, *symbols, *stage.numbers]
    with w.block(f"KL_EXPORT({stage.name})", comment=False):
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


# -- the Python half: checks the arguments, computes sizes, makes the outputs and calls the compiled function ----------


@lru_cache
def _template() -> jinja2.Template:
    text = (files("kernellab.lowering.cpp") / "kernel.py.jinja").read_text()
    environment = jinja2.Environment(keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.from_string(text)


def python_source(
    program: Program, binding: Binding, exports: list[Stage], symbols: list[str], headers: tuple[str, ...]
) -> str:
    """Return kernel.py: ``kernel(<parameters>)``, which calls the functions of kernel.cpp and the library in order.

    ``symbols`` are those that each exported function takes; ``headers`` are needed in addition to the two of every
    kernel."""
    host = CppHost(program, binding)
    return _template().render(
        title=" then ".join(k.name for k in program.kernels),
        signature=host.signature(),
        checks=host.checks(),
        sizes=host.extents(),
        shape_checks=host.shape_checks(),
        allocations=host.allocations(),
        exports=[stage.name for stage in exports],
        calls=host.launches(exports, symbols),
        result=host.result(),
        tensors=bool(binding.tensors),
        more_headers="".join(f', "{h}"' for h in headers),
    )


class CppHost(HostFunction):
    """The parts of kernel.py's function, which the template joins."""

    checks_shapes = True

    def __init__(self, program: Program, binding: Binding) -> None:
        super().__init__(program, binding)
        self._taken = set(binding.parameters) | set(program.symbols) | {c.name for c in program.constexprs}
        self._locals = {t.name: self._local_name(t) for t in program.tensors}

    def _local_name(self, tensor: Tensor) -> str:
        position = self.binding.tensors.get(tensor.name)
        if position is not None and tensor.role is TensorRole.IN and position not in self.written():
            return self.binding.parameters[position]
        name = tensor.name
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def local(self, tensor: str) -> str:
        return self._locals[tensor]

    def parameter(self, position: int) -> str:
        return self.binding.parameters[position]

    def int_text(self, expr: IntExpr) -> str:
        return python_int(expr)

    def sizes(self, shape: Shape) -> str:
        inner = ", ".join(map(self.int_text, shape))
        return f"({inner},)" if len(shape) == 1 else f"({inner})"

    def launches(self, exports: list[Stage], symbols: list[str]) -> list[str]:
        """Return calls of the exported functions and of the library, in the sketches' order."""
        self.in_order({stage.first: partial(self._start, stage, symbols) for stage in exports})
        self.put_written()
        return self.lines

    def result(self) -> str:
        """Return the expression that the function returns."""
        results = self.results()
        return results[0] if len(results) == 1 else f"({', '.join(results)})"

    def _start(self, stage: Stage, symbols: list[str]) -> None:
        addresses = [f"{self.local(t)}.data_ptr()" for t in stage.tensors]
        numbers = [self.parameter(self.binding.scalars[n]) for n in stage.numbers]
        self.put(f"_{stage.name}({', '.join([*addresses, *symbols, *numbers])})")

    def checks(self) -> list[str]:
        """Return lines that check the arguments and convert them to tensors."""
        lines = []
        for tensor in self.program.tensors:
            position = self.binding.tensors.get(tensor.name)
            if position is None:
                continue
            dtype = self.binding.dtypes.get(position, tensor.dtype)
            parameter = self.binding.parameters[position]
            copy = ".clone()" if tensor.role is TensorRole.INOUT else ""
            tensor_text = f"_tensor({parameter}, {parameter!r}, torch.{self.parts(position) or dtype.torch_name})"
            if self.parts(position):
                tensor_text = f"torch.view_as_real({tensor_text}.resolve_conj())"
            if position in self.binding.last:
                tensor_text = f"_tensor({parameter}.movedim(1, -1), {parameter!r}, torch.{dtype.torch_name})"
            lines.append(f"{self.local(tensor.name)} = {tensor_text}{copy}")
        return [*lines, *self.constants()]

    def extents(self) -> list[str]:
        """Return lines that set symbols from the arguments' dimensions, check those of a source made for one size, and
        set fixed extents."""
        lines = []
        by_position = {p: t for t, p in self.binding.tensors.items()}
        for symbol in self.program.symbols:
            position, dim = self.binding.symbols.get(symbol, (-1, 0))
            fixed = self.binding.fixed.get(symbol)
            if position in by_position:
                moved = "movedim(-1, 1)." if position in self.binding.last else ""
                lines.append(f"{symbol} = {self.local(by_position[position])}.{moved}shape[{dim}]")
                if fixed is not None:
                    what = f"{symbol} is {{{symbol}}}; this kernel was made for {fixed} alone."
                    lines += [f"if {symbol} != {fixed}:", f"    raise ValueError(f{what!r})"]
            elif fixed is not None:
                lines.append(f"{symbol} = {fixed}")
        for symbol, text in self.solved(lambda position: self.local(by_position[position])):
            lines.append(f"{symbol} = {text}")
        shapes = [t.shape for t in self.program.tensors] + [o.shape for o in self.binding.outputs]
        named = frozenset().union(*(e.names() for shape in shapes for e in shape))
        for constexpr in self.program.constexprs:
            if constexpr.is_extent and constexpr.name in named:
                lines.append(f"{constexpr.name} = {int(self.binding.constexpr[constexpr.name])}")
        return lines

    def shape_checks(self) -> list[str]:
        """Return lines that refuse arguments of other shapes than the declared ones."""
        return [
            f"_fits({self.local(t.name)}, {self.binding.parameters[self.binding.tensors[t.name]]!r}, "
            f"{self.sizes(t.shape)}{'' if self._is_plain(t) else ', view=True'})"
            for t in self.program.tensors
            if t.name in self.binding.tensors
        ]

    def _is_plain(self, tensor: Tensor) -> bool:
        """Is the declared shape that of the argument, dimension by dimension, and not a view of it?"""
        places = [self.binding.symbols.get(e.name) if e.kind is IntKind.SYMBOL else None for e in tensor.shape]
        mine = [(d, p[1]) for d, p in enumerate(places) if p and p[0] == self.binding.tensors[tensor.name]]
        return None not in places and bool(mine) and all(d == own for d, own in mine)

    def allocations(self) -> list[str]:
        """Return lines that allocate the tensors that the function makes."""
        return [
            f"{self.local(tensor.name)} = torch.{make}({self.sizes(shape)}, dtype=torch.{tensor.dtype.torch_name})"
            for tensor, make, shape in self.made()
        ]
