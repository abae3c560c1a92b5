"""The host's line for a sketch that is a library call: a call of torch between a kernel's own launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernellab.errors import LoweringError
from kernellab.sketch.program import affine
from kernellab.sketch.program.aten import call_text, read_call
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.library import LIBRARY, LibraryOp, is_library, library_call
from kernellab.sketch.program.program import Kernel, LibraryCall, Program, Tensor, TensorRole, Whole

Shape = Sequence[IntExpr]


def library_calls(program: Program) -> dict[str, LibraryCall]:
    """Return the library calls of ``program``, by their sketches' names.

    Raises:
        LoweringError: there is no other sketch, so no kernel to write.
    """
    calls = {kernel.name: call for kernel in program.kernels if (call := library_call(kernel)) is not None}
    if calls and len(calls) == len(program.kernels):
        raise LoweringError(
            "Every sketch of the file is a library call, so there is no kernel to write.",
            "Write one of them as loops, or call the library without kernellab.",
        )
    return calls


def own_kernels(program: Program) -> list[Kernel]:
    """Return the sketches that are launches, without those that are library calls."""
    return [kernel for kernel in program.kernels if not is_library(kernel)]


def library_made(calls: Mapping[str, LibraryCall]) -> frozenset[str]:
    """Return the tensors that calls make, which the host function need not allocate."""
    return frozenset(call.out.name for call in calls.values())


class CallWriter:
    """Writes calls as Python. ``local`` returns a tensor's name in the host function, ``size`` an extent's text."""

    def __init__(
        self, program: Program, binding: Binding, local: Callable[[str], str], size: Callable[[IntExpr], str]
    ) -> None:
        self.program, self.local, self.size = program, local, size
        self._shapes: dict[str, Shape] = {t.name: t.shape for t in program.tensors}
        self._shapes |= {o.tensor: o.shape for o in binding.outputs}

    def line(self, call: LibraryCall) -> str:
        """Return the statement, with the sketch's line as a comment."""
        op = LIBRARY[call.op]
        code = self._called(op, call) + (".contiguous()" if op.strided else "")
        wanted = self._shapes[call.out.name]
        if not _same(call.out.shape, wanted) or (op.free and all(e.is_one for e in wanted)):
            code += f".view({self._sizes(wanted) or '()'})"
        lines = self.program.text.splitlines()
        sketch_line = lines[call.span.line - 1].strip() if 0 < call.span.line <= len(lines) else ""
        return f"{self.local(call.out.name)} = {code}" + (f"  # {sketch_line}" if sketch_line else "")

    def _called(self, op: LibraryOp, call: LibraryCall) -> str:
        operands = [self._operand(o) for o in call.operands]
        if op.free:
            text = read_call(str(dict(call.settings)["call"]))
            return call_text(text, operands, lambda name: self.size(IntExpr(IntKind.SYMBOL, name=name)))
        return f"{op.torch}({', '.join([*operands, *self._settings(call)])})"

    def _operand(self, operand: Whole) -> str:
        text = self._viewed(operand.tensor)
        order, rank = operand.order, len(operand.order)
        if order == tuple(range(rank)):
            return text
        if order == (1, 0):
            return f"{text}.t()"
        if order == (*range(rank - 2), rank - 1, rank - 2):
            return f"{text}.transpose({rank - 2}, {rank - 1})"
        return f"{text}.permute({', '.join(map(str, order))})"

    def _settings(self, call: LibraryCall) -> list[str]:
        """Return the keywords whose values are not torch's defaults."""
        values = dict(call.settings)
        settings = LIBRARY[call.op].settings
        return [f"{s.name}={values[s.name]!r}" for s in settings if values[s.name] != s.default]

    def _viewed(self, tensor: Tensor) -> str:
        """Return the tensor in the shape that the call takes; an argument may have any shape with as many elements."""
        name = self.local(tensor.name)
        is_argument = tensor.role in (TensorRole.IN, TensorRole.INOUT)
        if not is_argument and _same(self._shapes[tensor.name], tensor.shape):
            return name
        return f"{name}.view({self._sizes(tensor.shape)})"

    def _sizes(self, shape: Shape) -> str:
        return ", ".join(map(self.size, shape))


def _same(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(affine.equal(x, y) for x, y in zip(a, b, strict=True))


__all__ = ["CallWriter", "library_calls", "library_made", "own_kernels"]
