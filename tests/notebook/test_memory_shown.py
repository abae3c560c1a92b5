"""The memory in a notebook: the magic's words, and the panel's questions and decisions, on a recorded session."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import Page

from kernellab.errors import MemoryStoreError
from kernellab.memory.memory import Memory
from kernellab.memory.records import Provenance, Skill
from kernellab.session import Session, open_session

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.session import freeze


@pytest.fixture
def rows(shell: InteractiveShell, tmp_path: Path) -> Session:
    """A session that has verified a kernel, bound to its name."""
    freeze.load(tmp_path)
    (tmp_path / "kernellab.toml").write_text("")
    session = open_session(freeze.NAMES["rows"], tmp_path, resume=False)
    shell.user_ns["rows"] = session
    return session


@pytest.fixture
def page(rows: Session) -> Iterator[Page]:
    from kernellab.notebook.board.workbench import Workbench

    bench = Workbench(rows)
    yield Page(bench)
    bench.close()


def test_each_word_of_the_magic(
    rows: Session, shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(line: str) -> str:
        capsys.readouterr()
        shell.run_line_magic("kernel_memory", line)
        return capsys.readouterr().out

    assert says("search zebra") == "Nothing found.\n"
    assert "in the shipped library" in says("search softmax"), "nothing is remembered here"
    assert says("add rows") == "1 kernel remembered.\n"
    found = says("search rows")
    assert "100% of the computation" in found
    id = found.split()[0]
    assert re.match(rf"{id} +\S", says(f"search {Memory.open(tmp_path).store.get(id).kernel.name}"))  # type: ignore[union-attr]
    assert "thumb 1, pinned" in says(f"judge {id} --thumb 1 --pin")
    assert "kernels: 1" in says("stats")
    skill = Skill(advice="Use rows.", change="-a\n+b", ratio=1.3, low=1.2, high=1.4, before="s/1", after="s/2",
                  provenance=Provenance(origin="session"))  # fmt: skip
    Memory.open(tmp_path).propose(skill)
    assert "state: proposed" in says("skills")
    assert "Use rows." in says(f"approve {skill.id}")
    assert says("export all.jsonl") == "1 kernel written.\n"
    assert says(f"forget {id}") == "1 entry forgotten.\n"
    assert says("rebuild") == says("compact") == "0 kernels in the store.\n"
    with pytest.raises(UsageError, match="needs a session or words"):
        says("search")
    with pytest.raises(UsageError, match="not a command of %kernel_memory"):
        says("dream")
    with pytest.raises(MemoryStoreError, match="does not exist"):
        says("import nowhere.jsonl")


def test_the_panel_finds_remembers_judges_and_forgets(page: Page, tmp_path: Path) -> None:
    empty = page.ask("memory", words="")
    assert empty["hits"] == []
    assert "Nothing was remembered" in empty["note"]
    assert page.act("remember") == ""
    (hit,) = page.ask("memory", words="")["hits"]
    assert hit["logic"] == 1.0
    assert "100% of the computation" in hit["why"]
    assert hit["provenance"].startswith("session rows-")
    assert [h["id"] for h in page.ask("memory", words=hit["name"])["hits"]] == [hit["id"]]
    assert page.act("judge", id=hit["id"], thumb=-1, pinned=False) == ""
    assert page.ask("memory", words="")["hits"] == []
    assert "no judgement" in page.act("judge", id=hit["id"], thumb=7, pinned=False)
    assert page.act("forget", id=hit["id"]) == ""
    assert Memory.open(tmp_path).store.count()["kernels"] == 0


def test_a_broken_store_is_one_sentence_in_the_panel(page: Page, tmp_path: Path) -> None:
    assert page.act("remember") == ""
    for file in (tmp_path / ".kernellab" / "memory").rglob("*.manifest"):
        file.write_bytes(b"nothing")
    reply = page.reply(page.post({"ask": "memory", "words": "rows"}))
    assert "cannot be" in reply["error"]
    assert "rebuild" in reply["error"]


def test_a_session_says_that_it_goes_on_without_its_memory(
    rows: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".kernellab" / "memory").mkdir()
    (tmp_path / ".kernellab" / "memory" / "meta.lance").write_text("nothing")
    assert rows.memory.store is None
    rows.wait(progress=True)
    rows.wait(progress=True)
    told = capsys.readouterr()
    assert (told.out + told.err).count("continues without the memory. The memory at") == 1
