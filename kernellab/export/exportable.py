"""A verified kernel on its way out: what it computes, its source, what was said of it, and so when it may be called."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.dsls.text import imported
from kernellab.errors import KernellabError
from kernellab.records import Source, Verdict
from kernellab.target import Backend
from kernellab.task import Task

#: labels of the Verifier that name one number at which a kernel is right, and its flag where no other could be tried
_NUMBER = re.compile(r"(?:^|, |only )(\w+) = ([^,]+?)(?: only| was tried)(?:,|$)")
_RIGHT_FOR = re.compile(r"right for (.+?) only")
_DOMAIN = re.compile(r"(\w+) (in \[0, 1\]|>= 0|<= 0)")
_WORDS = {"in [0, 1]": "unit", ">= 0": "nonnegative", "<= 0": "nonpositive"}
#: packages whose launches are all seen by Triton's launcher, and how code comes in beside them
_SEEN = frozenset({"torch", "triton", "numpy"})
_OTHER_LAUNCHES = re.compile(r"\b(?:ctypes|cpp_extension|load_inline)\b")


@dataclass(frozen=True)
class VerifiedKernel:
    """``target`` says in words where it was verified; ``name`` becomes the module's and the operator's."""

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

    @property
    def labels(self) -> str:
        return self.verdict.label

    def facts(self, folder: str) -> dict[str, Any]:
        """The shape class of the runtime (``runtime/guards.py``), with its files in ``folder``.

        Raises:
            KernellabError: it holds parameters of its own, so that it is no function of its arguments.
        """
        if "parameters of its constructor only" in self.labels:
            raise KernellabError(
                f"{self.name}'s kernel is right with the parameters of its constructor only, and cannot be exported.",
                "Let it read the parameters that it is given, and verify it again.",
            )
        return {
            "folder": folder,
            "entry_file": self.source.entry_file,
            "entry": self.source.entry,
            "dsl": self.source.dsl,
            "device": self.device,
            "parameters": [self._parameter(i) for i in range(len(self.task.args))],
            "dims": {d.name: [d.min, d.max] for d in self.task.dims},
            "layout": self._layout(),
            "expanded": "expanded inputs not read" not in self.labels,
            "aligned": "aligned inputs only" in self.labels,
            "only": self._only(),
            "domain": self._domain(),
            "repeatable": repeatable(self.source, self.backend),
            "interpreted": self.backend is Backend.INTERPRETER,
            "verified": self.said,
        }

    @property
    def said(self) -> str:
        """What was verified where, in one line."""
        figures = f", {self.verdict.text}" if self.verdict.text else ""
        labels = f" ({self.labels})" if self.labels else ""
        return f"{self.target}: trust {self.verdict.trust.value}{labels}{figures}; source {self.source.hash}"

    def _parameter(self, position: int) -> dict[str, Any]:
        arg = self.task.args[position]
        kind = "tensor" if arg.is_tensor else "scalar"
        default = arg.default if not arg.is_tensor else None
        return {"name": arg.name, "kind": kind, "dtype": arg.dtype, "shape": list(arg.shape), "default": default}

    def _layout(self) -> str:
        if "contiguous-only" in self.labels:
            return "contiguous"
        return "rows" if "rows contiguous only" in self.labels else "any"

    def _only(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        scalars = {a.name: a for a in self.task.args if not a.is_tensor}
        for text in (self.labels, *self.verdict.flags):
            for name, _ in _NUMBER.findall(text):
                if name in scalars:
                    found[name] = scalars[name].value
        if self.backend is Backend.INTERPRETER:
            # other numbers are not tried where a call takes seconds
            found = {name: arg.value for name, arg in scalars.items()}
        return found

    def _domain(self) -> Mapping[str, str]:
        """The task's own words, and what the Verifier found it right for alone."""
        found = {name: word for name, word in self.task.domain.items() if word not in ("real", "fixed")}
        for text in _RIGHT_FOR.findall(self.labels):
            for name, words in _DOMAIN.findall(text):
                found.setdefault(name, _WORDS[words])
        return found


def repeatable(source: Source, backend: Backend | None) -> bool:
    """Are all its launches such as the launcher of ``runtime/`` sees, so that it may repeat them?"""
    plain = not any(_OTHER_LAUNCHES.search(text) for text in source.files.values())
    return source.dsl == "triton" and backend is Backend.CUDA and plain and packages_of(source) <= _SEEN


def packages_of(source: Source) -> set[str]:
    """The packages that its Python files import, without Python's own and the source's files."""
    own = {Path(file).parts[0].removesuffix(".py") for file in source.files}
    texts = [text for file, text in source.files.items() if file.endswith(".py")]
    names = {name for text in texts for name in imported(ast.parse(text))}
    return names - own - sys.stdlib_module_names
