"""The cost of a task's reference, counted on tensors without memory: FLOPs, bytes, peak memory, operator classes.

The reference runs once on the meta device at the task's own sizes, in milliseconds for any sizes. (On the CPU device
attention is one opaque operator; on meta it is decomposed into products.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kernellab.operations.aten import Copies, Per, Role, aten_op, copies_of, power, role_of
from kernellab.operations.sketch import OPS
from kernellab.records import Record
from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes

if TYPE_CHECKING:
    from kernellab.task.module import TaskModule

#: counting stops after this many operators (an unrolled recurrence)
_MOST_OPERATORS = 4_000
#: a reference that needs its arguments' values runs with real memory up to this size
_REAL_BYTES = 64 << 20
#: operator class of an output, by the role of the operators that it depends on
_CLASSES = {Role.CONVOLUTION: "conv", Role.PRODUCT: "matmul", Role.ATTENTION: "matmul"}


class Cost(Record):
    """``flops`` by the operands' dtype (products, convolutions, attention), ``other_flops`` of all other operators.

    ``compulsory_bytes`` counts all arguments and outputs once; ``unfused_bytes`` what every operator reads and writes
    separately; ``peak_bytes`` the most that is alive at once, including arguments. ``classes`` has, for each output,
    the operator classes ("matmul", "conv") that it depends on. ``problem`` says why nothing was counted.
    """

    flops: dict[str, int] = Field(default_factory=dict)
    other_flops: float = 0.0
    compulsory_bytes: int = 0
    unfused_bytes: int = 0
    peak_bytes: int = 0
    operators: int = 0
    classes: list[list[str]] = Field(default_factory=list)
    #: operators with a guessed FLOP count: those without a row in the table, and those without a formula
    guessed: list[str] = Field(default_factory=list)
    problem: str = ""

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())


def trace(task: Task) -> Cost:
    """The cost of one run of the reference at the task's own sizes; nothing of that size is allocated."""
    from kernellab.errors import KernellabError
    from kernellab.task.faking import without_memory

    size = input_bytes(task)
    module = task.traced_module()
    if task.framework == "numpy" or (module.needs_values and size > _REAL_BYTES):
        return Cost(compulsory_bytes=size, problem="the reference's shapes or branches depend on its arguments' values")
    counters: list[_Counter] = []
    outputs: Sequence[Any] = ()
    problem = ""

    def run() -> Sequence[Any]:
        counters.append(_Counter())
        return (_run_real if module.needs_values else _run)(task, module, counters[-1])

    try:
        outputs = run() if module.needs_values else without_memory(run, "meta")
    except _TooManyOperators:
        problem = f"only its first {_MOST_OPERATORS} operators are counted"
    except (KernellabError, RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return Cost(
            compulsory_bytes=size, problem=f"the reference does not run on tensors without contents: {first[:200]}"
        )
    counter = counters[-1]
    return Cost(
        flops=counter.flops,
        other_flops=counter.other_flops,
        compulsory_bytes=size,
        unfused_bytes=counter.bytes,
        peak_bytes=counter.peak,
        operators=counter.operators,
        classes=[sorted(counter.classes_of(o)) for o in outputs],
        guessed=sorted(counter.guessed),
        problem=problem,
    )


class _TooManyOperators(BaseException):
    """More operators than are counted; not an Exception, which a reference could catch."""


def _run(task: Task, module: TaskModule, counter: _Counter) -> Sequence[Any]:
    from kernellab.task.fakes import fake_arguments, fake_model
    from kernellab.task.meta.operators import watching

    model, args = fake_model(task), fake_arguments(task)
    for value in args:
        counter.holds(value)
    with watching(counter.count):
        return module.flatten(module.call(args, model))


def _run_real(task: Task, module: TaskModule, counter: _Counter) -> Sequence[Any]:
    from kernellab.task.meta.operators import watching

    args = module.sample(module.default_sizes(), 1)
    for value in args:
        counter.holds(value)
    with watching(counter.count):
        return module.reference(args)


class _Counter:
    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry
        from torch.utils.weak import WeakIdKeyDictionary

        self.registry = flop_registry
        self.flops: dict[str, int] = {}
        self.other_flops = 0.0
        self.bytes = self.peak = self.alive = self.operators = 0
        self.guessed: set[str] = set()
        self._classes: Any = WeakIdKeyDictionary()
        self._storages: list[tuple[Any, int]] = []
        self._storage_ids: set[int] = set()

    def holds(self, value: Any) -> None:
        """Count a tensor as alive from now on, until its storage is freed."""
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef

        if isinstance(value, torch.Tensor):
            ref = StorageWeakRef(value.untyped_storage())  # type: ignore[no-untyped-call]
            if ref.cdata not in self._storage_ids:
                self._storage_ids.add(ref.cdata)
                size = int(value.untyped_storage().nbytes())
                self._storages.append((ref, size))
                self.alive += size

    def classes_of(self, value: Any) -> set[str]:
        classes: set[str] = self._classes.get(value, set())
        return classes

    def count(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        import torch

        result = func(*args, **kwargs)
        self.operators += 1
        if self.operators >= _MOST_OPERATORS:
            raise _TooManyOperators
        packet = func.overloadpacket
        inputs = list(_tensors((args, kwargs)))
        outputs = list(_tensors(result))
        classes = set().union(*(self.classes_of(t) for t in inputs))
        if packet in self.registry:
            work = int(self.registry[packet](*args, **kwargs, out_val=result))
        elif role_of(packet.__name__) is Role.PRODUCT and all(t.dim() < 2 for t in outputs):
            # torch's counter omits products with a vector
            work = 2 * max(t.numel() for t in inputs)
        else:
            work = 0
        if work:
            dtype = str(inputs[0].dtype).removeprefix("torch.") if inputs else "float32"
            self.flops[dtype] = self.flops.get(dtype, 0) + work
        name = packet.__name__
        if not work and not func.is_view and not _makes_nothing(name):
            self.other_flops += flops_beside_products(name, args, inputs, outputs)
            if is_guess(name):
                self.guessed.add(name)
        classes |= {_CLASSES[role]} if (role := role_of(name)) in _CLASSES else set()
        for tensor in outputs:
            self._classes[tensor] = classes | self.classes_of(tensor)
        if not func.is_view and not _makes_nothing(name):
            self.bytes += sum(t.numel() * t.element_size() for t in (*inputs, *outputs) if t.layout is torch.strided)
        self._count_memory(outputs)
        return result

    def _count_memory(self, results: Sequence[Any]) -> None:
        """Count new tensors as alive, and find the peak."""
        for tensor in results:
            self.holds(tensor)
        if self.alive > self.peak:
            # freed storages are searched only if the peak would rise
            alive = []
            for ref, size in self._storages:
                if ref.expired():
                    self.alive -= size
                    self._storage_ids.discard(ref.cdata)
                else:
                    alive.append((ref, size))
            self._storages = alive
            self.peak = max(self.peak, self.alive)


def _makes_nothing(name: str) -> bool:
    return role_of(name) is Role.EMPTY or copies_of(name) is Copies.NEVER


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


# -- FLOPs of one operator without products, counted like the sketch's operations --------------------------------------
# The least work of an operator, for any kernel: from its row of the table of operations
# (``kernellab.operations.aten``), so that the audit and a sketch's cost agree. An operator without a row counts one
# FLOP per output element.

#: n^3 / 3 for each matrix
_CHOLESKY = ("cholesky", "linalg_cholesky", "linalg_cholesky_ex")
#: operators whose arithmetic depends on the method, or on values
_METHODS = frozenset(
    (
        Role.ORDER, Role.LINALG, Role.SPECTRUM, Role.RECURRENT, Role.ALGORITHM, Role.DYNAMIC, Role.RESAMPLE,
        Role.GATHER, Role.SCATTER,
    )
)  # fmt: skip
#: reductions of one tensor that are elementwise for two
_OF_TWO = ("max", "min")


def is_guess(name: str) -> bool:
    """Is the count of :func:`flops_beside_products` for an operator unsuitable for comparison with a kernel?"""
    row = aten_op(name)
    return row is None or (row.role in _METHODS and row.name not in _CHOLESKY)


def flops_beside_products(name: str, args: Sequence[Any], operands: Sequence[Any], results: Sequence[Any]) -> float:
    """FLOPs of the operator ``name`` on the tensors ``operands``, which makes the tensors ``results``.

    An operator whose functional and in-place forms differ by a final underscore counts alike.
    """
    row = aten_op(name)
    in_size = max((t.numel() for t in operands), default=0)
    out_size = max((t.numel() for t in results), default=0)
    if row is None:
        return float(out_size)
    if row.name in _CHOLESKY:
        return float(out_size * results[0].shape[-1]) / 3
    if row.name == "pow":
        return sum(OPS[op].flops for op in power(args[1] if len(args) > 1 else None)) * out_size
    if row.role is Role.REDUCE and row.name in _OF_TWO and len(operands) > 1:
        return row.flops * out_size
    return row.flops * (in_size if row.per is Per.OPERAND else out_size)
