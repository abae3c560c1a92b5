"""The part of the host function that all DSLs share: take the task's arguments, make tensors, call, return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from kernellab.lowering.library_call import CallWriter, library_calls, library_made
from kernellab.lowering.python_text import python_int, tidy
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.binding import BoundOutput
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Program, Tensor, TensorRole
from kernellab.sketch.program.walk import only_added_to, statements

Shape = tuple[IntExpr, ...]


class HostFunction(ABC):
    """Writes the lines of ``kernel(*args)``; a subclass defines the names and how kernels are launched."""

    #: an argument has its declared shape, else it was refused; False: any shape with as many elements is accepted
    checks_shapes: ClassVar[bool]

    def __init__(self, program: Program, binding: Binding) -> None:
        self.program, self.binding = program, binding
        self.calls = library_calls(program)
        self.lines: list[str] = []

    @abstractmethod
    def local(self, tensor: str) -> str:
        """Return the function's name for a tensor of the sketch."""

    @abstractmethod
    def parameter(self, position: int) -> str:
        """Return the name of the argument at ``position``."""

    def int_text(self, expr: IntExpr) -> str:
        """Return ``expr`` as Python in the host function."""
        return tidy(python_int(expr))

    def sizes(self, shape: Shape) -> str:
        """Return a shape as arguments of torch: a tuple would cost 0.8 us more than separate sizes."""
        return ", ".join(map(self.int_text, shape)) or "()"

    def put(self, text: str) -> None:
        """Write one line of the function's body."""
        self.lines.append(text)

    def signature(self) -> str:
        """Return the parameters, with the reference's defaults."""
        defaults = self.binding.defaults
        names = [self.parameter(n) for n in range(len(self.binding.parameters))]
        return ", ".join(f"{name}={defaults[n]!r}" if n in defaults else name for n, name in enumerate(names))

    def in_order(self, launches: Mapping[str, Callable[[], None]]) -> None:
        """Write launches and library calls in the sketches' order; ``launches`` has the function that writes each
        launch.

        A sketch without either is part of an earlier launch."""
        calls = CallWriter(self.program, self.binding, self.local, self.int_text)
        for kernel in self.program.kernels:
            if kernel.name in self.calls:
                self.put(calls.line(self.calls[kernel.name]))
            elif kernel.name in launches:
                launches[kernel.name]()

    def constants(self) -> Iterator[str]:
        """Yield lines that refuse values of scalar arguments for which the source was not made."""
        for position, value in self.binding.constants.items():
            name = self.parameter(position)
            yield f"if {name} != {value!r}:"
            yield f'    raise ValueError(f"{name} is {{{name}}}; this kernel was made for {value!r}.")'

    def solved(self, named: Callable[[int], str]) -> Iterator[tuple[str, str]]:
        """Yield symbols that follow from extents such as ``N + 1``, with their texts; ``named`` returns a parameter's
        name."""
        for symbol, solved in self.binding.solved.items():
            yield symbol, solved.text(lambda place: f"{named(place[0])}.shape[{place[1]}]")

    def made(self) -> Iterator[tuple[Tensor, str, Shape]]:
        """Yield each tensor that the function makes, with ``zeros`` (if it is only added to) or ``empty``, and its
        shape."""
        added = only_added_to([s for k in self.program.kernels for s in statements(k.body)])
        shapes = {o.tensor: o.shape for o in self.binding.outputs}
        for tensor in self.program.tensors:
            if tensor.role in (TensorRole.OUT, TensorRole.TEMP) and tensor.name not in library_made(self.calls):
                yield tensor, "zeros" if tensor.name in added else "empty", shapes.get(tensor.name, tensor.shape)

    def written(self) -> frozenset[int]:
        """Return the parameters that the function writes into, by position."""
        return frozenset(o.into for o in self.binding.outputs if o.into is not None)

    def put_written(self) -> None:
        """Write the lines that write into arguments, after all launches, so that no launch reads the new values."""
        for output in self.binding.outputs:
            if output.into is not None:
                self.put(f"{self.parameter(output.into)}.copy_({self._as_given(output)})")

    def parts(self, position: int) -> str:
        """Return the dtype of the complex argument at ``position``, whose parts a kernel reads; "" for a real one."""
        real = self.binding.dtypes.get(position)
        return "" if position not in self.binding.pairs or real is None else f"complex{16 * real.bytes}"

    def results(self) -> list[str]:
        """Return the reference's outputs in their shapes (a binding ensures equal dtypes)."""
        return [self._as_given(output) for output in self.binding.outputs if output.into is None]

    def _as_given(self, output: BoundOutput) -> str:
        """Return an output in the shape and memory format of the reference's."""
        tensor = self.program.tensor(output.tensor)
        text = self.local(output.tensor)
        if tensor.role is TensorRole.INOUT and not (self.checks_shapes and output.shape == tensor.shape):
            text += f".reshape({self.sizes(output.shape)})"
        text += ".movedim(-1, 1)" if output.last else ""
        return f"torch.view_as_complex({text})" if output.pairs else text


__all__ = ["HostFunction", "Shape"]
