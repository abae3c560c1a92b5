"""What a reader makes of a suite: tasks, as texts that any process can run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernellab.task.call_inputs.cases import LISTS

_SYMBOLIC = re.compile(rf"\bDim\(|^def ({'|'.join(LISTS)})\(|\.cases$", re.M)


@dataclass(frozen=True)
class SuiteTask:
    """``name`` can name a session; ``title`` is what the suite calls it; no category means: see the graph.

    A ``large`` task is meant for a GPU. ``note`` says what the reader decided, where the suite leaves something open.
    """

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
        """What tells the task from others of its suite."""
        return self.shown, self.category

    @property
    def dynamic(self) -> bool:
        """Whether the task declares symbolic dimensions, or lists cases that may differ in their extents."""
        return _SYMBOLIC.search(self.text) is not None


@dataclass(frozen=True)
class Asked:
    """What is asked of a reader: ``rest`` is what stands behind the suite's name, ``levels`` are KernelBench's."""

    rest: str
    levels: Sequence[int] = ()


#: gives the tasks in order, each with the place that --only looks at
Reader = Callable[[Asked], list[tuple[str, SuiteTask]]]
