"""What to compute: a reference, its inputs with symbolic shapes, dtypes, tolerance and the rules of legal inputs.

A Task is made from one self-contained module text, in either form:

- KernelBench's: ``Model``, ``get_inputs`` and optional ``get_init_inputs``, taken as they are;
- native: ``reference(...)`` and ``inputs(...)`` (a tensor, tuple or list), with :class:`Dim` declarations for dynamic
  shapes (a Dim's name is a keyword of ``inputs``) and optional ``TOLERANCE``, ``PRECISION``, ``DOMAIN``, ``STATIC``.

Any process rebuilds the same Task from ``(text, name)``; :meth:`Task.module` runs the text once in each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.options.fidelity import STRICT
from kernellab.task.dims import Dim, Extent, TaskForm, extent
from kernellab.task.formula import read, sizes_from

if TYPE_CHECKING:
    from kernellab.task.module import Learnt, TaskModule


class ArgKind(str, Enum):
    """Where an argument of the kernel comes from: the reference's parameters, or its module's."""

    TENSOR = "tensor"
    SCALAR = "scalar"
    PARAMETER = "parameter"
    BUFFER = "buffer"


T = TypeVar("T")


@dataclass(frozen=True)
class Arg:
    """One parameter of ``kernel(*args)``. A scalar has dtype int64, float64 or bool, shape () and a ``value``."""

    name: str
    kind: ArgKind
    dtype: str
    shape: tuple[Extent, ...] = ()
    #: the reference's default; None if the caller must pass it
    default: int | float | bool | None = None
    #: a scalar's value in the task's inputs
    value: int | float | bool | None = None
    #: has the same contents in every timed call (a weight)
    static: bool = False
    #: the key in the Model's state_dict
    key: str = ""
    #: channels last: its second dimension is contiguous in memory
    last: bool = False

    @property
    def is_tensor(self) -> bool:
        """Is it a tensor? Parameters and buffers are tensors too."""
        return self.kind is not ArgKind.SCALAR

    @property
    def is_float(self) -> bool:
        """Is it a float of any width, scalars included? Complex numbers are not."""
        return "float" in self.dtype

    @property
    def held(self) -> OutputSpec:
        """Return shape and dtype of the sketch's tensor for it."""
        return OutputSpec(self.shape, self.dtype, self.last).held

    def dimension(self, dim: int) -> int:
        """Return the argument's dimension that is ``dim`` of the sketch's tensor."""
        return dim if not self.last or not dim else 1 if dim == len(self.shape) - 1 else dim + 1

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape at ``sizes`` of the Dims (name to size)."""
        return tuple(extent(e, sizes) for e in self.shape)


def channels_at_end(shape: tuple[T, ...]) -> tuple[T, ...]:
    """Return the extents of ``[N, C, ...]`` with the channels at the end."""
    return (shape[0], *shape[2:], shape[1])


@dataclass(frozen=True)
class OutputSpec:
    """One result of the reference; ``dtype`` as torch names it ("float32")."""

    shape: tuple[Extent, ...]
    dtype: str
    #: channels last
    last: bool = False

    @property
    def is_complex(self) -> bool:
        """Are its elements complex numbers?"""
        return self.dtype.startswith("complex")

    @property
    def held(self) -> OutputSpec:
        """Return shape and dtype of the sketch's tensor for it: complex numbers as pairs of real ones, [..., 2]; the
        channels at the end if they are last in memory."""
        if self.last:
            return OutputSpec(channels_at_end(self.shape), self.dtype)
        real = {"complex64": "float32", "complex128": "float64"}.get(self.dtype)
        return self if real is None else OutputSpec((*self.shape, 2), real)

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
    #: the requested precision of kernels: a word of :mod:`kernellab.options.fidelity`, or "" for the default, that of
    #: the framework. Not a part of the task's text
    fidelity: str = ""
    #: weights whose convolutions eager computes in TF32 on this machine: a strict kernel may too
    rounded: frozenset[str] = field(default=frozenset(), compare=False)
    #: overrides of the error rule's numbers by name ("floor" if the task has a single number)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    #: argument -> the domain of its values: "index(N)", "prob", "unit", "positive", "nonnegative", "sorted",
    #: "range(a, b)", "fixed"
    domain: Mapping[str, str] = field(default_factory=dict)
    static: tuple[str, ...] = ()
    flags: tuple[TaskFlag, ...] = field(default=(), compare=False)
    hash: str = ""
    #: decisions on what the text leaves open, each a phrase
    notes: tuple[str, ...] = field(default=(), compare=False)
    #: facts about the reference, for another module of the text
    learnt: Learnt | None = field(default=None, compare=False, repr=False)

    @property
    def strict(self) -> bool:
        """Must a kernel be right to float32 even if torch's flags let the framework round?"""
        return self.fidelity == STRICT

    @property
    def granted(self) -> Mapping[str, str]:
        """The part of :attr:`precision` that a kernel may use: empty if it must be strict. ``precision`` itself still
        sets the flags under which eager runs."""
        return {} if self.strict else self.precision

    @property
    def last_defaults(self) -> int:
        """The number of the last arguments that are numbers with a default: a kernel may leave out these parameters."""
        defaults = [a.kind is ArgKind.SCALAR and a.default is not None for a in self.args]
        return sum(all(defaults[i:]) for i in range(len(defaults)))

    def __hash__(self) -> int:
        return hash((self.name, self.hash))

    def module(self, memory: bool = True) -> TaskModule:
        """Return the running module, which samples inputs and calls the reference. The text runs once in each process,
        and once more for runs without ``memory``."""
        from kernellab.task.module import task_module

        return self._described(task_module(self.name, self.text, memory))

    def traced_module(self) -> TaskModule:
        """Return the module for runs without memory, or the running one if the reference needs values."""
        module = self.module(memory=False)
        return self.module() if module.needs_values else module

    def new_module(self) -> TaskModule:
        """Return another module of the text; values that a reference caches there stay in it."""
        from kernellab.task.module import TaskModule

        return self._described(TaskModule(self.name, self.text))

    def _described(self, module: TaskModule) -> TaskModule:
        if self.learnt is not None and not module.described:
            module.learn(self.learnt)
        return module

    @property
    def tensors(self) -> tuple[Arg, ...]:
        """Return the arguments that are tensors, in the kernel's order."""
        return tuple(a for a in self.args if a.is_tensor)

    @property
    def results(self) -> tuple[OutputSpec, ...]:
        """Return the outputs, then the arguments that the reference writes into: all results of a kernel."""
        after = (self.args[i] for i in self.module().written)
        return (*self.outputs, *(OutputSpec(a.shape, a.dtype, a.last) for a in after))

    def arg(self, name: str) -> Arg:
        """Return the argument of that name. Raises StopIteration: there is none."""
        return next(a for a in self.args if a.name == name)

    def sizes_of(self, args: Sequence[Any]) -> dict[str, int]:
        """Return the Dims' sizes, solved from the shapes of ``args``; Dims without a certain solution are left out."""
        tensors = [(s, v) for s, v in zip(self.args, args, strict=False) if s.is_tensor]
        return sizes_from([(int(n), read(e)) for s, v in tensors for e, n in zip(s.shape, v.shape, strict=False)])

    @property
    def signature(self) -> str:
        """Return one line for people: ``x: f32 [M, N], w: f32 [N], eps=1e-06 -> f32 [M, N]``."""
        parts = [
            f"{a.name}: {_short(a.dtype)} [{', '.join(map(str, a.shape))}]" if a.is_tensor else f"{a.name}={a.value}"
            for a in self.args
        ]
        outs = ", ".join(f"{_short(o.dtype)} [{', '.join(map(str, o.shape))}]" for o in self.outputs)
        return f"{', '.join(parts)} -> {outs}"


def _short(dtype: str) -> str:
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if dtype.startswith(long):
            return short + dtype.removeprefix(long)
    return dtype
