"""What the lessons and tutorials use besides magics, by names that stay; each is imported on first use.

>>> from kernellab.lab import check, cost, code      # a sketch: its findings, its cost, what it is lowered to
>>> from kernellab.lab import space, band, table     # searches replayed on recorded spaces of kernels
>>> from kernellab.lab import memory                 # this workspace's memory of kernels
>>> from kernellab.lab import themed                 # a figure that can be read in both themes
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.agents.briefs import DesignReply
    from kernellab.evolve.lab.curves import USUAL, band, standing, table
    from kernellab.evolve.lab.pool import load as space
    from kernellab.evolve.lab.view import figure
    from kernellab.memory.memory import Memory
    from kernellab.notebook.learn.walk import walk
    from kernellab.notebook.saved.figures import themed
    from kernellab.sketch.check import check
    from kernellab.sketch.cost import Cost
    from kernellab.target import Chip
    from kernellab.task import Task

__all__ = [
    "USUAL",
    "DesignReply",
    "band",
    "check",
    "code",
    "cost",
    "figure",
    "memory",
    "space",
    "standing",
    "table",
    "themed",
    "walk",
]

_CURVES = "kernellab.evolve.lab.curves"
#: name -> module, and the name there where it differs
_PLACES = {
    "DesignReply": ("kernellab.agents.briefs", ""),
    "USUAL": (_CURVES, ""),
    "band": (_CURVES, ""),
    "check": ("kernellab.sketch.check", ""),
    "figure": ("kernellab.evolve.lab.view", ""),
    "space": ("kernellab.evolve.lab.pool", "load"),
    "standing": (_CURVES, ""),
    "table": (_CURVES, ""),
    "themed": ("kernellab.notebook.saved.figures", ""),
    "walk": ("kernellab.notebook.learn.walk", ""),
}


def cost(sketch: str, sizes: Mapping[str, int], chip: Chip | None = None) -> Cost:
    """A sketch's bytes, FLOPs and time by the roofline (ms) at ``sizes``, a number for each of its symbols.

    Raises:
        SketchError: the sketch has an error, or ``sizes`` leaves out a symbol.
    """
    from kernellab.errors import NotRunnable
    from kernellab.sketch.check import load_program
    from kernellab.sketch.cost import cost as estimate

    program = load_program(sketch)
    if left := sorted(set(program.symbols) - set(sizes)):
        raise NotRunnable(f"The symbol {left[0]} has no size.", f"Give it one, as in sizes={{'{left[0]}': 1024}}.")
    return estimate(program, sizes, chip=chip)


def code(sketch: str, task: str | Task, dsl: str = "cpp") -> dict[str, str]:
    """The files, name -> text, to which the rules lower ``sketch`` for a task: a text, or an exercise's task by name.

    Raises:
        SketchError, LoweringError, TargetError: it cannot be lowered.
        TaskError: there is no such task.
    """
    from kernellab.errors import TaskError
    from kernellab.task import load_task
    from kernellab.teach.exercise import course
    from kernellab.teach.judge import source_of

    if isinstance(task, str):
        text = task if "\n" in task else course().task_text(task)
        if text is None:
            raise TaskError(f"The course has no task {task!r}.", "Give a task's text, or an exercise's name.")
        task = load_task(text)
    return dict(source_of(sketch, task, dsl).files)


def memory() -> Memory:
    """The memory of kernels of the workspace that holds the current folder."""
    from kernellab.content import find_workspace
    from kernellab.memory.memory import Memory

    return Memory.open(find_workspace())


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'kernellab.lab' has no attribute {name!r}")
    module, there = _PLACES[name]
    globals()[name] = value = getattr(import_module(module), there or name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
