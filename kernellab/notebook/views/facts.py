"""What a view knows besides the journal: the operator's signature, the chip's roofs, and what a sketch costs.

These need the task to be loaded, which imports torch: a thread of the workbench's own gathers them, once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernellab.dsls.machine import named_chip
from kernellab.errors import KernellabError, TargetError
from kernellab.records import NO_BOUND
from kernellab.sketch.check import check
from kernellab.sketch.cost import Cost, cost
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import Program
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.evolve.state import RunState
    from kernellab.session import Session
    from kernellab.session.record.state import State

log = logging.getLogger("kernellab.notebook")

_COSTED = 512


@dataclass(frozen=True)
class Facts:
    """``sizes`` are those of the task's own Dims; ``shapes`` the shape of each argument in its own inputs."""

    task: Task | None = None
    target: Target | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    #: the task was looked for; ``task`` is None where it cannot be read
    gathered: bool = False
    #: something verified, or a baseline, is faster than the chip's roofs allow: they were measured badly
    passed: bool = False
    _sizes: dict[object, dict[str, int] | None] = field(default_factory=dict, repr=False, compare=False)
    _costs: OrderedDict[object, Cost | None] = field(default_factory=OrderedDict, repr=False, compare=False)
    _measured: dict[object, Facts] = field(default_factory=dict, repr=False, compare=False)

    @property
    def chip(self) -> Chip | None:
        return self.target.chip if self.target else None

    @property
    def roofs(self) -> str:
        """Where the chip's rates are from, in words."""
        if self.chip is None:
            return ""
        source = self.chip.source or f"the file of {self.chip.name} in knowledge/hardware"
        return f"{source}; {NO_BOUND}: something measured is faster" if self.passed else source

    def measured(self, state: State | RunState) -> Facts:
        """The same with the roofs that the judge of a session or search measured on this chip, once it has timed
        something."""
        verdict = state.rated(self.chip)
        if verdict is None or self.target is None:
            return self
        where = verdict.environment
        passed = verdict.least_ms is not None
        key = *where.rates.values(), passed
        measured_facts = self._measured.get(key)
        if measured_facts is None:
            target = self.target.at_rates(**where.rates)
            measured_facts = replace(self, target=target, passed=passed, _costs=OrderedDict(), _measured={})
            self._measured[key] = measured_facts
        return measured_facts

    @property
    def operator(self) -> str:
        return self.task.signature if self.task else ""

    @property
    def dims(self) -> dict[str, int]:
        """The task's own size of each Dim, where others can be chosen."""
        return {} if self.task is None or self.task.module().listed else self.task.module().default_sizes()

    def sizes(self, program: Program) -> dict[str, int] | None:
        """What the program's symbols are in the task's own inputs; None when they cannot be matched."""
        if self.task is None:
            return None
        # only the declarations matter, and a person edits them seldom
        key = program.symbols, program.tensors, tuple((c.name, c.value) for c in program.constexprs)
        if key not in self._sizes:
            try:
                binding = bind(program, self.task, {}, self.target)
                places = binding.sizes(lambda at, dim: self.shapes[at][dim])
                self._sizes[key] = {**binding.fixed, **places}
            except (KernellabError, IndexError):
                self._sizes[key] = None
        return self._sizes[key]

    def cost(self, program: Program, constexpr: Mapping[str, int | float] | None = None) -> Cost | None:
        """What the program costs at the task's own sizes on the target's chip; None when that cannot be said."""
        sizes = self.sizes(program)
        if sizes is None or any(symbol not in sizes for symbol in program.symbols):
            return None
        try:
            return cost(program, sizes, constexpr or {}, self.chip)
        except (KernellabError, ArithmeticError):
            return None

    def cost_of(self, sketch: str, constexpr: Mapping[str, int | float]) -> Cost | None:
        """The same for a text, remembered."""
        key = sketch, tuple(sorted(constexpr.items()))
        if key not in self._costs:
            program = check(sketch, chip=self.chip).program
            names = {c.name for c in program.constexprs} if program else set()
            values = {name: value for name, value in constexpr.items() if name in names}
            self._costs[key] = self.cost(program, values) if program else None
            while len(self._costs) > _COSTED:
                self._costs.popitem(last=False)
        return self._costs[key]


def gather(session: Session) -> Facts:
    """Of a session; see :func:`gathered`."""
    created = session.state.created
    return gathered(session.id, created.text, created.name, lambda: _designed_for(session))


def _designed_for(session: Session) -> Target:
    """The target that the session's turns found. On another machine than theirs its chip's facts are those of
    ``knowledge/hardware``, where they describe it. Raises TargetError."""
    target = session.state.target
    if target is None:
        return session.target
    with suppress(TargetError):
        if session.target.chip.name == target.chip:
            return session.target
    try:
        chip = replace(named_chip(target.chip), name=target.chip)
    except TargetError:
        return session.target
    return target.rated(Target(target.dsl, Backend(target.backend), chip))


def gathered(ident: str, text: str, name: str, find: Callable[[], Target]) -> Facts:
    """Of the session or search ``ident``, whose task has this text. Blocking: imports torch and runs the text. What
    is not available is left out."""
    target: Target | None = None
    task: Task | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    try:
        target = find()
        task = load_task(text, name)
        sizes = task.module().default_sizes()
        # from the task's own record: inputs may be larger than this machine's memory
        shapes = tuple(arg.extents(sizes) if arg.is_tensor else () for arg in task.args)
    except KernellabError as error:
        # it says itself what is wrong with its task; a view only shows less
        log.info("%s: %s", ident, error)
    return Facts(task, target, shapes, gathered=True)
