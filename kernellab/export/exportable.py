"""A verified kernel for export: its task, its source, its verdict, and the calls that it accepts."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab import python_tree
from kernellab.conditions import AlignmentLimit, Domain, DrawnLimit, ScalarLimit, Stated, StridesLimit, of
from kernellab.dsls.text import imported
from kernellab.errors import KernellabError
from kernellab.records import Source, Verdict
from kernellab.target import Backend
from kernellab.task import Task
from kernellab.task.policy import read_domain

#: packages all of whose launches go through Triton's launcher, and ways in which other code may run
_SEEN = frozenset({"torch", "triton", "numpy"})
_OTHER_LAUNCHES = re.compile(r"\b(?:ctypes|cpp_extension|load_inline)\b")


@dataclass(frozen=True)
class VerifiedKernel:
    """``target`` describes where it was verified; ``name`` is that of the module and the operator."""

    name: str
    task: Task
    source: Source
    verdict: Verdict
    backend: Backend
    target: str
    sketch: str | None = None

    @property
    def device(self) -> str:
        return "cuda" if self.backend is Backend.CUDA else "cpu"

    def facts(self, folder: str) -> dict[str, Any]:
        """The shape class of the runtime (``runtime/guards.py``), with its files in ``folder``.

        Raises:
            KernellabError: it contains parameters, or values of an argument, so that it is not a function of its
            arguments.
        """
        self._check_is_function()
        conditions = self.verdict.conditions
        return {
            "folder": folder,
            "entry_file": self.source.entry_file,
            "entry": self.source.entry,
            "dsl": self.source.dsl,
            "device": self.device,
            "parameters": [self._parameter(i) for i in range(len(self.task.args))],
            "dims": {d.name: [d.min, d.max] for d in self.task.dims},
            "layout": self._layout(),
            "expanded": not self.verdict.marked("expanded-inputs-unsupported"),
            "shared": not self.verdict.marked("tensor-given-twice"),
            "alignment": max((c.bytes for c in of(conditions, AlignmentLimit)), default=1),
            "only": self._only(),
            "domain": self._domain(),
            "intervals": self._intervals(),
            "magnitudes": self._magnitudes(),
            "not_nan": sorted({c.argument for c in of(conditions, DrawnLimit) if c.not_nan}),
            "repeatable": repeatable(self.source, self.backend),
            "interpreted": self.backend is Backend.INTERPRETER,
            "verified": self.summary,
        }

    def _check_is_function(self) -> None:
        """Raise KernellabError unless the kernel is right as a function of its arguments."""
        if self.verdict.marked("constructor-parameters"):
            raise KernellabError(
                f"{self.name}'s kernel is right with the parameters of its constructor only, and cannot be exported.",
                "Let it read the parameters that it is given, and verify it again.",
            )
        left_out = [c.argument for c in of(self.verdict.conditions, ScalarLimit) if not c.taken]
        if left_out:
            raise KernellabError(
                f"{self.name}'s kernel has no parameter {left_out[0]}, and is not exported.",
                "Give it that parameter, and verify it again.",
            )
        if any(of(self.verdict.conditions, Stated)):
            raise KernellabError(
                f"{self.name}'s verdict is of an earlier format, which does not say what limits the kernel has.",
                "Verify it again.",
            )
        built_in = [c.argument for c in of(self.verdict.conditions, DrawnLimit) if c.built_in]
        if built_in:
            raise KernellabError(
                f"{self.name}'s kernel is right for the task's own values of {built_in[0]} only, and is not exported.",
                f"Let it read {built_in[0]}, and verify it again.",
            )

    @property
    def summary(self) -> str:
        """Return what was verified, and where, in one line."""
        figures = "".join(f", {part}" for part in (self.verdict.text, self.verdict.short_advice) if part)
        labels = f" ({self.verdict.label})" if self.verdict.label else ""
        return f"{self.target}: trust {self.verdict.trust.value}{labels}{figures}; source {self.source.hash}"

    def _parameter(self, position: int) -> dict[str, Any]:
        arg = self.task.args[position]
        kind = "tensor" if arg.is_tensor else "scalar"
        default = arg.default if not arg.is_tensor else None
        return {"name": arg.name, "kind": kind, "dtype": arg.dtype, "shape": list(arg.shape), "default": default}

    def _layout(self) -> str:
        limits = {c.contiguous for c in of(self.verdict.conditions, StridesLimit)}
        return "contiguous" if "all" in limits else "rows" if "rows" in limits else "any"

    def _only(self) -> Mapping[str, Any]:
        if self.backend is Backend.INTERPRETER:
            # other numbers are not tried if a call takes seconds
            return {arg.name: arg.value for arg in self.task.args if not arg.is_tensor}
        return {c.argument: c.value for c in of(self.verdict.conditions, ScalarLimit)}

    def _domain(self) -> Mapping[str, Sequence[str]]:
        """Return the task's domains of values, each with its arguments."""
        read = {name: read_domain(text) for name, text in self.task.domain.items()}
        return {n: [d.word, *d.arguments] for n, d in read.items() if d is not None and d.word not in ("real", "fixed")}

    def _intervals(self) -> Mapping[str, Any]:
        """Return the least and the greatest value (None without a limit) outside of which the Verifier found it
        wrong."""
        conditions = self.verdict.conditions
        refuted = [c for c in of(conditions, Domain) if c.refuted]
        limits: list[Domain | DrawnLimit] = [*of(conditions, DrawnLimit), *refuted]
        intervals: dict[str, list[float | None]] = {}
        for argument in dict.fromkeys(c.argument for c in limits):
            lows = [c.low for c in limits if c.argument == argument and c.low is not None]
            highs = [c.high for c in limits if c.argument == argument and c.high is not None]
            if lows or highs:
                intervals[argument] = [max(lows, default=None), min(highs, default=None)]
        return intervals

    def _magnitudes(self) -> Mapping[str, float]:
        """Return the smallest nonzero magnitude of each argument for which the kernel is right."""
        limits = [c for c in of(self.verdict.conditions, DrawnLimit) if c.least is not None]
        return {c.argument: max(o.least or 0.0 for o in limits if o.argument == c.argument) for c in limits}


@dataclass(frozen=True)
class Choice:
    """The choice among several kernels of one task by the size of a Dim: ``starts`` has the least size of each range
    and the kernel's index, None for the reference if it was faster or no kernel was shown to be as fast."""

    dim: str
    starts: tuple[tuple[int, int | None], ...]

    def words(self, names: Sequence[str]) -> list[str]:
        """Return each range and the name of what runs in it."""
        return [f"{self.dim} from {at}: {'eager' if k is None else names[k]}" for at, k in self.starts]


def repeatable(source: Source, backend: Backend | None) -> bool:
    """Does the launcher of ``runtime/`` see all its launches, so that it may replay them?"""
    plain = not any(_OTHER_LAUNCHES.search(text) for text in source.files.values())
    return source.dsl == "triton" and backend is Backend.CUDA and plain and packages_of(source) <= _SEEN


def packages_of(source: Source) -> set[str]:
    """Return the packages that its Python files import, without the standard library and the source's files."""
    own = {Path(file).parts[0].removesuffix(".py") for file in source.files}
    texts = [text for file, text in source.files.items() if file.endswith(".py")]
    names = {name for text in texts for name in imported(python_tree.parse(text))}
    return names - own - sys.stdlib_module_names
