"""The first designs of some tasks are, text for text, those of ``golden/``."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator

import pytest

from tests.designer import golden


@pytest.fixture
def quiet() -> Iterator[None]:
    """torch.export's debug lines would bury the difference."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


def test_the_folder_holds_a_text_of_each_task_and_dsl() -> None:
    wanted = {golden.path_of(task, dsl) for task in golden.KEPT for dsl in golden.targets()}
    assert set(golden.FOLDER.glob("*.txt")) == wanted, f"{golden.COMMAND} --record"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("task", golden.KEPT)
def test_designs_and_sources_are_the_recorded_ones(task: str) -> None:
    for path, now in golden.kept([task]).items():
        recorded = path.read_text(encoding="utf-8")
        if recorded.partition("\n")[0].rpartition(" ")[2] != golden.torch_version():
            pytest.skip(f"Recorded with another torch than {golden.torch_version()}, whose graphs may differ.")
        if now != recorded:
            lines = difflib.unified_diff(recorded.splitlines(), now.splitlines(), path.name, "now", lineterm="")
            pytest.fail(
                "\n".join([*lines, "", f"If this is meant, and the commit says why: {golden.COMMAND} --record"]),
                pytrace=False,
            )


def test_a_change_is_named_with_what_differs() -> None:
    old = {
        "a cpp x": "1 000000000000 111111111111",
        "b cpp x": "1 000000000000 LoweringError",
        "c cpp x": "NotRunnable",
    }
    new = {"a cpp x": "2 000000000000 222222222222", "b cpp x": "1 000000000000 333333333333", "d cpp x": "NotRunnable"}
    assert golden.changes(old, new) == [
        "changed  a cpp x: rank 1 -> 2, source",
        "changed  b cpp x: source LoweringError -> 333333333333",
        "gone     c cpp x",
        "new      d cpp x",
    ]


def test_an_entry_can_be_shown() -> None:
    shown = golden.show("families/softmax", "cpp", "rows-in-cache")
    assert shown.startswith("==== sketch\nsketch softmax {")
    assert "==== kernel.py" in shown
    with pytest.raises(SystemExit, match="There is no entry"):
        golden.show("families/softmax", "cpp", "no-such-style")
