"""What Triton's compiler for a GPU makes of a kernel that is right in the interpreter, which runs any Python.

The kernel is called dry, without a GPU: its host code runs, its kernels are compiled, and Triton's interpreter runs the
same launches, which are compared.
"""

from __future__ import annotations

from typing import NamedTuple

from kernellab.errors import JudgeBusy, Killed, Overtime, SessionError
from kernellab.lens.dry.records import Answer
from kernellab.records import Source
from kernellab.target.chips import find_chip
from kernellab.task import Task
from kernellab.teach.exercise import Goals
from kernellab.teach.goals import largest_sizes

#: the chip that Triton and CUDA C++ are compiled for in the course
COURSE_GPU = "NVIDIA H100"
#: seconds of the processor's time that a dry call may use: 6 were needed at most
_DRY_SECONDS = 60
#: and after which not all programs are watched, unless it is asked how many share the work
_WATCHED_SECONDS = 2
#: programs that any kernel has, at least: counted at the task's own sizes, and in what is watched
_SOME = 4


class DryCalls(NamedTuple):
    """The calls at the task's own sizes and, where a goal depends on sizes, at the largest; ``refused``: why one is
    none of a GPU's, "" where all are."""

    calls: list[Answer]
    refused: str


def dry_calls(source: Source, task: Task, goals: Goals) -> DryCalls:
    """The dry calls of a kernel in Triton that the goals are counted in.

    Raises:
        JudgeBusy: the machine ended the compiler.
        Overtime: the answer took longer than a limit.
    """
    from kernellab.lens.gpu.look import watched
    from kernellab.lens.look import arguments

    chip = find_chip(COURSE_GPU)
    assert chip is not None, COURSE_GPU
    asks_for_sharing = goals.programs is not None or (goals.parallel or 0) > _SOME
    depends_on_sizes = asks_for_sharing or "tile" in goals.model_fields_set
    watched_seconds = _DRY_SECONDS if asks_for_sharing else _WATCHED_SECONDS
    try:
        call_inputs = [arguments(task), *([arguments(task, largest_sizes(task))] if depends_on_sizes else [])]
        calls = watched(source, call_inputs, chip, _DRY_SECONDS, watched_seconds)
    except Killed as error:
        raise JudgeBusy(error.message, error.remedy) from None
    except Overtime:
        raise
    except SessionError as error:  # it takes too long to compile, or ends the compiler
        return DryCalls([], error.message)
    return DryCalls(calls, next(filter(None, map(differs, calls)), ""))


def differs(call: Answer) -> str:
    """Why a call is none of a GPU's: the compiler refuses it, or the interpreter launches something else."""
    ran = call.ran
    if call.refused or not call.kernels or ran is None or ran.error:
        return call.refused
    if ran.launches == call.calls:
        return ""
    here, there = (", ".join(f"{name} {tuple(grid)}" for name, grid in one[:4]) for one in (ran.launches, call.calls))
    return f"the interpreter launches {here or 'nothing'} where the compiler is given {there}."
