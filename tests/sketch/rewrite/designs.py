"""Designs of the built-in suite that the rewrites are tried on, and one variant of each rewrite of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.dsls.machine import named_chip
from kernellab.errors import KernellabError
from kernellab.sketch.rewrite import Rewritten, rewrites
from kernellab.target import Backend, Target
from kernellab.task import Task, load_task

#: one CPU and one GPU, never this machine's own
TARGETS = {
    "cpp": Target("cpp", Backend.CPU, named_chip("x86-avx512")),
    "triton": Target("triton", Backend.CUDA, named_chip("h200")),
}


@dataclass(frozen=True)
class Design:
    """One schedule of the rules; ``rank`` 0 is tried first."""

    task: Task
    dsl: str
    rank: int
    text: str
    target: Target


def places() -> list[str]:
    """Every task of the suite as ``category/title``."""
    return [f"{t.category}/{t.title}" for t in load_suite("builtin")]


def designs(place: str, most: int = 8, targets: Mapping[str, Target] = TARGETS) -> Iterator[Design]:
    """At most ``most`` schedules a target of one task; none where the rules refuse it."""
    found = next(t for t in load_suite("builtin") if f"{t.category}/{t.title}" == place)
    task = load_task(found.text, found.name)
    for dsl, target in targets.items():
        try:
            replies = RulesDesigner().designs(DesignBrief(task, target))
        except (KernellabError, StopIteration):
            continue
        for rank, reply in enumerate(replies[:most]):
            yield Design(task, dsl, rank, reply.sketch, target)


def variants(design: Design, name: str) -> list[Rewritten]:
    """What the rewrite ``name`` makes of a design."""
    return rewrites(design.text, design.target, [name])


def drawn(design: Design, name: str, seed: str) -> Rewritten | None:
    """One variant of a design, another with another seed."""
    found = variants(design, name)
    if not found:
        return None
    digest = hashlib.sha256(f"{seed}\0{design.task.name}\0{design.dsl}\0{design.rank}\0{name}".encode()).hexdigest()
    return found[int(digest[:8], 16) % len(found)]
