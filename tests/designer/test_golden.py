"""Designs and lowered sources are, text for text, those that golden.json was recorded from.

An eighth of the tasks a commit; all of them with ``KERNELLAB_PROVE=1``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.breadth import everything, seed, share
from tests.designer import golden

#: one of how many shares a commit checks
PARTS = 8


@pytest.fixture
def quiet() -> Iterator[None]:
    """torch.export's debug lines would bury the list of entries."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


def test_the_file_names_every_task_and_no_other() -> None:
    _, kept = golden.read()
    assert {entry.split()[0] for entry in kept} == set(golden.tasks()), f"record anew: {golden.COMMAND} --record"


@pytest.mark.usefixtures("quiet")
def test_designs_and_sources_are_the_recorded_ones() -> None:
    version, kept = golden.read()
    if version != golden.torch_version():
        pytest.skip(f"Texts were recorded with torch {version}, whose graphs may differ from {golden.torch_version()}.")
    names = list(golden.tasks()) if everything() else share(golden.tasks(), seed(), PARTS)
    before = {entry: value for entry, value in kept.items() if entry.split()[0] in set(names)}
    changed = golden.changes(before, golden.entries(names, golden.PROCESSES if everything() else 1))
    if changed:
        shown = [*changed[:40], *([f"and {len(changed) - 40} more"] if len(changed) > 40 else [])]
        entry = changed[0].split()[1:4]
        pytest.fail(
            "\n".join([
                f"{len(changed)} texts are not the recorded ones:", *shown,
                f"See a difference: {golden.COMMAND} --diff HEAD {' '.join(entry).rstrip(':')}",
                f"If it is meant, and the commit says why: {golden.COMMAND} --record",
            ]),
            pytrace=False,
        )  # fmt: skip


def test_every_task_is_in_some_commits_share() -> None:
    names = list(golden.tasks())
    shares = [share(names, str(number), PARTS) for number in range(99)]
    assert {name for found in shares for name in found} == set(names)
    assert max(map(len, shares)) < len(names) / 4


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
