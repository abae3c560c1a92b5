"""Several kernels of one task as one source, in which the size of a Dim selects the kernel.

It does the same as an exported operator of these kernels, and is verified as a whole: over their joint range, and at
the sizes on both sides of each switch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath

from kernellab.conditions import Switched
from kernellab.conditions import joined as conditions_of
from kernellab.errors import KernellabError
from kernellab.export.exportable import Choice, VerifiedKernel
from kernellab.export.package import check_same, signature
from kernellab.export.reference import reference_text
from kernellab.records import Author, Source
from kernellab.target import Target
from kernellab.task import Dim, Task, load_task
from kernellab.verifier import Verifier, VerifyOptions

_TEXT = '''\
"""{name}: of several kernels the one that is chosen for the size of {dim}."""

{imports}


def kernel({signature}):
    size = {size}
{choice}
'''


@dataclass(frozen=True)
class Joined:
    """``starts``: the sizes of ``dim`` from which each of ``kernels`` runs, up to the next one."""

    kernels: tuple[VerifiedKernel, ...]
    dim: str
    starts: tuple[tuple[int, int], ...]
    task: Task

    @property
    def switches(self) -> tuple[int, ...]:
        """The sizes from which another kernel runs."""
        return tuple(start for start, _ in self.starts[1:])

    @cached_property
    def source(self) -> Source:
        """Return each kernel's files in a folder, and a function that calls one of them."""
        first, used = self.kernels[0], sorted({k for _, k in self.starts})
        names = {k: f"k{self.kernels[k].source.hash}" for k in used}
        files: dict[str, str] = {}
        imports = []
        for k, folder in names.items():
            source = self.kernels[k].source
            files |= {f"{folder}/{name}": text for name, text in source.files.items()}
            module = ".".join([folder, *PurePosixPath(source.entry_file).with_suffix("").parts])
            imports.append(f"from {module} import {source.entry} as {folder}")
        arguments = ", ".join(a.name for a in first.task.args)
        *others, last = [f"return {names[k]}({arguments})" for _, k in self.starts]
        lines = [f"    if size < {end}:\n        {line}" for end, line in zip(self.switches, others, strict=True)]
        values = {
            "{name}": first.name, "{dim}": self.dim, "{imports}": "\n".join(imports),
            "{signature}": signature(first.task.args), "{size}": _size_of(first.task, self.dim),
            "{choice}": "\n".join([*lines, f"    {last}"]),
        }  # fmt: skip
        text = _TEXT
        for key, value in values.items():
            text = text.replace(key, value)
        by_model = any(self.kernels[k].source.origin is Author.MODEL for k in used)
        origin = Author.MODEL if by_model else first.source.origin
        return Source(dsl=first.source.dsl, files={"kernel.py": text, **files}, origin=origin)

    def verified(self, verifier: Verifier, target: Target, options: VerifyOptions) -> VerifiedKernel:
        """Verify all of them as one kernel, and return it with its verdict. Raises as :meth:`Verifier.verify`."""
        sides = tuple({self.dim: size} for switch in self.switches for size in (switch - 1, switch))
        options = options.model_copy(update={"sizes": (*options.sizes, *sides)})
        outcome = verifier.verify(self.task, self.source, target, options=options)
        switched = [Switched(dim=self.dim, starts=self.switches)] if outcome.passed and self.switches else []
        verdict = outcome.model_copy(update={"conditions": conditions_of(outcome.conditions, switched)})
        dim = next(d for d in self.task.dims if d.name == self.dim)
        where = f"{self.kernels[0].target}, {dim.name} from {dim.min} to {dim.max}"
        if self.switches:
            where += f" with the sizes on both sides of {' and '.join(map(str, self.switches))}"
        return VerifiedKernel(self.kernels[0].name, self.task, self.source, verdict, self.kernels[0].backend, where)


def joined(kernels: Sequence[VerifiedKernel], choice: Choice | None = None) -> Joined:
    """Return ``kernels`` joined with the choice of the operator's runtime: by ``choice``, or the kernel of the
    narrowest range that accepts a size. If ``choice`` is eager, the kernel that would otherwise run takes its place.

    Raises:
        KernellabError: they cannot be one source: different languages, several Dims that differ, sizes that none
        accepts.
    """
    first = kernels[0]
    for other in kernels[1:]:
        check_same(first, reference_text(first.task), other)
    for what, values in (
        ("languages", {k.source.dsl for k in kernels}), ("devices", {k.backend for k in kernels}),
        ("dtypes", {tuple(a.dtype for a in k.task.args) for k in kernels}),
    ):  # fmt: skip
        if len(values) > 1:
            raise _apart(f"they are of several {what}")
    if any(sum(name.endswith(".py") for name in k.source.files) > 1 for k in kernels):
        raise _apart("one has several files of Python")
    ranges = [{d.name: d for d in k.task.dims} for k in kernels]
    differ = [name for name in ranges[0] if len({one.get(name) for one in ranges}) > 1]
    dim = choice.dim if choice is not None else differ[0] if differ else ""
    if set(differ) - {dim} or not dim:
        raise _apart(f"their ranges of {' and '.join(differ)} differ" if dim else "nothing of their shapes differs")
    at = [one[dim] for one in ranges]
    starts = tuple(_starts(at, choice))
    return Joined(tuple(kernels), dim, starts, _over(first.task, at))


def _starts(at: Sequence[Dim], choice: Choice | None) -> Iterator[tuple[int, int]]:
    low, high = min(d.min for d in at), max(d.max for d in at)
    starts = choice.starts if choice is not None else ()
    ends = {n for d in at for n in (d.min, d.max + 1)} | {start for start, _ in starts} | {low, high + 1}
    before: int | None = None
    for start, end in pairwise(sorted(n for n in ends if low <= n <= high + 1)):
        takers = [k for k, d in enumerate(at) if d.min <= start and end - 1 <= d.max]
        if not takers:
            raise _apart(f"none takes {at[0].name} from {start} to {end - 1}")
        picked = next((k for least, k in reversed(starts) if least <= start), None)
        if picked not in takers:
            narrowest = min(takers, key=lambda k: at[k].max - at[k].min)
            picked = before if starts and picked is None and before in takers else narrowest
        assert picked is not None
        if picked != before:
            yield start, picked
        before = picked


def _over(task: Task, at: Sequence[Dim]) -> Task:
    """Return ``task`` over the range of all of them."""
    name, low, high = at[0].name, min(d.min for d in at), max(d.max for d in at)
    if all(d == at[0] for d in at):
        return task
    if not isinstance(task.module().namespace.get(name), Dim):
        raise _apart(f"the task names its Dim {name} otherwise")
    text = f"{task.text}\n\n{name} = type({name})({name!r}, {low}, {high})\n"
    return replace(load_task(text, task.name), fidelity=task.fidelity, rounded=task.rounded)


def _size_of(task: Task, dim: str) -> str:
    """Return Python that reads the size of ``dim`` from the arguments."""
    from kernellab.export.runtime.guards import value_of

    extents = [(a.name, i, str(e)) for a in task.tensors for i, e in enumerate(a.shape)]
    for argument, axis, extent in extents:
        if extent == dim:
            return f"{argument}.shape[{axis}]"
    for argument, axis, extent in extents:
        base, one, two = (value_of(extent, {dim: n}) for n in range(3))
        if None not in (base, one, two) and two - one == one - base != 0:
            return f"({argument}.shape[{axis}] - {base}) // {one - base}"
    raise _apart(f"no shape says the size of {dim}")


def _apart(why: str) -> KernellabError:
    return KernellabError(f"These kernels cannot be verified as one: {why}.", "Each keeps the verdict that it has.")
