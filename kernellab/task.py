"""What to compute: a reference, its inputs with symbolic shapes, dtypes, tolerance and the rules of legal inputs.

A Task is made from one self-contained module text, in either form:

- KernelBench's: ``Model``, ``get_inputs`` and optional ``get_init_inputs``, taken as they are;
- native: ``reference(...)`` and ``inputs(...)`` (a tensor, tuple or list), with :class:`Dim` declarations for dynamic
  shapes (a Dim's name is a keyword of ``inputs``) and optional ``TOLERANCE``, ``PRECISION``, ``DOMAIN``, ``STATIC``.

Any process rebuilds the same Task from ``(text, name)``; :meth:`Task.module` runs the text, once a process.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from kernellab.errors import MOST_BYTES, TaskError

if TYPE_CHECKING:
    from kernellab.task_load import TaskModule

#: one extent of a shape: a number, or an expression over Dim names in Python's ``+ - * //``
Extent = Union[int, str]


@dataclass(frozen=True)
class Dim:
    """A dynamic extent, drawn from ``min`` to ``max`` (both included); ``name`` is a keyword of ``inputs``."""

    name: str
    min: int = 1
    max: int = 65536

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise TaskError(f"Dim({self.name!r}) needs a name that is an identifier.", 'Write Dim("M", 1, 4096).')
        if not 0 <= self.min <= self.max:
            raise TaskError(
                f"Dim {self.name} has the range {self.min} to {self.max}, which holds nothing.",
                f'Write Dim("{self.name}", smallest, largest) with 0 <= smallest <= largest.',
            )


class TaskForm(str, Enum):
    NATIVE = "native"
    KERNELBENCH = "kernelbench"


class ArgKind(str, Enum):
    TENSOR = "tensor"
    SCALAR = "scalar"
    PARAMETER = "parameter"
    BUFFER = "buffer"


@dataclass(frozen=True)
class Arg:
    """One parameter of ``kernel(*args)``. A scalar has dtype int64, float64 or bool, shape () and a ``value``."""

    name: str
    kind: ArgKind
    dtype: str
    shape: tuple[Extent, ...] = ()
    #: the reference's own default; None when the caller must give it
    default: int | float | bool | None = None
    #: a scalar's value in the task's own inputs
    value: int | float | bool | None = None
    #: the same contents in every timed call (a weight)
    static: bool = False
    #: the key in the Model's state_dict
    key: str = ""

    @property
    def is_tensor(self) -> bool:
        return self.kind is not ArgKind.SCALAR

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(extent(e, sizes) for e in self.shape)


@dataclass(frozen=True)
class OutputSpec:
    shape: tuple[Extent, ...]
    dtype: str

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(extent(e, sizes) for e in self.shape)


@dataclass(frozen=True)
class TaskFlag:
    """Why a task proves little: ``rule`` is random, constant, input-independent, zeros, ones, identity, ..."""

    rule: str
    reason: str

    def __str__(self) -> str:
        return f"task: {self.reason}"


@dataclass(frozen=True, eq=True)
class Task:
    """One operator. ``hash`` names the text; ``args`` are the kernel's parameters in order."""

    name: str
    text: str
    form: TaskForm
    framework: str
    dims: tuple[Dim, ...]
    args: tuple[Arg, ...]
    outputs: tuple[OutputSpec, ...]
    #: torch's precision by operator class ("matmul", "conv"): ieee, tf32, bf16, ...; only what the task overrides
    precision: Mapping[str, str] = field(default_factory=dict)
    #: overrides of the error rule's numbers by name ("floor" when the task gives one number)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    #: argument -> what its values may be: "index(N)", "prob", "unit", "positive", "nonnegative", "sorted",
    #: "range(a, b)", "fixed"
    domain: Mapping[str, str] = field(default_factory=dict)
    static: tuple[str, ...] = ()
    flags: tuple[TaskFlag, ...] = field(default=(), compare=False)
    hash: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.hash))

    def module(self) -> TaskModule:
        """The running module: samples inputs, calls the reference. Executes the text once a process."""
        return _module(self.name, self.text)

    @property
    def is_dynamic(self) -> bool:
        return bool(self.dims)

    @property
    def tensors(self) -> tuple[Arg, ...]:
        return tuple(a for a in self.args if a.is_tensor)

    def arg(self, name: str) -> Arg:
        return next(a for a in self.args if a.name == name)

    def sizes_of(self, args: Sequence[Any]) -> dict[str, int]:
        """The Dims' sizes, read from the shapes of ``args``; Dims that no shape names plainly are left out."""
        sizes: dict[str, int] = {}
        names = {d.name for d in self.dims}
        for spec, value in zip(self.args, args, strict=False):
            if spec.is_tensor:
                for dim, actual in zip(spec.shape, value.shape, strict=False):
                    if dim in names:
                        sizes.setdefault(str(dim), int(actual))
        return sizes

    @property
    def signature(self) -> str:
        """One line for people: ``x: f32 [M, N], w: f32 [N], eps=1e-06 -> f32 [M, N]``."""
        parts = [
            f"{a.name}: {_short(a.dtype)} [{', '.join(map(str, a.shape))}]" if a.is_tensor else f"{a.name}={a.value}"
            for a in self.args
        ]
        outs = ", ".join(f"{_short(o.dtype)} [{', '.join(map(str, o.shape))}]" for o in self.outputs)
        return f"{', '.join(parts)} -> {outs}"


def load_task(text_or_path: str | Path, name: str | None = None, *, audit: bool = False) -> Task:
    """The Task that a module text (or a .py file) states; ``audit`` also runs :func:`quality` into ``flags``.

    Raises:
        TaskError: no reference, a reference that raises, inputs that do not fit, a syntax error with its line.
    """
    text, name = _read(text_or_path, name)
    task = _load(name, text)
    return replace(task, flags=quality(task)) if audit else task


def read_task(text_or_path: str | Path, name: str | None = None) -> tuple[str, str]:
    """A task's text and name, read but not run. Raises TaskError for a file that cannot be read."""
    return _read(text_or_path, name)


def quality(task: Task) -> tuple[TaskFlag, ...]:
    """The registration gate: why ``task`` would prove little about a kernel; empty for a good task."""
    from kernellab.task_quality import quality as judge

    return judge(task)


def small_sizes(task: Task, around: Sequence[int] = (), limit: int = 8) -> list[dict[str, int]]:
    """Edge sizes of the Dims: 1, primes, the ends of the ranges, and multiples of ``around`` and their neighbours."""
    from kernellab.task_inputs import small_sizes as pick

    return pick(task, around, limit)


def extent(expr: Extent, sizes: Mapping[str, int]) -> int:
    """The value of one extent under ``sizes``. Raises KeyError for a Dim that ``sizes`` lacks."""
    return expr if isinstance(expr, int) else _evaluate(_parsed(expr), sizes)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, sizes)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv():
                return left // right
            case ast.Mod():
                return left % right
    raise ValueError(f"not a shape expression: {ast.unparse(node)}")


@lru_cache(maxsize=1024)
def _parsed(expr: str) -> ast.expr:
    return ast.parse(expr, mode="eval").body


def _short(dtype: str) -> str:
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if dtype.startswith(long):
            return short + dtype.removeprefix(long)
    return dtype


def _read(text_or_path: str | Path, name: str | None) -> tuple[str, str]:
    is_path = isinstance(text_or_path, Path) or ("\n" not in text_or_path and text_or_path.strip().endswith(".py"))
    if not is_path:
        return str(text_or_path), name or "task"
    path = Path(text_or_path)
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise TaskError(
                f"The task file {path} has {size / 1e6:.0f} MB.", "Give a task's text; weights and data stay out of it."
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise TaskError(f"The task file {path} cannot be read: {reason}.", "Give the path of a Python file.") from None
    return text, name or identifier(path.stem)


def identifier(stem: str) -> str:
    """``stem`` as a name that a kernel, a sketch and a session can bear: ``23_Softmax`` is ``task_23_Softmax``."""
    word = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in stem).strip("_") or "task"
    return f"task_{word}" if word[0].isdigit() else word


@lru_cache(maxsize=256)
def _load(name: str, text: str) -> Task:
    from kernellab.task_describe import describe

    return describe(_module(name, text))


def forget_modules() -> None:
    """Lets go of all tasks' modules, and so of the weights that they hold; they are made again when asked for."""
    _module.cache_clear()


@lru_cache(maxsize=64)
def _module(name: str, text: str) -> TaskModule:
    from kernellab.task_load import TaskModule

    return TaskModule(name, text)
