"""Documents and sessions whose names, places or contents would mislead an agent, or keep it from the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernellab.session import design
from kernellab.tools import Context, ToolError, call
from kernellab.tools.mcp.handlers import Handlers
from kernellab.tools.records import MOST_TEXT
from tests.tools.test_tools import TASK

HIDDEN = "\x1b[31m"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "kernellab.toml").touch()
    (tmp_path / "twice.py").write_text(TASK)
    (tmp_path / "knowledge").mkdir()
    return Context(tmp_path)


def test_a_document_that_cannot_be_read_takes_no_other_from_a_reader(context: Context) -> None:
    own = context.workspace / "knowledge"
    (own / "bytes.md").write_bytes(b"# \xff zebra")
    (own / "long.md").write_text("# Long\n" + "zebra " * (MOST_TEXT // 6 + 1))
    (own / "good.md").write_text("# Good\n\n## Zebras\n\nA zebra has stripes.\n")
    found = call("search_documents", {"words": "zebra stripes", "limit": 20}, context).model_dump()
    assert "good.md" in [one["document"] for one in found["passages"]]
    assert "2 documents cannot be read: bytes.md, long.md." in found["next"]
    handlers = Handlers(context)
    for name, why in (("bytes.md", "not UTF-8"), ("long.md", "more than 1,000,000 bytes")):
        with pytest.raises(ToolError, match=why):
            call("read_document", {"document": name}, context)
        with pytest.raises(ToolError, match=why):
            asyncio.run(handlers.read_resource(f"kernellab://documents/{name}"))


@pytest.mark.parametrize("name", [f"a{HIDDEN}.md", "a b.md", "a#b?c.md", "a%25.md", "é.md", "a\nb.md"])
def test_a_document_of_any_name_is_a_resource_that_shows_it(context: Context, name: str) -> None:
    (context.workspace / "knowledge" / name).write_text("# Zebras\n")
    handlers = Handlers(context)
    listed = asyncio.run(handlers.list_resources())["resources"]
    (mine,) = [one for one in listed if one.get("description") == "workspace document"]
    assert mine["uri"].isascii() and mine["uri"].isprintable() and not set(" #?") & set(mine["uri"])
    assert HIDDEN not in mine["name"] and "\x1b" not in mine["name"]
    assert asyncio.run(handlers.read_resource(mine["uri"]))["contents"][0]["text"] == "# Zebras\n"


def test_a_folder_of_documents_that_is_a_link_out_of_the_workspace_holds_none(tmp_path: Path) -> None:
    theirs, workspace = tmp_path / "theirs", tmp_path / "workspace"
    for folder in (theirs, workspace):
        folder.mkdir()
    (theirs / "key.md").write_text("a key")
    (workspace / "knowledge").symlink_to(theirs)
    context = Context(workspace)
    names = call("list_documents", {}, context).model_dump()["names"]
    assert "key.md" not in names and "language/overview.md" in names
    with pytest.raises(ToolError, match="no document"):
        call("read_document", {"document": "key.md"}, context)
    (workspace / "knowledge").unlink()
    (workspace / "documents").mkdir()
    (workspace / "documents" / "ours.md").write_text("# Ours\n")
    (workspace / "knowledge").symlink_to("documents")
    assert "ours.md" in call("list_documents", {}, context).model_dump()["names"], "a link within stays"


@pytest.mark.parametrize("name", ["é", "e\u0301", "..", "../x", "a b", "a\u202eb", " ", "-rf", "7", "a\nb", "_a"])
def test_an_agents_session_has_the_name_that_was_asked_for_or_none(context: Context, name: str) -> None:
    """Before, each of them but the last ones was the session ``task``."""
    with pytest.raises(ToolError, match="is no name of a session") as refused:
        call("begin_session", {"task": "twice.py", "dsl": "cpp", "name": name}, context)
    assert "is one" in refused.value.remedy
    assert call("list_sessions", {}, context).model_dump()["sessions"] == []


def test_an_agents_session_is_told_from_a_persons_by_more_than_case(context: Context) -> None:
    design(TASK, dsl="cpp", name="mine", roles={"designer": "human"}, workspace=context.workspace)
    with pytest.raises(ToolError, match="hard to tell"):
        call("begin_session", {"task": "twice.py", "dsl": "cpp", "name": "Mine"}, context)
