"""A right sketch in the languages of kernel engineers: Triton, CUDA C++ and Gluon, as the rules lower it.

An answer's card shows these next to the sketch, with a line of code linked to the sketch's line that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kernellab.errors import KernellabError
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.program import Gemm, Program
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task
from kernellab.teach.read.dry_calls import COURSE_GPU


@dataclass(frozen=True)
class Translation:
    """A sketch in another language; ``lines`` leads from a line of ``code`` to the sketch's line it comes from.
    ``missing`` says why there is no code."""

    language: str
    code: str = ""
    lines: Mapping[int, int] = field(default_factory=dict)
    missing: str = ""


def translations(text: str, task: Task) -> list[Translation]:
    """A right sketch as the rules lower it: what a kernel engineer would read. Languages that the rules cannot lower it
    to are left out; a product that has no form in Gluon says why."""
    from kernellab.lowering import lower
    from kernellab.lowering.embedded_sketch import bare
    from kernellab.session.edits import main_file
    from kernellab.sketch.check import load_program

    chip = find_chip(COURSE_GPU)
    if chip is None:
        return []
    program, codes = load_program(text), []
    for language, dsl in (("Triton", "triton"), ("CUDA C++", "cuda_c")):
        target = Target(dsl=dsl, backend=Backend.CUDA, chip=chip)
        with suppress(KernellabError):
            source = bare(lower(program, bind(program, task, {}, target), target))
            file = main_file(source)
            codes.append(Translation(language, source.files[file], source.line_map.get(file, {})))
    return [*codes, *_gluon(program, task, Target(dsl="triton", backend=Backend.CUDA, chip=chip))]


def _gluon(program: Program, task: Task, target: Target) -> list[Translation]:
    """The part that the rules write in Gluon. Only a product has one, and only where its hints ask for it."""
    from kernellab.lowering.triton.source import in_gluon, why_not_asynchronous
    from kernellab.sketch.program.walk import statements

    if not any(isinstance(step, Gemm) for kernel in program.kernels for step in statements(kernel.body)):
        return []
    binding = bind(program, task, {}, target)
    code, lines = in_gluon(program, binding, target)
    if code:
        return [Translation("Gluon", code, lines)]
    reasons = why_not_asynchronous(program, binding, target)
    return [Translation("Gluon", missing="; ".join(f"{name}: {why}" for name, why in reasons.items()))]
