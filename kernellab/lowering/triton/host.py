"""The Python function that checks arguments, makes outputs and launches the kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernellab.lowering.triton.ints import host_text
from kernellab.lowering.triton.kernel import Written
from kernellab.lowering.triton.text import Names, tidy
from kernellab.sketch.bind import Binding
from kernellab.sketch.ints import IntExpr, int_op, num
from kernellab.sketch.program import Constexpr, DType, Program, Tensor, TensorRole, only_added_to, statements

#: constexpr names that are launch options, not parameters of a kernel
LAUNCH_OPTIONS = ("num_warps", "num_stages")
#: offsets at or above this many elements are computed in 64 bits (a tile may reach past the last element)
WIDE_ELEMENTS = 1 << 30


@dataclass
class Host:
    program: Program
    binding: Binding
    kernels: list[Written]
    #: the constexpr parameter that holds the index dtype, "" where it is fixed when lowering
    index: str
    lines: list[str] = field(default_factory=list)

    def write(self) -> str:
        self._names = Names(frozenset(t.name for t in self.program.tensors) | self._integers())
        self._parameters = [self._names.of(("parameter", i), _identifier(p)) if self._clashes(i, p) else _identifier(p)
                            for i, p in enumerate(self.binding.parameters)]  # fmt: skip
        self._signature()
        self._inputs()
        self._sizes()
        self._constants()
        self._outputs()
        self._launches()
        self._returns()
        return "\n".join(self.lines) + "\n"

    def int_text(self, expr: IntExpr) -> str:
        """``expr`` as the host function computes it."""
        return tidy(host_text(expr))

    def _integers(self) -> frozenset[str]:
        return frozenset(self.program.symbols) | {c.name for c in self.program.constexprs}

    def _clashes(self, position: int, parameter: str) -> bool:
        """Does the parameter's name mean something else in this function?"""
        name = _identifier(parameter)
        own = {t for t, p in self.binding.tensors.items() if p == position}
        own |= {c for c, p in self.binding.scalars.items() if p == position}
        return name not in own

    def _put(self, text: str) -> None:
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
            self._put(f"if {name}.dtype != torch.{dtype.torch_name}:")
            self._put(f'    raise TypeError(f"{name} must be {dtype.torch_name}, not {{{name}.dtype}}")')

    def _sizes(self) -> None:
        for symbol, (position, dim) in self.binding.symbols.items():
            self._put(f"{symbol} = {self._parameters[position]}.shape[{dim}]")
        for symbol, value in self.binding.fixed.items():
            if symbol in self.binding.symbols:
                self._put(f"if {symbol} != {value}:")
                self._put(f'    raise ValueError(f"{symbol} must be {value}, not {{{symbol}}}")')
            else:
                self._put(f"{symbol} = {value}")

    def _constants(self) -> None:
        for constexpr in self.program.constexprs:
            name = constexpr.name
            value = self.binding.constexpr.get(name, constexpr.value)
            if name in self.binding.scalars:
                given = self._parameters[self.binding.scalars[name]]
                if constexpr.is_extent:
                    self._put(f"if {given} != {value!r}:")
                    self._put(f'    raise ValueError(f"{name} must be {value!r}, not {{{given}}}")')
                if given != name:
                    self._put(f"{name} = {given}")
                continue
            choices = f"  # one of {', '.join(map(str, constexpr.choices))}" if constexpr.choices else ""
            self._put(f"{name} = {_number(value)}{choices}")
        for tensor in self.program.inputs:
            name = self._parameters[self.binding.tensors[tensor.name]]
            elements = self.int_text(_elements(tensor))
            self._put(f"if {name}.numel() != {elements}:")
            shape = ", ".join(map(str, tensor.shape))
            self._put(f'    raise ValueError(f"{name} must hold [{shape}] elements, not {{tuple({name}.shape)}}")')
            copy = "clone(memory_format=torch.contiguous_format)" if tensor.role is TensorRole.INOUT else "contiguous()"
            self._put(f"{tensor.name} = {name}.{copy}")

    def _outputs(self) -> None:
        every = [s for k in self.program.kernels for s in statements(k.body)]
        # what is only ever added to starts at zero
        added = only_added_to(every)
        device = self._device()
        shapes = {o.tensor: o.shape for o in self.binding.outputs}
        for tensor in self.program.tensors:
            if tensor.role not in (TensorRole.OUT, TensorRole.TEMP):
                continue
            shape = shapes.get(tensor.name, tensor.shape)
            text = ", ".join(map(self.int_text, shape))
            make = "zeros" if tensor.name in added else "empty"
            comma = "," if len(shape) == 1 else ""
            self._put(
                f"{tensor.name} = torch.{make}(({text}{comma}), dtype=torch.{tensor.dtype.torch_name}, device={device})"
            )
        if self.index:
            sizes = ", ".join(f"{t.name}.numel()" for t in self.program.tensors)
            self._put(f"{self.index} = tl.int64 if max({sizes}) >= {WIDE_ELEMENTS} else tl.int32")

    def _device(self) -> str:
        if self.program.inputs:
            return f"{self.program.inputs[0].name}.device"
        return 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'

    def _launches(self) -> None:
        for kernel in self.kernels:
            self._launch(kernel)

    def _launch(self, kernel: Written) -> None:
        for name, expression in kernel.computed.items():
            if name in kernel.used or any(re.search(rf"\b{name}\b", other) for other in kernel.computed.values()):
                self._put(f"{name} = {expression}")
        arguments = [p.name if p.runtime else f"{p.name}={p.name}" for p in self.kernel_parameters(kernel)]
        arguments += [f"{name}={text}" for name, text in self._options(kernel)]
        self._put(f"{kernel.name}[({kernel.grid},)]({', '.join(arguments)})")

    def _options(self, kernel: Written) -> list[tuple[str, str]]:
        declared = [name for name in LAUNCH_OPTIONS if self.declares(kernel.name.removesuffix("_kernel"), name)]
        options = [(name, name) for name in declared]
        if "num_warps" not in declared:
            options.append(("num_warps", _warps(kernel)))
        if "num_stages" not in declared and kernel.has_dot:
            options.append(("num_stages", "3"))
        return options

    def declares(self, kernel: str, option: str) -> bool:
        """Does the sketch of that name ask for the launch option? Another sketch of the file speaks for itself."""
        if option not in {c.name for c in self.program.constexprs}:
            return False
        starts = {k.name: k.span.line for k in self.program.kernels}
        first = starts[kernel]
        last = min((line for line in starts.values() if line > first), default=0)
        lines = self.program.text.splitlines()[first - 1 : last - 1 if last else None]
        return not lines or any(re.search(rf"\b{option}\b", line.split("#")[0]) for line in lines)

    def kernel_parameters(self, kernel: Written) -> list[KernelParameter]:
        """Parameters of the jitted function: pointers, sizes and scalars, then constexprs."""
        found = [KernelParameter(t.name, True) for t in self.program.tensors]
        found += [KernelParameter(s, True) for s in self.program.symbols if s not in self.binding.fixed]
        runtime = [c for c in self.program.constexprs if self._is_runtime(c)]
        found += [KernelParameter(c.name, True, _wants_f64(self.program)) for c in runtime]
        found += [KernelParameter(s, False) for s in self.program.symbols if s in self.binding.fixed]
        found += [KernelParameter(c.name, False) for c in self.program.constexprs if c not in runtime]
        found += [KernelParameter(name, False) for name in kernel.computed]
        found += [KernelParameter(self.index, False)] if self.index else []
        return [p for p in found if p.name in kernel.used]

    def _is_runtime(self, constexpr: Constexpr) -> bool:
        return constexpr.name in self.binding.scalars and not constexpr.is_extent

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
        self._put(f"return {', '.join(shaped)}" if names else "return None")


@dataclass(frozen=True)
class KernelParameter:
    name: str
    #: passed at run time; else a tl.constexpr
    runtime: bool
    f64: bool = False

    def __str__(self) -> str:
        if not self.runtime:
            return f"{self.name}: tl.constexpr"
        return f"{self.name}: tl.float64" if self.f64 else self.name


def _wants_f64(program: Program) -> bool:
    return any(t.dtype is DType.F64 for t in program.tensors)


def _warps(kernel: Written) -> str:
    """About 32 bytes of the largest tile a thread: two 16-byte accesses in flight; more for tiles past 16 KB."""
    known, rest = kernel.elements
    if kernel.has_dot:
        return "8" if known >= 128 * 128 else "4"
    share = 1024 // kernel.widest
    if rest:
        total = " * ".join([*([str(known)] if known > 1 else []), *rest])
        return f"max(1, min(16, {total} // {share}))"
    return str(32 if known >= 32 * share * 4 else max(1, min(16, known // share)))


def _elements(tensor: Tensor) -> IntExpr:
    total = num(1)
    for extent in tensor.shape:
        total = int_op("*", total, extent)
    return total


def _number(value: int | float | None) -> str:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name) or "x"
    return f"_{text}" if text[0].isdigit() else text
