"""The interpreter: the meaning of a sketch, computed over torch tensors.

Slow and exact. Undefined tiles and unwritten outputs are poisoned (NaN, the smallest integer), outputs that are only
added to start at 0, reading past a tensor gives the pad, writing past it writes nothing, and rounding happens only
where the sketch writes into a narrower type. With ``f64`` every float is float64 and float casts are the identity.

This process reads the sketch and its sizes; a worker computes its values (:mod:`~kernellab.sketch.run.confined`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from time import thread_time
from typing import TYPE_CHECKING, Any

from kernellab.errors import NotRunnable, SketchError
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.library import LIBRARY
from kernellab.sketch.program.program import LibraryCall, Program, Tensor, TensorRole
from kernellab.sketch.program.walk import endless_loop, only_added_to, statements
from kernellab.sketch.run.confined import MOST_SECONDS, compute, spoiled
from kernellab.sketch.run.machine import Machine, Watch
from kernellab.sketch.run.values import Scope, convert, poison, zeros

if TYPE_CHECKING:
    import torch

Number = int | float


@dataclass(frozen=True)
class Outcome:
    """The result of a run: outputs by tensor name, masks of the stored elements, and the sizes."""

    outputs: dict[str, torch.Tensor]
    written: dict[str, torch.Tensor]
    symbols: dict[str, int]
    constexpr: dict[str, Number]


def run(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    symbols: Mapping[str, int] | None = None,
    constexpr: Mapping[str, Number] | None = None,
    f64: bool = False,
) -> dict[str, torch.Tensor]:
    """Return the program's out and inout tensors, by name, for ``inputs`` (tensors or arrays, by tensor name).

    Symbols come from the inputs' shapes; ``symbols`` has those that no input gives. An input may have any shape with
    the declared number of elements. Inputs are not changed.

    Raises:
        NotRunnable: an opaque operation, or a constexpr, symbol or input without a value (named).
        SketchError: inputs that do not fit, or a statement whose operands do not match.
    """
    return execute(program, inputs, symbols=symbols, constexpr=constexpr, f64=f64).outputs


def execute(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    symbols: Mapping[str, int] | None = None,
    constexpr: Mapping[str, Number] | None = None,
    f64: bool = False,
    keep: int | None = None,
    seconds: float = MOST_SECONDS,
) -> Outcome:
    """As :func:`run`, with masks of the stored elements; ``keep`` as in :class:`Machine`, ``seconds`` of the
    processor's time. A worker computes it."""
    run_input = prepared(program, inputs, symbols=symbols, constexpr=constexpr, f64=f64)
    answer = compute(
        _computed, run_input, keep, seconds,
        seconds=seconds, most_bytes=run_input.bytes_of_outputs, free=run_input.names_operations,
    )  # fmt: skip
    return run_input.outcome(answer)


@dataclass(frozen=True)
class RunInput:
    """What a run needs: the program, its inputs by tensor name, the sizes and the values of the constexprs."""

    program: Program
    arrays: dict[str, torch.Tensor]
    symbols: dict[str, int]
    constexpr: dict[str, Number]
    f64: bool

    @property
    def scope(self) -> Scope:
        return Scope({**_integers(self.constexpr), **self.symbols}, self.constexpr, self.f64)

    @property
    def names_operations(self) -> bool:
        """Does the sketch name operations of ATen?"""
        calls = (s for kernel in self.program.kernels for s in statements(kernel.body) if isinstance(s, LibraryCall))
        return any(LIBRARY[call.op].free for call in calls)

    @property
    def bytes_of_outputs(self) -> int:
        """The bytes of the outputs and of the masks of their stored elements."""
        return sum(prod(shape) * (dtype.itemsize + 1) for shape, dtype in self._outputs.values())

    @property
    def _outputs(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        scope = self.scope
        return {t.name: (scope.extents(t.shape), scope.dtype(t.dtype)) for t in self.program.outputs}

    def outcome(self, answer: Any) -> Outcome:
        """Return what a worker has answered with :meth:`answer`. Raises SketchError: it is nothing of the kind."""
        import torch

        expected = self._outputs
        outputs, written = (_by_name(answer, part, list(expected)) for part in ("outputs", "written"))
        for name, (shape, dtype) in expected.items():
            for tensor, kind in ((outputs[name], dtype), (written[name], torch.bool)):
                if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape or tensor.dtype != kind:
                    raise spoiled()
        return Outcome(outputs, written, self.symbols, self.constexpr)


def _by_name(answer: Any, part: str, names: Sequence[str]) -> dict[str, Any]:
    listed = answer.get(part) if isinstance(answer, dict) else None
    if not isinstance(listed, list) or len(listed) != len(names):
        raise spoiled()
    return dict(zip(names, listed, strict=True))


def _plain(value: Any) -> Any:
    """Return a caller's number, which may be NumPy's, as Python's."""
    return value.item() if hasattr(value, "item") else value


def prepared(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    symbols: Mapping[str, int] | None = None,
    constexpr: Mapping[str, Number] | None = None,
    f64: bool = False,
) -> RunInput:
    """Return what a run of ``program`` needs. Raises NotRunnable, SketchError: as :func:`run`."""
    import torch

    if program.opaque:
        raise NotRunnable(
            f"The sketch uses the opaque operation {program.opaque[0]!r}, which has no meaning to run.",
            "Spell it out, or go on without running the sketch.",
        )
    numbers = constexpr_values(program, {name: _plain(value) for name, value in (constexpr or {}).items()})
    arrays = {name: torch.as_tensor(value) for name, value in inputs.items()}
    for tensor in program.inputs:
        if tensor.name not in arrays:
            raise NotRunnable(f"The input {tensor.name} has no value.", f"Give inputs={{'{tensor.name}': ...}}.")
    sizes = {name: _plain(size) for name, size in (symbols or {}).items()}
    sizes = symbol_values(program, {n: tuple(a.shape) for n, a in arrays.items()}, numbers, sizes)
    names = {t.name for t in program.inputs}
    return RunInput(program, {n: a for n, a in arrays.items() if n in names}, sizes, numbers, f64)


def interpret(
    run_input: RunInput, keep: int | None = None, seconds: float = MOST_SECONDS, watch: Watch | None = None
) -> dict[str, list[torch.Tensor]]:
    """Compute a run, in a worker: the outputs and the masks of their stored elements, in the order of the program."""
    import torch

    program, scope = run_input.program, run_input.scope
    sums = only_added_to(s for kernel in program.kernels for s in statements(kernel.body))
    memory = {t.name: _contents(t, run_input.arrays.get(t.name), scope, t.name in sums) for t in program.tensors}
    written = {n: torch.zeros(m.shape, dtype=torch.bool) for n, m in memory.items()}
    machine = Machine(memory, written, keep, watch, thread_time() + seconds)
    for kernel in program.kernels:
        machine.launch(kernel, Scope(dict(scope.indices), scope.numbers, run_input.f64))
    names = [t.name for t in program.outputs]
    return {"outputs": [memory[n] for n in names], "written": [written[n] for n in names]}


def _computed(run_input: RunInput, keep: int | None, seconds: float) -> dict[str, list[torch.Tensor]]:
    return interpret(run_input, keep, seconds)


def constexpr_values(
    program: Program, overrides: Mapping[str, Number], default_extent: int | None = None
) -> dict[str, Number]:
    """Return every constexpr's value: given, else declared, else (for an extent) ``default_extent`` or the smallest
    legal one.

    Raises:
        NotRunnable: a constexpr without a value, or values that break a ``require:`` line.
    """
    values: dict[str, Number] = {}
    for item in program.constexprs:
        value = overrides.get(item.name, item.value)
        if value is not None:
            if unfit := item.unfit(value):
                raise NotRunnable(unfit, "Give it another value.")
            values[item.name] = int(value) if item.is_extent else value
    for item in program.constexprs:
        if item.name not in values:
            candidates: tuple[Number, ...] = item.choices or tuple(1 << k for k in range(14))
            if default_extent is not None and (default_extent in candidates or not item.choices):
                candidates = (default_extent, *candidates)
            legal = (c for c in candidates if _holds(program, {**values, item.name: c}))
            choice = next(legal, None) if item.is_extent or item.choices else None
            if choice is None:
                raise NotRunnable(
                    f"The constexpr {item.name} has no value.",
                    f"Give it one in the sketch, or with --set {item.name}=VALUE.",
                )
            values[item.name] = choice
    for rule in program.requires:
        if not _holds(program, values, (rule,)):
            raise NotRunnable(
                f"The constexprs break `require: {rule}`.",
                "Choose values that keep it, or have its author change it.",
            )
    if loop := endless_loop(program, values):
        raise NotRunnable(
            f"{loop.var} never advances: its step is not above 0.", "Give the step's constexpr another value."
        )
    return values


def symbol_values(
    program: Program,
    shapes: Mapping[str, Sequence[int]],
    constexpr: Mapping[str, Number],
    fixed: Mapping[str, int],
) -> dict[str, int]:
    """Return the symbols' values, from the inputs' shapes and ``fixed``, else from the sketch.

    Raises:
        NotRunnable: a symbol without a value. SketchError: shapes that contradict each other or the declarations.
    """
    sizes = dict(fixed)
    declared = dict(program.sizes)
    tensors = [t for t in program.tensors if t.name in shapes]
    for tensor in tensors:
        for expr, actual in zip(tensor.shape, shapes[tensor.name], strict=False):
            if expr.kind is IntKind.SYMBOL and len(tensor.shape) == len(shapes[tensor.name]):
                earlier = sizes.setdefault(expr.name, int(actual))
                if earlier != actual:
                    raise SketchError(
                        f"The symbol {expr.name} is {earlier} and {actual} ({tensor.name}) in the same inputs.",
                        "Give inputs whose shapes agree with the declarations.",
                    )
    environment: dict[str, int] = {**_integers(constexpr), **sizes}
    for tensor in tensors:
        _solve(tensor, shapes[tensor.name], environment)
    sizes = {**declared, **{s: environment[s] for s in program.symbols if s in environment}}
    environment = {**environment, **sizes}
    missing = [s for s in program.symbols if s not in sizes]
    if missing and any(missing[0] in e.names() for t in program.tensors for e in t.shape):
        raise NotRunnable(
            f"Nothing gives the symbol {missing[0]} a value.", f"Name it in an input's shape, or give {missing[0]}."
        )
    for tensor in tensors:
        extents = tuple(e.evaluate(environment) for e in tensor.shape)
        if prod(extents) != prod(shapes[tensor.name]):
            raise SketchError(
                f"{tensor.name} is declared {list(extents)} and given with the shape {list(shapes[tensor.name])}.",
                "Give an input of the declared shape.",
            )
    return sizes


def _solve(tensor: Tensor, shape: Sequence[int], environment: dict[str, int]) -> None:
    """Solve for symbols in products or sums with known ones, by trying possible extents."""
    rank_matches = len(tensor.shape) == len(shape)
    for position, expr in enumerate(tensor.shape):
        unknown = [n for n in sorted(expr.names()) if n not in environment]
        if len(unknown) != 1:
            continue
        if rank_matches:
            value = _inverted(expr, unknown[0], int(shape[position]), environment)
        else:
            others = [e for i, e in enumerate(tensor.shape) if i != position]
            if any(n not in environment for e in others for n in e.names()):
                continue
            rest = prod(e.evaluate(environment) for e in others)
            value = _inverted(expr, unknown[0], prod(shape) // rest, environment) if rest else None
        if value is not None:
            environment[unknown[0]] = value


def _inverted(expr: IntExpr, name: str, value: int, environment: Mapping[str, int]) -> int | None:
    """Return the smallest value of ``name`` at which ``expr`` is ``value``; None if there is none up to 4 x ``value`` +
    64."""
    if expr.kind is IntKind.SYMBOL:
        return value
    if expr.kind is IntKind.OP and expr.op == "*":
        others = prod(a.evaluate(environment) for a in expr.args if name not in a.names())
        inner = [a for a in expr.args if name in a.names()]
        if len(inner) == 1 and others and value % others == 0:
            return _inverted(inner[0], name, value // others, environment)
    low, high = 0, 4 * value + 64
    while low < high:
        middle = (low + high) // 2
        if expr.evaluate({**environment, name: middle}) < value:
            low = middle + 1
        else:
            high = middle
    return low if expr.evaluate({**environment, name: low}) == value else None


def _contents(tensor: Tensor, argument: torch.Tensor | None, scope: Scope, zeroed: bool) -> torch.Tensor:
    """Return a tensor before the first kernel: the argument, zeros, or undefined memory."""
    shape = scope.extents(tensor.shape)
    dtype = scope.dtype(tensor.dtype)
    if tensor.role in (TensorRole.IN, TensorRole.INOUT):
        assert argument is not None
        return convert(argument.detach().reshape(shape), dtype).contiguous().clone()
    return zeros(shape, dtype) if zeroed else poison(shape, dtype)


def _integers(values: Mapping[str, Number]) -> dict[str, int]:
    return {k: int(v) for k, v in values.items() if float(v).is_integer()}


def _holds(program: Program, values: Mapping[str, Number], rules: Sequence[IntExpr] | None = None) -> bool:
    """Are the ``require:`` lines that depend only on the values satisfied? (The checker reads the chip's facts.)"""
    integers = _integers(values)
    return all(
        rule.evaluate(integers) != 0
        for rule in (program.requires if rules is None else rules)
        if rule.names() <= set(integers)
    )
