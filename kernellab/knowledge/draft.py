"""The draft of a DSL's documents: an annotated spec after another DSL's, and parts with what belongs into each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions

from kernellab.dsls.spec import DslSpec
from kernellab.knowledge.pages import DocumentError
from kernellab.knowledge.prompts import prompt

_SUMMARY = "FILL IN: one sentence for a person who chooses a DSL."
_BASIC = """# {title}

FILL IN: in half a page, what a kernel is in {name}, how it is launched, and how memory is named.
"""
_API = """# {title}: API

## `FILL IN: a function as code spells it`

Sketch operations: load

FILL IN: what it does. The line above names the sketch's operations that it carries out, so that it is found for them.
"""
_SUGGESTIONS = """# {title}: what is fast

## First of all

FILL IN: block sizes, memory order, what the compiler does by itself.
"""
_EXAMPLE = '''"""FILL IN: what it shows.

family: softmax
task: softmax/softmax
sizes: M=4 N=33
"""

import torch


def {entry}(x):
    raise NotImplementedError("FILL IN")
'''


@dataclass(frozen=True)
class Module:
    """The installed module that a draft is for: as it is imported, as code calls it, and its distribution."""

    name: str = ""
    alias: str = ""

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def distribution(self) -> str:
        return next(iter(packages_distributions().get(self.package, ())), self.package)


@dataclass(frozen=True)
class Like:
    """What a draft takes over from another DSL's spec."""

    name: str = "no other DSL"
    backends: Sequence[str] = ("cpu",)
    frameworks: Sequence[str] = ("torch",)
    call: str = "kernel:kernel"
    decorators: Sequence[str] = field(default_factory=tuple)
    called: bool = True


def like(spec: DslSpec) -> Like:
    """What a draft may take over from ``spec``."""
    return Like(
        spec.name, [backend.value for backend in spec.backends], spec.frameworks, spec.call,
        spec.static.decorators, spec.static.called,
    )  # fmt: skip


def spec_text(name: str, model: Like, module: Module | None = None) -> str:
    """An annotated spec.toml, filled in as far as the other DSL and the module tell.

    Raises:
        DocumentError: the name cannot name a DSL.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DocumentError(f"{name!r} cannot name a DSL.", "Use lower-case letters, digits and underscores.")
    known = module is not None and bool(module.name)
    package = module.package if known and module else "FILL_IN"
    return prompt(
        "spec", dsl=name, title=name, like=model.name, call=model.call,
        backends=_list(model.backends), frameworks=_list(model.frameworks), package=package,
        summary=f"What {module.name} offers." if known and module else _SUMMARY,
        remedy=f"pip install {module.distribution}." if known and module else "pip install FILL_IN.",
        preload=_list([*(model.frameworks if "torch" in model.frameworks else []), package]),
        decorators=_list(model.decorators) if model.decorators else "", called=str(model.called).lower(),
        toolchain=f'{{ {module.alias} = "{module.name}" }}' if known and module else "{}",
        versions=_list([module.distribution, "torch"] if known and module else ["torch"]),
    )  # fmt: skip


def draft(name: str, model: Like) -> dict[str, str]:
    """The files of a new DSL's folder by relative path, each with what belongs there marked FILL IN.

    Raises:
        DocumentError: the name cannot name a DSL.
    """
    values = {"name": name, "title": name, "entry": model.call.partition(":")[2]}
    return {
        "spec.toml": spec_text(name, model),
        "basic.md": _BASIC.format(**values),
        "api.md": _API.format(**values),
        "suggestions.md": _SUGGESTIONS.format(**values),
        f"examples/{model.frameworks[0]}/softmax.py": _EXAMPLE.format(**values),
    }


def _list(items: Sequence[str]) -> str:
    return json.dumps(list(items))
