"""What the tests of lifting share: built-in tasks, lowered by the rules for three targets, and edits of the result."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import BUILTIN
from kernellab.lowering import lower
from kernellab.records import Source
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.target import Backend, Chip, Target
from kernellab.task import Task, load_task

CPU = Target("cpp", Backend.CPU, Chip("a CPU", "cpu", 2, simd_bits=512, l1_bytes=48 << 10, l2_bytes=1 << 21))
_CHIP = Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536)
TARGETS = {"triton": Target("triton", Backend.CUDA, _CHIP), "cpp": CPU, "cuda_c": Target("cuda_c", Backend.CUDA, _CHIP)}
INTERPRETER = Target("triton", Backend.INTERPRETER, _CHIP)

_OPERATORS = {"+": "-", "-": "+", "*": "+", "<": "<=", ">": "<", "+=": "-="}
_WORDS = {"exp": "log", "max": "min", "maximum": "minimum", "i": "j", "j": "i", "m": "n", "n": "m", "float": "double"}


@lru_cache(maxsize=64)
def task_of(name: str) -> Task:
    return load_task(BUILTIN / f"{name}.py")


@lru_cache(maxsize=256)
def designed(name: str, dsl: str) -> str:
    return RulesDesigner().design(DesignBrief(task_of(name), TARGETS[dsl])).sketch


@lru_cache(maxsize=256)
def lowered(name: str, dsl: str) -> Source:
    return source_of(designed(name, dsl), task_of(name), TARGETS[dsl])


def source_of(text: str, task: Task, target: Target) -> Source:
    program = load_program(text)
    return lower(program, bind(program, task, {}, target), target)


def code_of(source: Source) -> dict[str, str]:
    """Each file's code: no comments, no layout beyond the indentation of Python."""
    return {name: _code(name, text) for name, text in source.files.items()}


def _code(name: str, text: str) -> str:
    if name.endswith(".py"):
        lines = [re.split(r"\s+# |^\s*#", line)[0].rstrip() for line in text.split("\n")]
        return "\n".join(line for line in lines if line and not line.startswith('"""'))
    return "\n".join(line for line in (raw.split("//")[0].strip() for raw in text.split("\n")) if line)


@dataclass(frozen=True)
class Edit:
    """One token of the code changed."""

    source: Source
    file: str
    line: int
    old: str
    new: str


def edits(source: Source, seed: int, most: int) -> Iterator[Edit]:
    """Changes of a number, an operator or a name, anywhere in the kernels and the host function."""
    places: list[tuple[str, int, int, int, str]] = []
    for file, text in source.files.items():
        if file.endswith(".h"):
            continue
        for n, line in enumerate(text.split("\n")):
            code = line.split("  # ")[0] if file.endswith(".py") else line.split("//")[0]
            if code.lstrip().startswith(("#", '"""', "raise", "import", "from")):
                continue
            for m in re.finditer(r"\b\d+(?:\.\d+)?(?:e-?\d+)?|\+=|(?<= )[-+*<>](?= )|(?<!\\)\b[a-z]+\b", code):
                if m[0] in _OPERATORS or m[0] in _WORDS or m[0][0].isdigit():
                    places.append((file, n, m.start(), m.end(), m[0]))
    random.Random(seed).shuffle(places)
    for file, n, start, end, old in places[:most]:
        new = _OPERATORS.get(old) or _WORDS.get(old) or (str(int(old) + 1) if old.isdigit() else f"{float(old) * 2!r}")
        lines = source.files[file].split("\n")
        lines[n] = lines[n][:start] + new + lines[n][end:]
        changed = source.model_copy(update={"files": {**source.files, file: "\n".join(lines)}, "line_map": {}})
        yield Edit(changed, file, n + 1, old, new)
