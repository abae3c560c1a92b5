"""The Python half: checks the arguments, computes sizes, makes the outputs and calls the compiled function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

import jinja2

from kernellab.lowering.cpp.stages import Stage
from kernellab.lowering.library_call import CallWriter, library_made
from kernellab.lowering.python_text import python_int
from kernellab.sketch.bind import Binding
from kernellab.sketch.ints import IntExpr, IntKind
from kernellab.sketch.library import Call
from kernellab.sketch.program import Program, Tensor, TensorRole
from kernellab.sketch.program_walk import only_added_to, statements


@lru_cache
def _template() -> jinja2.Template:
    text = (files("kernellab.lowering.cpp") / "kernel.py.jinja").read_text()
    environment = jinja2.Environment(keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.from_string(text)


def python_source(
    program: Program,
    binding: Binding,
    exports: list[Stage],
    symbols: list[str],
    calls: Mapping[str, Call],
    headers: tuple[str, ...],
) -> str:
    """kernel.py: ``kernel(<parameters>)``, which calls what kernel.cpp exports, and the library between.

    ``headers`` are those that kernel.cpp needs beside the two that every kernel has.
    """
    host = _Host(program, binding, calls)
    return _template().render(
        title=" then ".join(k.name for k in program.kernels),
        signature=", ".join(host.signature()),
        checks=host.checks(),
        sizes=host.sizes(),
        shape_checks=host.shape_checks(),
        allocations=host.allocations(),
        exports=[stage.name for stage in exports],
        calls=host.launches(exports, symbols),
        result=host.result(),
        tensors=bool(binding.tensors),
        more_headers="".join(f', "{h}"' for h in headers),
    )


class _Host:
    def __init__(self, program: Program, binding: Binding, calls: Mapping[str, Call]) -> None:
        self.program, self.binding, self.calls = program, binding, calls
        self._taken = set(binding.parameters) | set(program.symbols) | {c.name for c in program.constexprs}
        self._locals = {t.name: self._local_name(t) for t in program.tensors}

    def _local_name(self, tensor: Tensor) -> str:
        position = self.binding.tensors.get(tensor.name)
        if position is not None and tensor.role is TensorRole.IN:
            return self.binding.parameters[position]
        name = tensor.name
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def local(self, tensor: str) -> str:
        return self._locals[tensor]

    def number(self, constexpr: str) -> str:
        return self.binding.parameters[self.binding.scalars[constexpr]]

    def launches(self, exports: list[Stage], symbols: list[str]) -> list[str]:
        """Calls of what is exported and of the library, in the sketches' order."""
        writer = CallWriter(self.program, self.binding, self.local, python_int)
        starts = {stage.first: stage for stage in exports}
        lines = []
        for kernel in self.program.kernels:
            if kernel.name in self.calls:
                lines.append(writer.line(kernel.name, self.calls[kernel.name]))
            elif kernel.name in starts:
                stage = starts[kernel.name]
                addresses = [f"{self.local(t)}.data_ptr()" for t in stage.tensors]
                lines.append(f"_{stage.name}({', '.join([*addresses, *symbols, *map(self.number, stage.numbers)])})")
        return lines

    def signature(self) -> list[str]:
        return [
            f"{name}={self.binding.defaults[n]!r}" if n in self.binding.defaults else name
            for n, name in enumerate(self.binding.parameters)
        ]

    def checks(self) -> list[str]:
        lines = []
        for tensor in self.program.tensors:
            position = self.binding.tensors.get(tensor.name)
            if position is None:
                continue
            dtype = self.binding.dtypes.get(position, tensor.dtype)
            parameter = self.binding.parameters[position]
            copy = ".clone()" if tensor.role is TensorRole.INOUT else ""
            line = f"{self.local(tensor.name)} = _tensor({parameter}, {parameter!r}, torch.{dtype.torch_name}){copy}"
            lines.append(line)
        extents = {c.name for c in self.program.constexprs if c.is_extent}
        for name, position in self.binding.scalars.items():
            if name in extents:
                parameter, value = self.binding.parameters[position], self.binding.constexpr[name]
                lines.append(f"if {parameter} != {value!r}:")
                lines.append(
                    f'    raise ValueError(f"{parameter} is {{{parameter}}}; this kernel was made for {value!r}.")'
                )
        return lines

    def sizes(self) -> list[str]:
        lines = []
        by_position = {p: t for t, p in self.binding.tensors.items()}
        for symbol in self.program.symbols:
            if symbol in self.binding.symbols:
                position, dim = self.binding.symbols[symbol]
                if position in by_position:
                    lines.append(f"{symbol} = {self.local(by_position[position])}.shape[{dim}]")
                    if symbol in self.binding.fixed:
                        value = self.binding.fixed[symbol]
                        lines.append(f"if {symbol} != {value}:")
                        what = f"{symbol} is {{{symbol}}}; this kernel was made for {value} alone."
                        lines.append(f"    raise ValueError(f{what!r})")
                    continue
            if symbol in self.binding.fixed:
                lines.append(f"{symbol} = {self.binding.fixed[symbol]}")
        for constexpr in self.program.constexprs:
            if constexpr.is_extent:
                lines.append(f"{constexpr.name} = {int(self.binding.constexpr[constexpr.name])}")
        return [line for line in lines if self._needed(line)]

    def _needed(self, line: str) -> bool:
        name = line.split(" ", 1)[0]
        extents = {c.name for c in self.program.constexprs if c.is_extent}
        shapes = [t.shape for t in self.program.tensors] + [o.shape for o in self.binding.outputs]
        return name not in extents or any(name in e.names() for shape in shapes for e in shape)

    def shape_checks(self) -> list[str]:
        return [
            f"_fits({self.local(t.name)}, {self.binding.parameters[self.binding.tensors[t.name]]!r}, "
            f"{_tuple(t.shape)}{'' if self._is_plain(t) else ', view=True'})"
            for t in self.program.tensors
            if t.name in self.binding.tensors
        ]

    def _is_plain(self, tensor: Tensor) -> bool:
        """Is the declared shape the argument's own, dimension by dimension, and not a view of it?"""
        places = [self.binding.symbols.get(e.name) if e.kind is IntKind.SYMBOL else None for e in tensor.shape]
        mine = [(d, p[1]) for d, p in enumerate(places) if p and p[0] == self.binding.tensors[tensor.name]]
        return None not in places and bool(mine) and all(d == own for d, own in mine)

    def allocations(self) -> list[str]:
        every = [s for k in self.program.kernels for s in statements(k.body)]
        added = only_added_to(every)
        shapes = {o.tensor: o.shape for o in self.binding.outputs}
        lines = []
        for tensor in self.program.tensors:
            if tensor.role in (TensorRole.OUT, TensorRole.TEMP) and tensor.name not in library_made(self.calls):
                make = "zeros" if tensor.name in added else "empty"
                shape = _tuple(shapes.get(tensor.name, tensor.shape))
                lines.append(
                    f"{self.local(tensor.name)} = torch.{make}({shape}, dtype=torch.{tensor.dtype.torch_name})"
                )
        return lines

    def result(self) -> str:
        results = []
        for output in self.binding.outputs:
            tensor = self.program.tensor(output.tensor)
            text = self.local(output.tensor)
            if output.dtype != tensor.dtype:
                text += f".to(torch.{output.dtype.torch_name})"
            if tensor.role is TensorRole.INOUT and output.shape != tensor.shape:
                text += f".reshape({_tuple(output.shape)})"
            results.append(text)
        return results[0] if len(results) == 1 else f"({', '.join(results)})"


def _tuple(shape: tuple[IntExpr, ...]) -> str:
    inner = ", ".join(python_int(e) for e in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
