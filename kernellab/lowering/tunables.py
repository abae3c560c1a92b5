"""The tunables of a lowered source that can be set in its text.

A lowering may merge loops, share tiles or drop a mask because of a tunable's value; another value in the same text
would be wrong then, or overrun memory. A tunable is free if lowering at each of its other choices gives the same text
except for the line that defines it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest

from kernellab.errors import LoweringError
from kernellab.records import Source
from kernellab.sketch.program.binding import Binding
from kernellab.sketch.program.program import Constexpr, Program

#: estimates that a lowering derives from a tunable's value and that do not change results
_SPEED = re.compile(r"^ *#pragma omp parallel for[^\n]*$|, num_(?:warps|stages)=\d+", re.MULTILINE)
#: most tunables and kernels of a program that is tried; those of a larger one count as fixed, since each costs a
#: lowering
_MOST, _MOST_KERNELS = 6, 4


def fixed_tunables(program: Program, binding: Binding, lowered: Callable[[Binding], Source]) -> frozenset[str]:
    """Return the tunables whose other choices cannot be set in the text that ``lowered`` returns for ``binding``."""
    tunables = [c for c in program.constexprs if c.choices and c.name not in binding.scalars]
    names = frozenset(c.name for c in tunables)
    if not tunables or len(tunables) > _MOST or len(program.kernels) > _MOST_KERNELS:
        return names
    text = lowered(binding)

    def takes(values: dict[str, int | float]) -> bool:
        try:
            other = lowered(replace(binding, constexpr={**binding.constexpr, **values}))
        except LoweringError:
            return False
        return _same_but(text, other, frozenset(values))

    free = [c for c in tunables if all(takes({c.name: value}) for value in _others(c, binding))]
    together = {c.name: next(_others(c, binding), c.choices[0]) for c in free}
    return names if len(free) > 1 and not takes(together) else names - set(together)


def choices_text(constexpr: Constexpr, binding: Binding) -> str:
    """Return the comment next to a value that lists the other choices; "" if there are none."""
    if not constexpr.choices:
        return ""
    choices = ", ".join(map(str, constexpr.choices))
    return f"fixed here; the sketch takes {choices}" if constexpr.name in binding.held else f"one of {choices}"


def _others(constexpr: Constexpr, binding: Binding) -> Iterator[int | float]:
    return (value for value in constexpr.choices if value != binding.constexpr[constexpr.name])


def unhinted(text: str) -> str:
    """Return ``text`` without numbers that affect only the speed: the work from which threads start, and the number of
    warps."""
    return _SPEED.sub("", text)


def _same_but(a: Source, b: Source, names: frozenset[str]) -> bool:
    """Do the files differ only in lines that give one of ``names`` its value?"""
    definition = re.compile(rf"\s*(?:constexpr \w+ )?(?P<name>{'|'.join(map(re.escape, sorted(names)))})_? = ")
    if a.files.keys() != b.files.keys():
        return False
    for file, text in a.files.items():
        if text == b.files[file]:
            continue
        for line, other in zip_longest(unhinted(text).split("\n"), unhinted(b.files[file]).split("\n")):
            if line == other:
                continue
            here, there = (definition.match(each or "") for each in (line, other))
            if here is None or there is None or here["name"] != there["name"]:
                return False
    return True


__all__ = ["choices_text", "fixed_tunables", "unhinted"]
