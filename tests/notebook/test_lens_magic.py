"""%kernel_lens on a session's kernel, and a page of two."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernellab.errors import SessionError


def data_of(page: str) -> dict[str, Any]:
    """What a page of the lens was given."""
    found = re.search(r"^const DATA = (.*);$", page, re.MULTILINE)
    assert found is not None
    said: dict[str, Any] = json.loads(found[1])
    return said


def test_a_sessions_kernel_is_shown_beside_its_assembly(
    shell: InteractiveShell, story: tuple[Any, Any], tmp_path: Path
) -> None:
    session, _ = story
    shell.user_ns["add_one"] = session
    file = tmp_path / "lens.html"
    shown = shell.run_line_magic("kernel_lens", f"add_one --turn 2 --against 2 --html {file}")
    assert "vector width" in repr(shown)
    # the cell's output is the page in a frame; a kernel's text cannot end the script that holds it
    framed = re.search(r'srcdoc="([^"]*)"', shown._repr_html_())
    assert framed is not None and html.unescape(framed[1]) == file.read_text()
    data = data_of(file.read_text())
    first = data["lenses"][0]
    assert first["file"] == "kernel.cpp" and first["text"] == session.source.files["kernel.cpp"]
    level = next(one for one in first["levels"] if one["name"] == "asm")
    last = level["text"].count("\n") + 1
    assert level["links"] and all(1 <= there <= last for _, there in level["links"])
    assert [one["text"] for one in data["differences"]] == [""] * len(data["differences"]) and data["differences"]
    with pytest.raises(SessionError, match="no kernel yet"):
        shell.run_line_magic("kernel_lens", "add_one --turn 1")
