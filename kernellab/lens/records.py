"""Records of the lens: levels of one source's compilation, links between lines, and facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, order=True)
class Link:
    """A line of the source and a line of a level that comes from it, both from 1."""

    source: int
    level: int


@dataclass(frozen=True)
class Level:
    """One text of the compiler: ``name`` is ttir, ttgir, llir, ptx, sass, asm, gimple; ``lines`` are its links.

    ``language`` selects an editor's syntax colours; ``title`` is the name for people."""

    name: str
    text: str
    lines: tuple[Link, ...] = ()
    language: str = "asm"
    title: str = ""

    @cached_property
    def down(self) -> Mapping[int, tuple[int, ...]]:
        """Return the lines of the level by line of the source."""
        links = defaultdict[int, list[int]](list)
        for link in sorted(set(self.lines)):
            links[link.source].append(link.level)
        return {line: tuple(there) for line, there in links.items()}

    @cached_property
    def up(self) -> Mapping[int, tuple[int, ...]]:
        """Return the lines of the source by line of the level."""
        links = defaultdict[int, list[int]](list)
        for link in sorted(set(self.lines)):
            links[link.level].append(link.source)
        return {line: tuple(there) for line, there in links.items()}


@dataclass(frozen=True)
class Fact:
    """One figure of a kernel and its meaning, in a sentence. ``kernel`` is "" if the source has only one."""

    name: str
    value: str
    sentence: str
    kernel: str = ""


@dataclass(frozen=True)
class Lens:
    """A source, its compiled forms for ``target``, and facts from them.

    ``file`` is the linked file of the source, ``text`` its text. ``notes`` name what is missing, and why."""

    file: str
    text: str
    target: str
    levels: tuple[Level, ...] = ()
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def level(self, name: str) -> Level | None:
        return next((level for level in self.levels if level.name == name), None)

    @property
    def names(self) -> list[str]:
        return [level.name for level in self.levels]
