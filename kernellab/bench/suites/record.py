"""Records of a suite's reader: tasks, as texts that any process can run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernellab.task.call_inputs.cases import LISTS

_SYMBOLIC = re.compile(rf"\bDim\(|^def ({'|'.join(LISTS)})\(|\.cases$", re.M)


@dataclass(frozen=True)
class SuiteTask:
    """``name`` can name a session; ``title`` is the name in the suite; without a category the graph determines it.

    A ``large`` task is for a GPU. ``note`` has the reader's decisions on what the suite leaves open."""

    name: str
    category: str
    text: str
    title: str = ""
    large: bool = False
    note: str = ""

    @property
    def shown(self) -> str:
        return self.title or self.name

    @property
    def key(self) -> tuple[str, str]:
        """The task's unique key in its suite."""
        return self.shown, self.category

    @property
    def dynamic(self) -> bool:
        """Does the task declare symbolic dimensions, or list cases that may differ in their extents?"""
        return _SYMBOLIC.search(self.text) is not None


@dataclass(frozen=True)
class Asked:
    """The request to a reader: ``rest`` is the text after the suite's name, ``levels`` are KernelBench's."""

    rest: str
    levels: Sequence[int] = ()


#: yields the tasks in order, each with the path that --only matches
Reader = Callable[[Asked], list[tuple[str, SuiteTask]]]
