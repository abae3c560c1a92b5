"""The Python function that checks arguments, makes outputs and launches kernels on a GPU."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from kernellab.lowering.library_call import CallWriter, library_calls, library_made
from kernellab.lowering.python_text import Names, python_int, tidy
from kernellab.sketch.bind import Binding
from kernellab.sketch.ints import IntExpr, product
from kernellab.sketch.program import Program, Tensor, TensorRole
from kernellab.sketch.program_walk import only_added_to, statements


class GpuHost(ABC):
    """Writes ``kernel(*args)``; a DSL says how its kernels are launched, between what is alike for all."""

    def __init__(self, program: Program, binding: Binding) -> None:
        self.program, self.binding = program, binding
        self.calls = library_calls(program, binding)
        self.lines: list[str] = []

    def write(self) -> str:
        """The function's text."""
        self._names = Names(frozenset(t.name for t in self.program.tensors) | self._integers())
        self._parameters = [self._names.of(("parameter", i), _identifier(p)) if self._clashes(i, p) else _identifier(p)
                            for i, p in enumerate(self.binding.parameters)]  # fmt: skip
        self._signature()
        self._inputs()
        self._sizes()
        self._constants()
        self._outputs()
        self.launches()
        self._returns()
        return "\n".join(self.lines) + "\n"

    def int_text(self, expr: IntExpr) -> str:
        """``expr`` as the host function computes it."""
        return tidy(python_int(expr))

    @abstractmethod
    def launches(self) -> None:
        """Puts the lines that launch every kernel, with sizes, constexprs, inputs and outputs under their names."""

    def in_order(self, launches: Mapping[str, Callable[[], None]]) -> None:
        """The sketches' turns: ``launches`` has what puts each launch, and the library's calls stand between."""
        calls = CallWriter(self.program, self.binding, str, self.int_text)
        for kernel in self.program.kernels:
            if kernel.name in self.calls:
                self.put(calls.line(kernel.name, self.calls[kernel.name]))
            else:
                launches[kernel.name]()

    def elements(self, tensor: Tensor) -> str:
        """How many elements the tensor has, also where a call of the library has yet to make it."""
        return (
            self.int_text(product(tensor.shape))
            if tensor.name in library_made(self.calls)
            else f"{tensor.name}.numel()"
        )

    def _integers(self) -> frozenset[str]:
        return frozenset(self.program.symbols) | {c.name for c in self.program.constexprs}

    def _clashes(self, position: int, parameter: str) -> bool:
        """Does the parameter's name mean something else in this function?"""
        name = _identifier(parameter)
        own = {t for t, p in self.binding.tensors.items() if p == position}
        own |= {c for c, p in self.binding.scalars.items() if p == position}
        return name not in own

    def put(self, text: str) -> None:
        """One line of the function's body."""
        self.lines.append(f"    {text}")

    def _signature(self) -> None:
        parts = []
        for i, name in enumerate(self._parameters):
            parts.append(f"{name}={self.binding.defaults[i]!r}" if i in self.binding.defaults else name)
        self.lines.append(f"def kernel({', '.join(parts)}):")

    def _inputs(self) -> None:
        for tensor in self.program.inputs:
            position = self.binding.tensors[tensor.name]
            name = self._parameters[position]
            dtype = self.binding.dtypes.get(position, tensor.dtype)
            self.put(f"if {name}.dtype != torch.{dtype.torch_name}:")
            self.put(f'    raise TypeError(f"{name} must be {dtype.torch_name}, not {{{name}.dtype}}")')

    def _sizes(self) -> None:
        for symbol, (position, dim) in self.binding.symbols.items():
            self.put(f"{symbol} = {self._parameters[position]}.shape[{dim}]")
        for symbol, value in self.binding.fixed.items():
            if symbol in self.binding.symbols:
                self.put(f"if {symbol} != {value}:")
                self.put(f'    raise ValueError(f"{symbol} must be {value}, not {{{symbol}}}")')
            else:
                self.put(f"{symbol} = {value}")

    def _constants(self) -> None:
        for constexpr in self.program.constexprs:
            name = constexpr.name
            value = self.binding.constexpr.get(name, constexpr.value)
            if name in self.binding.scalars:
                given = self._parameters[self.binding.scalars[name]]
                if constexpr.is_extent:
                    self.put(f"if {given} != {value!r}:")
                    self.put(f'    raise ValueError(f"{name} must be {value!r}, not {{{given}}}")')
                if given != name:
                    self.put(f"{name} = {given}")
                continue
            choices = f"  # one of {', '.join(map(str, constexpr.choices))}" if constexpr.choices else ""
            self.put(f"{name} = {_number(value)}{choices}")
        for tensor in self.program.inputs:
            name = self._parameters[self.binding.tensors[tensor.name]]
            elements = self.int_text(product(tensor.shape))
            self.put(f"if {name}.numel() != {elements}:")
            shape = ", ".join(map(str, tensor.shape))
            self.put(f'    raise ValueError(f"{name} must hold [{shape}] elements, not {{tuple({name}.shape)}}")')
            copy = "clone(memory_format=torch.contiguous_format)" if tensor.role is TensorRole.INOUT else "contiguous()"
            self.put(f"{tensor.name} = {name}.{copy}")

    def _outputs(self) -> None:
        every = [s for k in self.program.kernels for s in statements(k.body)]
        # what is only ever added to starts at zero
        added = only_added_to(every)
        device = self._device()
        shapes = {o.tensor: o.shape for o in self.binding.outputs}
        for tensor in self.program.tensors:
            if tensor.role not in (TensorRole.OUT, TensorRole.TEMP) or tensor.name in library_made(self.calls):
                continue
            shape = shapes.get(tensor.name, tensor.shape)
            # sizes one by one: torch reads a tuple 0.8 us slower
            text = ", ".join(map(self.int_text, shape)) or "()"
            make = "zeros" if tensor.name in added else "empty"
            self.put(f"{tensor.name} = torch.{make}({text}, dtype=torch.{tensor.dtype.torch_name}, device={device})")

    def _device(self) -> str:
        if self.program.inputs:
            return f"{self.program.inputs[0].name}.device"
        return 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'

    def declares(self, kernel: str, option: str) -> bool:
        """Does the sketch of that name ask for the launch option? Another sketch of the file speaks for itself."""
        if option not in {c.name for c in self.program.constexprs}:
            return False
        starts = {k.name: k.span.line for k in self.program.kernels}
        first = starts[kernel]
        last = min((line for line in starts.values() if line > first), default=0)
        lines = self.program.text.splitlines()[first - 1 : last - 1 if last else None]
        return not lines or any(re.search(rf"\b{option}\b", line.split("#")[0]) for line in lines)

    def _returns(self) -> None:
        names = [o.tensor for o in self.binding.outputs]
        shaped = []
        declared = {t.name: t for t in self.program.tensors}
        for output in self.binding.outputs:
            if declared[output.tensor].role is TensorRole.INOUT:
                size = ", ".join(map(self.int_text, output.shape))
                shaped.append(f"{output.tensor}.reshape({size or '()'})")
            else:
                shaped.append(output.tensor)
        self.put(f"return {', '.join(shaped)}" if names else "return None")


def _number(value: int | float | None) -> str:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name) or "x"
    return f"_{text}" if text[0].isdigit() else text


__all__ = ["GpuHost"]
