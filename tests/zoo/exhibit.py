"""An exhibit: the card at the top of its file, its source, and the task it is shown with."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kernellab.records import Author, Source, Stage
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

from .short import TABLE, Short
from .sound import Sound, sound

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent
KINDS = ("cheats", "errors", "honest")
_CARD = re.compile(r"^# /// zoo\n(?P<body>(?:#.*\n)+?)# ///$", re.MULTILINE)

Place = Literal["cpu", "gpu"]


class Card(BaseModel):
    """What an exhibit says of itself.

    ``dsl`` is a DSL of kernellab, or ``torch`` for code whose point lies in Python: it is shown as ``cpp`` on a CPU and
    as ``triton`` on a GPU, with the framework's operators allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    dsl: Literal["torch", "cpp", "triton", "cuda_c", "numba"]
    #: who did this, and why it works elsewhere
    story: str
    #: what in our Verifier meets it
    detector: str = ""
    #: numbers in catalogue.toml
    catalogue: tuple[int, ...] = ()
    #: the stage that should refuse it; None for what should pass
    expect: Stage | None = None
    #: the same in Triton's interpreter, where that says less; "pass" where nothing can be seen there
    interpreted: Stage | Literal["pass"] | None = None
    #: the same on a GPU, where another stage meets it first
    on_gpu: Stage | None = None
    signature: str = ""
    #: a label or the beginning of a flag that the verdict of an honest kernel must carry
    label: str = ""
    #: a part of a label that the verdict of a wrong kernel must carry where it passes; "|" between alternatives
    told: str = ""
    #: why a cheat that passes has gained nothing by it; such a pass counts as right and is shown as "harmless"
    harmless: str = ""
    where: tuple[Place, ...] = ("cpu",)
    #: are the framework's operators allowed? always so for ``torch`` unless the card says no
    library: bool | None = None
    threads: int = 1
    #: seconds of a verification, on a machine that does much else
    deadline: float = 120.0
    #: seconds of timing
    budget: float = 0.05
    origin: Author = Author.HUMAN

    @property
    def allow_library(self) -> bool:
        return self.dsl == "torch" if self.library is None else self.library


@dataclass(frozen=True)
class Exhibit:
    name: str
    kind: str
    card: Card
    files: tuple[tuple[str, str], ...] = ()
    #: the suite task whose kernel our rules write; such an exhibit has no file
    lowered: str = ""
    #: a row of the table of short ones, which has its task in it
    short: Short | Sound | None = None

    @property
    def honest(self) -> bool:
        return self.kind == "honest"

    @property
    def task(self) -> Task:
        if self.lowered:
            from kernellab.bench.suites import load_suite

            item = next(i for i in load_suite("builtin") if i.name == self.lowered)
            return load_task(item.text, item.name)
        return self.short.task if self.short is not None else task_named(self.card.task)

    def target(self, place: Place) -> Target:
        chip = Chip("zoo", "cpu", 2) if place == "cpu" else _gpu()
        # Python alone has no DSL of its own: any that runs there will do
        stand_in = "cpp" if place == "cpu" else "triton"
        dsl = stand_in if self.card.dsl == "torch" else self.card.dsl
        if place == "gpu":
            return Target(dsl, Backend.CUDA, chip)
        return Target(dsl, Backend.INTERPRETER if dsl == "triton" else Backend.CPU, chip)

    def source(self, place: Place) -> Source:
        if self.lowered:
            return _lowered(self.task, self.target(place))
        return Source(dsl=self.target(place).dsl, files=dict(self.files), origin=self.card.origin)

    def expected(self, place: Place) -> Stage | None:
        """The stage that should refuse it there; None when it should pass."""
        if self.target(place).backend is Backend.INTERPRETER and self.card.interpreted is not None:
            return None if self.card.interpreted == "pass" else self.card.interpreted
        if place == "gpu" and self.card.on_gpu is not None:
            return self.card.on_gpu
        return self.card.expect


@cache
def exhibits() -> tuple[Exhibit, ...]:
    """All of them, by kind and name.

    Raises:
        ValueError: a file without a card, or a card that does not fit its folder.
    """
    found = [_read(kind, path) for kind in KINDS for path in _files(kind)] + list(_from_rules()) + list(_from_table())
    names = [e.name for e in found]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError(f"two exhibits are named {sorted(twice)}")
    return tuple(found)


@cache
def task_named(name: str) -> Task:
    return load_task((ROOT / "tasks" / f"{name}.py").read_text(), name)


def _files(kind: str) -> Iterator[Path]:
    for path in sorted((ROOT / kind).iterdir()):
        if path.suffix == ".py" or (path / "kernel.py").exists():
            yield path


def _read(kind: str, path: Path) -> Exhibit:
    if path.is_dir():
        files = {p.name: p.read_text() for p in sorted(path.iterdir()) if p.is_file()}
    else:
        files = {"kernel.py": path.read_text()}
    card = read_card(files["kernel.py"], path)
    if (kind == "honest") != (card.expect is None):
        raise ValueError(f"{path}: expect is for cheats and errors, and they need one")
    if kind == "cheats" and not card.catalogue:
        raise ValueError(f"{path}: a cheat names its numbers of the catalogue")
    return Exhibit(path.stem, kind, card, tuple(files.items()))


def read_card(text: str, path: Path) -> Card:
    match = _CARD.search(text)
    if match is None:
        raise ValueError(f"{path} has no card (# /// zoo ... # ///)")
    body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in match["body"].splitlines())
    fields = tomllib.loads(body)
    return Card.model_validate({k: " ".join(v.split()) if isinstance(v, str) else v for k, v in fields.items()})


#: tasks of the built-in suite whose kernels our own rules write
LOWERED = {
    "cpp": (
        "softmax", "rms_norm", "layer_norm", "matmul", "row_sum", "cumsum", "argmax", "swiglu", "mse", "column_sum",
        "batched", "logsumexp", "adam_step", "group_norm",
    ),
    "triton": (
        "softmax", "rms_norm", "layer_norm", "matmul", "row_sum", "cumsum", "log_softmax", "swiglu", "kl_div",
        "masked_fill_scale", "l2_normalise", "hardswish_clamped", "row_max_abs", "row_variance",
    ),
}  # fmt: skip


def _from_rules() -> Iterator[Exhibit]:
    for dsl, names in LOWERED.items():
        for name in names:
            card = Card.model_validate(
                {
                    "task": name, "dsl": dsl, "origin": Author.RULES,
                    "story": "Written by the rules from the Designer's first sketch.",
                    "where": ("cpu", "gpu") if dsl == "triton" else ("cpu",),
                    # tasks at their full size, on a machine that does much else
                    "deadline": 180.0,
                }
            )  # fmt: skip
            yield Exhibit(f"rules_{dsl}_{name}", "honest", card, lowered=name)


def _from_table() -> Iterator[Exhibit]:
    for short in TABLE:
        card = Card(
            task=short.name, dsl="cpp", expect=short.expect, told=short.told, library=True,
            story="A plain bug." if short.plain else "What a search that is rewarded for low times would find.",
        )  # fmt: skip
        yield Exhibit(short.name, "errors", card, (("kernel.py", short.source()),), short=short)
    for name, dsl, source, one in sound():
        card = Card.model_validate({
            "task": name, "dsl": dsl, "library": dsl == "torch",
            "where": ("cpu", "gpu") if dsl == "triton" else ("cpu",),
            "story": "A right kernel of a few lines.",
        })  # fmt: skip
        yield Exhibit(name, "honest", card, (("kernel.py", source),), short=one)


def _lowered(task: Task, target: Target) -> Source:
    from kernellab.agents.briefs import DesignBrief
    from kernellab.agents.rules.designer import RulesDesigner
    from kernellab.lowering import lower
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.bind import bind

    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    program = load_program(reply.sketch, constexpr=reply.constexpr)
    return lower(program, bind(program, task, reply.constexpr, target), target)


@cache
def _gpu() -> Chip:
    import torch

    from kernellab.target.chips import find_chip

    name = torch.cuda.get_device_name()
    return find_chip(name) or Chip(name, "gpu", 132)


class Catalogued(BaseModel):
    """One exploit of the catalogue, and why it is not shown where it is not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    name: str
    #: why no exhibit shows it
    out_of_reach: str = ""


class Catalogue(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    exploit: tuple[Catalogued, ...] = Field(min_length=1)


def catalogue() -> tuple[Catalogued, ...]:
    return Catalogue.model_validate(tomllib.loads((ROOT / "catalogue.toml").read_text())).exploit
