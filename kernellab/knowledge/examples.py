"""Reference examples: ``dsl/<name>/examples/<framework>/*.py``, each a whole source that can be verified.

The module's docstring is its front matter: the first line is the title, and ``key: value`` lines follow::

    \"\"\"Row softmax, one program a row.

    family: softmax
    task: softmax/softmax
    sizes: M=3 N=5; M=2 N=128
    \"\"\"

``task`` is a task of the built-in suite whose reference the example must match at ``sizes`` (``Dim`` values).
Other files of the source lie next to it as strings or are built by it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernellab import python_tree
from kernellab.knowledge.pages import DocumentError
from kernellab.knowledge.passage import Passage

KEYS = frozenset(["family", "task", "sizes", "note"])


@dataclass(frozen=True)
class Example:
    """``sizes`` are cases: one mapping of Dim to size each; an empty one is the task's own size."""

    title: str
    family: str
    task: str
    sizes: tuple[Mapping[str, int], ...]
    note: str
    text: str
    path: Path
    source: str

    @property
    def passage(self) -> Passage:
        return Passage(self.title, self.source, self.text)


def read_example(path: Path, dsl: str) -> Example:
    """The example at ``path``. Raises DocumentError, naming the line, when it does not follow the form above."""
    try:
        text = path.read_text(encoding="utf-8")
        doc = ast.get_docstring(python_tree.parse(text)) or ""
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise DocumentError(f"The example {path} cannot be read: {error}.", "Fix the file.") from None
    lines = doc.splitlines()
    if not lines:
        raise DocumentError(f"The example {path} has no docstring.", "Begin it with a title, family: and task:.")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        key, colon, value = line.partition(":")
        if colon and key.strip() in KEYS:
            fields[key.strip()] = value.strip()
    for key in ("family", "task"):
        if not fields.get(key):
            raise DocumentError(f"The example {path} does not say its {key}.", f"Add a line '{key}: ...' to it.")
    return Example(
        title=lines[0].rstrip("."),
        family=fields["family"],
        task=fields["task"],
        sizes=_sizes(fields.get("sizes", ""), path),
        note=fields.get("note", ""),
        text=text,
        path=path,
        source=f"dsl/{dsl}/examples/{path.parent.name}/{path.name}",
    )


def _sizes(text: str, path: Path) -> tuple[Mapping[str, int], ...]:
    cases: list[dict[str, int]] = []
    for case in filter(str.strip, text.split(";")):
        try:
            cases.append({name: int(size) for name, _, size in (word.partition("=") for word in case.split())})
        except ValueError:
            raise DocumentError(f"The example {path} has the sizes {case.strip()!r}.", "Write M=3 N=5; ....") from None
    return tuple(cases) or ({},)
