"""The Python function that checks arguments, makes outputs and launches kernels on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable

from kernellab.lowering.host import HostFunction
from kernellab.lowering.library_call import library_made
from kernellab.lowering.python_text import Names
from kernellab.lowering.tunables import choices_text
from kernellab.sketch.program.ints import product
from kernellab.sketch.program.program import Tensor, TensorRole


class GpuHost(HostFunction):
    """Writes ``kernel(*args)``; a DSL adds the launches to the lines that all have in common."""

    checks_shapes = False

    def write(self, launches: Callable[[], None]) -> str:
        """Return the function's text. ``launches`` writes the lines that launch every kernel; sizes, constexprs, inputs
        and outputs then have their names."""
        self._names = Names(frozenset(t.name for t in self.program.tensors) | self._integers())
        self._parameters = [self._names.of(("parameter", i), _identifier(p)) if self._clashes(i, p) else _identifier(p)
                            for i, p in enumerate(self.binding.parameters)]  # fmt: skip
        self._inputs()
        self._symbols()
        self._constants()
        self._outputs()
        launches()
        self.put_written()
        self.put(f"return {', '.join(self.results()) or 'None'}")
        return "\n    ".join([f"def kernel({self.signature()}):", *self.lines]) + "\n"

    def local(self, tensor: str) -> str:
        return tensor

    def parameter(self, position: int) -> str:
        return self._parameters[position]

    def elements(self, tensor: Tensor) -> str:
        """Return the number of the tensor's elements, also before a library call makes it."""
        return (
            self.int_text(product(tensor.shape))
            if tensor.name in library_made(self.calls)
            else f"{tensor.name}.numel()"
        )

    def _integers(self) -> frozenset[str]:
        return frozenset(self.program.symbols) | {c.name for c in self.program.constexprs}

    def _clashes(self, position: int, parameter: str) -> bool:
        """Does the parameter's name have another meaning in this function?"""
        name = _identifier(parameter)
        own = {t for t, p in self.binding.tensors.items() if p == position}
        own |= {c for c, p in self.binding.scalars.items() if p == position}
        return name not in own or position in self.written()

    def _inputs(self) -> None:
        for tensor in self.program.inputs:
            position = self.binding.tensors[tensor.name]
            name = self._parameters[position]
            dtype = self.binding.dtypes.get(position, tensor.dtype)
            wanted = self.parts(position) or dtype.torch_name
            self.put(f"if {name}.dtype != torch.{wanted}:")
            self.put(f'    raise TypeError(f"{name} must be {wanted}, not {{{name}.dtype}}")')
            if self.parts(position):
                self.put(f"{name} = torch.view_as_real({name}.resolve_conj())")

    def _symbols(self) -> None:
        for symbol, (position, dim) in self.binding.symbols.items():
            self.put(f"{symbol} = {self._parameters[position]}.shape[{dim}]")
        for symbol, text in self.solved(lambda at: self._parameters[at]):
            self.put(f"{symbol} = {text}")
        for symbol, value in self.binding.fixed.items():
            if symbol in self.binding.symbols:
                self.put(f"if {symbol} != {value}:")
                self.put(f'    raise ValueError(f"{symbol} must be {value}, not {{{symbol}}}")')
            else:
                self.put(f"{symbol} = {value}")

    def _constants(self) -> None:
        for line in self.constants():
            self.put(line)
        for constexpr in self.program.constexprs:
            name = constexpr.name
            value = self.binding.constexpr.get(name, constexpr.value)
            if name in self.binding.scalars:
                parameter = self._parameters[self.binding.scalars[name]]
                if parameter != name:
                    self.put(f"{name} = {parameter}")
                continue
            choices = choices_text(constexpr, self.binding)
            self.put(f"{name} = {_number(value)}" + (f"  # {choices}" if choices else ""))
        for tensor in self.program.inputs:
            name = self._parameters[self.binding.tensors[tensor.name]]
            elements = self.int_text(product(tensor.shape))
            self.put(f"if {name}.numel() != {elements}:")
            shape = ", ".join(map(str, tensor.shape))
            self.put(f'    raise ValueError(f"{name} must hold [{shape}] elements, not {{tuple({name}.shape)}}")')
            copy = "clone(memory_format=torch.contiguous_format)" if tensor.role is TensorRole.INOUT else "contiguous()"
            turned = "movedim(1, -1)." if self.binding.tensors[tensor.name] in self.binding.last else ""
            self.put(f"{tensor.name} = {name}.{turned}{copy}")

    def _outputs(self) -> None:
        device = self.device()
        for tensor, make, shape in self.made():
            dtype = f"torch.{tensor.dtype.torch_name}"
            self.put(f"{tensor.name} = torch.{make}({self.sizes(shape)}, dtype={dtype}, device={device})")

    def device(self) -> str:
        if self.program.inputs:
            return f"{self.program.inputs[0].name}.device"
        return 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'


def _number(value: int | float | None) -> str:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name) or "x"
    return f"_{text}" if text[0].isdigit() else text


__all__ = ["GpuHost"]
