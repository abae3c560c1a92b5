"""Which inputs a candidate meets: sizes, families, seeds; and the reference's answers to them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task, small_sizes
from kernellab.task_inputs import Family, families, input_bytes, redraw
from kernellab.verifier import device
from kernellab.verifier.compare import Reference
from kernellab.verifier.rules import CAPS, CORRECT, DEVICE, ERROR

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: bytes of arguments below which the reference has one thread
_SMALL = 1 << 18

#: tile sizes whose multiples and neighbours the hidden sizes visit
_AROUND = (16, 64)

#: values of arguments marked static that a worker has met, by position, shape and dtype
Statics = dict[tuple[Any, ...], Any]
_statics: ContextVar[Statics | None] = ContextVar("statics", default=None)


@dataclass(frozen=True)
class Case:
    """One set of inputs: sizes of the Dims, family, seed. The arguments and the reference's answer are made once."""

    task: Task
    sizes: tuple[tuple[str, int], ...]
    family: Family
    seed: int
    double: bool = True
    #: what is done to the drawn arguments, as :func:`kernellab.verifier.metamorphic.changed` has it
    change: tuple[Any, ...] = ()
    device: str = field(default_factory=device.current)
    #: what :func:`static_held` has held when this was made
    statics: Statics | None = field(default_factory=_statics.get, compare=False, repr=False)

    @cached_property
    def args(self) -> tuple[Any, ...]:
        from kernellab.verifier.metamorphic import changed

        drawn = make_args(self.task, dict(self.sizes), self.family, self.seed, self.device)
        if self.statics is None:
            return changed(drawn, self.change)
        # a change is none of theirs either
        return _held(self.task, changed(_held(self.task, drawn, self.statics), self.change), self.statics)

    def with_change(self, change: tuple[Any, ...]) -> Case:
        """The same case with a change to its arguments."""
        return replace(self, change=change)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        return references(self.task, self.args, self.double, self._native[0])

    @property
    def reference_seconds(self) -> float:
        """What the reference took for these arguments."""
        return self._native[1]

    @cached_property
    def _native(self) -> tuple[tuple[Tensor, ...], float]:
        args = self.args
        device.synchronize()
        start = time.perf_counter()
        outputs = run_reference(self.task, args)
        device.synchronize()
        return outputs, time.perf_counter() - start

    @cached_property
    def nudged(self) -> tuple[Reference, ...]:
        """The references with, beside each, float64's answer at inputs moved by at most a unit in the last place; of
        structured inputs also the size of what was added up, where sums may cancel, or what rounding on the way does;
        the last of inputs of any size too, which reach where a formula loses all digits, in float64 as well.

        Only asked for when a kernel is about to be refused: it costs another run in float64, or a few.
        """
        found = nudged(self.task, self.args, self.references, self.seed)
        if self.family not in (Family.STRUCTURED, Family.MIXED, Family.SCALED) or found is self.references:
            return found
        sizes = self._summed() if self.family is Family.STRUCTURED else None
        if sizes is None:
            return rounded(self.task, self.args, found, self.seed)
        return tuple(replace(r, summed=n) for r, n in zip(found, sizes, strict=True))

    def _summed(self) -> tuple[Tensor, ...] | None:
        """The reference in float64 of the inputs' magnitudes; None where it is not homogeneous (made of products and
        sums), for there it says nothing of what was added up.

        A ramp's sums cancel to nothing after having grown, and what they were rounded to on the way no nudge of the
        inputs shows: the error of a sum is bounded by the magnitudes that it adds (Higham, eq. 4.4).
        """
        import torch

        def answers(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...] | None:
            return _in_double(self.task, [
                change(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in self.args
            ])  # fmt: skip

        one, two = answers(torch.abs), answers(lambda a: 2 * a.abs())
        if one is None or two is None or [o.shape for o in one] != [r.native.shape for r in self.references]:
            return None
        for a, b in zip(one, two, strict=True):
            if not bool(a.isfinite().all()) or not any(torch.equal(a * 2.0**k, b) for k in (1, 2, 3)):
                return None
            if not bool(a.any()):
                # what cancels even so says nothing of its size
                return None
        return tuple(o.double().abs() for o in one)

    @cached_property
    def hidden(self) -> float:
        """How many times larger than its spread the mean of a row is, root mean square over the rows of the input where
        it is the most. The sum of a row is rounded relative to the mean, and what is left without it is the spread."""
        import torch

        most = 0.0
        for value in self.args:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            if is_float and value.dim() > 1 and value.shape[-1] >= ERROR.row:
                rows = value.double()
                spread, mean = torch.std_mean(rows, -1, correction=0)
                ratios = (mean / spread)[spread > torch.finfo(value.dtype).eps * mean.abs()]
                most = max(most, float(ratios.square().mean().sqrt()) if ratios.numel() else 0.0)
        return most

    @property
    def words(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes)
        change = f", {self.change[0]}" if self.change else ""
        return f"{sizes + ', ' if sizes else ''}family {self.family.value}{change}"


@contextmanager
def static_held() -> Iterator[None]:
    """Arguments that a function task marks static keep their values inside, for each shape that they have.

    A kernel may pack them once; the first values that it meets stay for as long as its worker lives.
    """
    token = _statics.set({})
    try:
        yield
    finally:
        _statics.reset(token)


def _held(task: Task, args: tuple[Any, ...], statics: Statics) -> tuple[Any, ...]:
    import torch

    def value(position: int, drawn: Any) -> Any:
        spec = task.args[position]
        # a model's parameters are loaded into the candidate anew for each call, and it is told so by their versions
        if not spec.static or spec.kind is not ArgKind.TENSOR or not isinstance(drawn, torch.Tensor):
            return drawn
        # whole numbers may be places in another argument
        beside = () if drawn.is_floating_point() else shapes
        return statics.setdefault((position, tuple(drawn.shape), drawn.dtype, *beside), drawn)

    shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
    return tuple(value(i, drawn) for i, drawn in enumerate(args))


def make_args(
    task: Task, sizes: Mapping[str, int], family: Family | str, seed: int, where: str = "cpu"
) -> tuple[Any, ...]:
    """The arguments of a case on the device ``where``; the same seed gives the same arguments there."""
    args = device.sample(task.module(), dict(sizes) or None, seed % (1 << 31), where)
    return redraw(task, args, Family(family), seed % (1 << 31))


def references(
    task: Task, args: Sequence[Any], double: bool = True, native: tuple[Tensor, ...] | None = None
) -> tuple[Reference, ...]:
    """The reference's outputs at the declared dtype (``native``, where they are known) and in float64 (None where it
    cannot be run so)."""
    native = run_reference(task, args) if native is None else native
    double = double and _fits_in_double(args, native)
    upper = _in_double(task, args) if double and any(o.is_floating_point() for o in native) else None
    if upper is None or len(upper) != len(native):
        return tuple(Reference(n, None) for n in native)
    return tuple(
        Reference(n, u if n.is_floating_point() and u.dtype == u.double().dtype and u.shape == n.shape else None)
        for n, u in zip(native, upper, strict=True)
    )


def _fits_in_double(args: Sequence[Any], outputs: Sequence[Tensor]) -> bool:
    """Is there device memory for a run in float64: arguments, outputs, and as much again for what lies between?"""
    import torch

    tensors = [t for t in (*args, *outputs) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if not tensors or tensors[0].device.type != "cuda":
        return True
    need = 2 * sum(8 * t.numel() for t in tensors)
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return bool(need < DEVICE.double_share * free)


def nudged(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> tuple[Reference, ...]:
    """The references ``found`` for ``args`` with, beside each, float64's answer at inputs moved by a rounding error;
    ``found`` itself where that cannot be had."""
    moved = _in_double(task, [_moved(a, seed + i) for i, a in enumerate(args)])
    if moved is None or len(moved) != len(found):
        return found
    pairs = zip(found, moved, strict=True)
    return tuple(r if r.double is None else replace(r, nudged=m.double()) for r, m in pairs)


def rounded(task: Task, args: Sequence[Any], found: tuple[Reference, ...], seed: int = 0) -> tuple[Reference, ...]:
    """The nudged references ``found`` with, where it is further away, float64's answer with each operation's result
    rounded (:mod:`~kernellab.verifier.roundings`); in four draws, of which the furthest counts."""
    import torch

    from kernellab.verifier.roundings import Rounded

    units = [torch.finfo(r.native.dtype).eps / 2 for r in found if r.native.is_floating_point()]
    for draw in range(4 if units else 0):
        with Rounded(max(units), seed + draw):
            outputs = _in_double(task, args)
        if outputs is None or len(outputs) != len(found):
            return found
        found = tuple(_further(r, o) for r, o in zip(found, outputs, strict=True))
    return found


def _further(reference: Reference, other: Tensor) -> Reference:
    double, nudged = reference.double, reference.nudged
    if double is None or nudged is None or other.shape != double.shape:
        return reference
    further = (other.double() - double).abs() > (nudged - double).abs()
    return replace(reference, nudged=other.double().where(further, nudged))


def _moved(value: Any, seed: int) -> Any:
    """A float tensor, in float64, each element moved at random by at most a unit of its dtype's last place."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    generator = torch.Generator(value.device).manual_seed(seed % (1 << 31))
    by = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=value.device)
    by.mul_(2).sub_(1).mul_(torch.finfo(value.dtype).eps).add_(1)
    return by.mul_(value)


def run_reference(task: Task, args: Sequence[Any], threads: int | None = None) -> tuple[Tensor, ...]:
    """The reference with so many threads; if not said, with all, or one where its arguments are small. Everything else
    in the judge runs on one: many small operations are done sooner so, above all on a busy machine."""
    import torch

    if threads is None:
        small = sum(a.nbytes for a in args if isinstance(a, torch.Tensor)) < _SMALL
        threads = 1 if small else len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    try:
        return _beside(args, task.module().reference(args))
    finally:
        torch.set_num_threads(1)


def _beside(args: Sequence[Any], outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Outputs on the device of ``args``: a reference in NumPy answers on the CPU."""
    import torch

    where = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
    return outputs if where is None or where.type == "cpu" else tuple(o.to(where) for o in outputs)


def smoke_case(task: Task, interpreted: bool = False) -> Case:
    """The smallest shape that is not empty."""
    sizes = next((s for s in small_sizes(task) if 0 not in s.values()), {})
    return case(task, _shrunk(task, sizes, interpreted), Family.OWN)


def correct_cases(task: Task, interpreted: bool = False) -> list[Case]:
    """The declared size with the task's own family first, all legal families at small sizes, hidden sizes of Dims."""
    declared = task.module().default_sizes()
    full = _shrunk(task, declared, interpreted)
    legal = families(task)
    size = input_bytes(task, full)
    if not task.dims:
        first = (Family.MIXED, Family.LARGE, Family.OFFSET, Family.NORMAL)
        others = [f for f in dict.fromkeys((*first, *legal)) if f in legal and f is not Family.OWN]
        if size > CORRECT.single_family_bytes:
            others = []
        elif size > CORRECT.family_bytes:
            others = others[: CORRECT.large_families if size <= CORRECT.large_bytes else CORRECT.huge_families]
        return [case(task, full, f) for f in dict.fromkeys((Family.OWN, *others))]
    hidden = [s for s in small_sizes(task, _AROUND, 8) if s != full]
    hidden = [_shrunk(task, s, interpreted) for s in hidden]
    small = full if size <= CORRECT.family_bytes and not interpreted else _middle(hidden, full)
    own_first = sorted(legal, key=lambda f: f is not Family.OWN)
    cases = [case(task, small, f) for f in own_first if f is not Family.OWN or small != full]
    step = max(1, len(hidden) // CORRECT.hidden_sizes)
    cases += [case(task, s, legal[(i + 1) % len(legal)]) for i, s in enumerate(hidden[::step]) if s != small]
    return [*cases, case(task, full, Family.OWN)]


def _middle(hidden: list[dict[str, int]], full: dict[str, int]) -> dict[str, int]:
    """A size that is neither tiny nor large: several tiles, and a rest."""
    return hidden[-1] if hidden else full


def small_case(task: Task, interpreted: bool = False) -> Case:
    """A new case at the size that the families run at."""
    return case(task, dict(correct_cases(task, interpreted)[0].sizes), Family.OWN)


def aligned_and_ragged(task: Task, limit_bytes: int = CORRECT.family_bytes) -> list[tuple[str, Case]]:
    """Pairs of sizes that tell an edge error from others: exact multiples of 64, and just beside them."""
    if not task.dims:
        return []
    from kernellab.task_inputs import _accepts

    found = []
    for kind, offset in (("aligned", 0), ("ragged", -1), ("ragged", 1)):
        for base in (64, 128, 256):
            sizes = {d.name: min(max(base + offset, d.min), d.max) for d in task.dims}
            if input_bytes(task, sizes) <= limit_bytes and _accepts(task, tuple(sizes.items())):
                found.append((kind, case(task, sizes, Family.OWN)))
                break
    return found


def case(task: Task, sizes: Mapping[str, int], family: Family) -> Case:
    return Case(task, tuple(sizes.items()), family, secrets.randbits(31))


def _shrunk(task: Task, sizes: Mapping[str, int], interpreted: bool) -> dict[str, int]:
    """Sizes small enough for an interpreter: edges are kept, elements and Dims are capped."""
    sizes = dict(sizes)
    if not interpreted or not task.dims:
        return sizes
    limit = CAPS.interpreter_dim
    while True:
        tried = {d.name: max(d.min, min(sizes[d.name], limit + (sizes[d.name] % 7))) for d in task.dims}
        if limit <= 8 or input_bytes(task, tried) <= 4 * CAPS.interpreter_elements:
            return tried
        limit //= 2


def _in_double(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """The reference's answer in float64; None where it has none, or the device no memory for it: what lies between
    arguments and outputs is not known before."""
    import torch

    try:
        return _doubled(task, args)
    except torch.OutOfMemoryError:
        device.give_back()
        return None


def _doubled(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    import torch

    from kernellab.errors import KernellabError

    upper = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    try:
        outputs = run_reference(task, upper)
        if all(o.dtype == torch.float64 for o in outputs if o.is_floating_point()):
            return outputs
    except KernellabError:
        pass  # the reference names a dtype: its graph can be rewritten to float64
    return _graph_in_double(task, args)


def _graph_in_double(task: Task, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    from kernellab.errors import KernellabError

    try:
        from kernellab.capture import capture, run_graph

        return tuple(run_graph(capture(task), args, True))
    except (KernellabError, ImportError):
        return None
