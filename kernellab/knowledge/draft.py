"""The draft of a DSL's documents: an annotated spec after another DSL's, and parts with what belongs into each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernellab.dsls.spec import DslSpec
from kernellab.knowledge.modules import Module, Offer
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


def spec_text(name: str, model: Like, modules: Sequence[Module] = (), offered: Offer | None = None) -> str:
    """An annotated spec.toml, filled in as far as the other DSL and the modules tell.

    Raises:
        DocumentError: the name cannot name a DSL.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DocumentError(f"{name!r} cannot name a DSL.", "Use lower-case letters, digits and underscores.")
    first = modules[0] if modules else None
    packages = list(dict.fromkeys(m.package for m in modules)) or ["FILL_IN"]
    pattern = offered.pattern if offered and not offered.decorators else ""
    # of a module that marks no kernel, another DSL's decorators would be kept as if they were its own
    decorators = () if pattern else offered.decorators if offered else model.decorators
    toolchain = ", ".join(f'{m.alias} = "{m.name}"' for m in modules)
    return prompt(
        "spec", dsl=name, title=name, like=model.name, call=model.call,
        backends=_list(model.backends), frameworks=_list(model.frameworks), package=packages[0],
        summary=f"What {first.name} offers." if first else _SUMMARY,
        remedy=f"pip install {first.distribution}." if first else "pip install FILL_IN.",
        preload=_list([*(model.frameworks if "torch" in model.frameworks else []), *packages]),
        decorators=_list(decorators) if decorators else "", called=str(model.called).lower(), pattern=pattern,
        toolchain=f"{{ {toolchain} }}" if modules else "{}",
        versions=_list([*dict.fromkeys(m.distribution for m in modules), "torch"]),
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
