"""The prompt files: one jinja2 template per role, one section per block."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from kernellab.agents.briefs import own_reason
from kernellab.errors import duration

FOLDER = Path(__file__).resolve().parent.parent / "templates"


def fence(text: str) -> str:
    """A fence longer than any run of backticks in the text, so that no line of the text ends it."""
    return "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))


def flat(text: str) -> str:
    """Return ``text`` in one line: text from others cannot begin a section of a prompt."""
    return re.sub(r"\s*[\n\r\v\f\x85\u2028\u2029]\s*", " ", text).strip()


def inset(text: str) -> str:
    """Return ``text`` with its further lines indented like code: none of them begins a section or ends a quotation."""
    return "\n    ".join(text.splitlines())


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    # no autoescape: a prompt is plain text, and code must not change
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters |= {
        "own_reason": own_reason,
        "duration": duration,
        "fence": fence,
        "flat": flat,
        "inset": inset,
    }
    return environment


def render(file: str, block: str, **values: Any) -> str:
    """Render one block of ``file`` (without the suffix .j2), stripped of outer empty lines.

    Raises:
        KeyError: the file has no such block.
        jinja2.UndefinedError: a value that the block uses is missing.
    """
    template = _environment().get_template(f"{file}.j2")
    text = "".join(template.blocks[block](template.new_context(values)))
    return re.sub(r"\A\n+|\n+\Z", "", text)


def blocks(file: str) -> tuple[str, ...]:
    """The names of a file's blocks."""
    return tuple(_environment().get_template(f"{file}.j2").blocks)
