"""The host's line for a sketch that is the library's: a call of torch between a kernel's own launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernellab.errors import LoweringError
from kernellab.sketch import affine
from kernellab.sketch.bind import Binding
from kernellab.sketch.ints import IntExpr, int_op
from kernellab.sketch.library import Call, Convolution, Factor, NoCall, Product, is_library, library_call
from kernellab.sketch.program import Kernel, Program, Tensor, TensorRole

Shape = Sequence[IntExpr]


def library_calls(program: Program, binding: Binding) -> dict[str, Call]:
    """The call for each sketch that is hinted ``library``, by the sketch's name.

    Raises:
        LoweringError: a sketch that no call does, or a file in which nothing else is left.
    """
    found: dict[str, Call] = {}
    for kernel in program.kernels:
        if not is_library(kernel):
            continue
        try:
            found[kernel.name] = library_call(kernel, {**binding.constexpr, **binding.fixed})
        except NoCall as error:
            line = (error.span or kernel.span).line
            raise LoweringError(
                f'Line {line}: the sketch is hinted "library" and {error.what}.', error.remedy
            ) from None
    if found and len(found) == len(program.kernels):
        raise LoweringError(
            "Every sketch of the file is the library's, so there is no kernel to write.",
            'Drop the hint "library", or call the library without kernellab.',
        )
    return found


def own_kernels(program: Program) -> list[Kernel]:
    """The sketches that are launches, without those that are library calls."""
    return [kernel for kernel in program.kernels if not is_library(kernel)]


def library_made(calls: Mapping[str, Call]) -> frozenset[str]:
    """Tensors that a call makes, so that nobody else has to."""
    return frozenset(call.out.name for call in calls.values())


class CallWriter:
    """Writes calls as Python. ``local`` is a tensor's name in the host function, ``size`` an extent's text."""

    def __init__(
        self, program: Program, binding: Binding, local: Callable[[str], str], size: Callable[[IntExpr], str]
    ) -> None:
        self.program, self.local, self.size = program, local, size
        self._shapes: dict[str, Shape] = {t.name: t.shape for t in program.tensors}
        self._shapes |= {o.tensor: o.shape for o in binding.outputs}

    def line(self, name: str, call: Call) -> str:
        """The statement for the sketch ``name``."""
        made, natural = self._product(call) if isinstance(call, Product) else self._convolution(call)
        wanted = self._shapes[call.out.name]
        if not _same(natural, wanted):
            made += f".view({self._sizes(wanted) or '()'})"
        return f"{self.local(call.out.name)} = {made}  # {name}: the library's {call.name}"

    def _product(self, call: Product) -> tuple[str, Shape]:
        function = "torch.bmm" if call.batched else "torch.mm"
        return f"{function}({self._factor(call.left)}, {self._factor(call.right)})", call.out.shape

    def _factor(self, factor: Factor) -> str:
        text = self._viewed(factor.tensor, factor.tensor.shape)
        match factor.order:
            case (0, 1) | (0, 1, 2):
                return text
            case (1, 0):
                return f"{text}.t()"
            case (0, 2, 1):
                return f"{text}.transpose(1, 2)"
        return f"{text}.permute({', '.join(map(str, factor.order))})"

    def _convolution(self, call: Convolution) -> tuple[str, Shape]:
        grouped = call.groups > 1 or len(call.weight.shape) == 3 + len(call.stride)
        source = _merged(call.source.shape, 1) if grouped else call.source.shape
        # a group's outputs (its inputs, transposed) lie side by side
        weight = _merged(call.weight.shape, 0) if grouped else call.weight.shape
        out = _merged(call.out.shape, 1) if grouped else call.out.shape
        given = [self._viewed(call.source, source), self._viewed(call.weight, weight)]
        words = {"stride": call.stride, "padding": call.padding}
        if call.transposed:
            words["output_padding"] = call.output_padding
        words["dilation"] = call.dilation
        given += [f"{k}={_numbers(v)}" for k, v in words.items() if set(v) != {0 if k.endswith("padding") else 1}]
        given += [f"groups={call.groups}"] if call.groups > 1 else []
        name = f"torch.conv_transpose{len(call.stride)}d" if call.transposed else f"torch.conv{len(call.stride)}d"
        return f"{name}({', '.join(given)}).contiguous()", out

    def _viewed(self, tensor: Tensor, shape: Shape) -> str:
        """The tensor in the shape that the call takes; an argument may have come in any that holds as much."""
        name = self.local(tensor.name)
        given = tensor.role in (TensorRole.IN, TensorRole.INOUT)
        if not given and _same(self._shapes[tensor.name], shape):
            return name
        return f"{name}.view({self._sizes(shape)})"

    def _sizes(self, shape: Shape) -> str:
        return ", ".join(map(self.size, shape))


def _same(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(affine.equal(x, y) for x, y in zip(a, b, strict=True))


def _merged(shape: Shape, at: int) -> Shape:
    """``shape`` with the dimensions ``at`` and behind it as one."""
    return (*shape[:at], int_op("*", shape[at], shape[at + 1]), *shape[at + 2 :])


def _numbers(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else str(values)


__all__ = ["CallWriter", "library_calls", "library_made", "own_kernels"]
