"""A shared page is the workbench on what was recorded: turns are looked at without a kernel."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import Board
from lab import CHROMIUM

from kernellab.cli.main import main
from kernellab.notebook.saved.shared import shared_page
from kernellab.notebook.views.facts import Facts
from kernellab.session.engine.recorder import Recorder
from kernellab.session.record.journal import Journal
from tests.evolve.runs import modelled
from tests.session import freeze

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]


#: how light the ground of an element is, 0 to 255
_GROUND = """(element) => {
    let at = element;
    const clear = /^(transparent|rgba\\(0, 0, 0, 0\\))$/;
    while (at.parentElement && clear.test(getComputedStyle(at).backgroundColor)) at = at.parentElement;
    return Math.max(...getComputedStyle(at).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number));
}"""


def test_each_turn_of_a_shared_page_can_be_looked_at(browser: Any, tmp_path: Path) -> None:
    freeze.load(tmp_path)
    state = Recorder.read(Journal(tmp_path), freeze.NAMES["rows"])
    # what a task says cannot end the script that holds it
    hostile = "\n# <!-- </script><script>throw new Error('escaped')</script>"
    state = replace(state, created=state.created.model_copy(update={"text": state.created.text + hostile}))
    text = shared_page(state, Facts())
    assert len(text.encode()) < 3_000_000
    file = tmp_path / "rows.html"
    file.write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]")
    rows = page.get_by_role("treeitem")
    assert rows.count() >= 3
    rows.nth(2).click()
    third = next(turn for turn in state.turns.values() if turn.number == 3)
    page.locator("[role=tab][id$=-code]").click()
    assert third.candidate is None or page.locator(".kl-panel-code .cm-content").first.is_visible()
    page.locator("[role=tab][id$=-candidates]").click()
    page.locator(".kl-candidate").first.wait_for()
    assert not page.locator(".kl-foot").is_visible(), "nothing can be decided without a kernel"
    assert errors == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_shared_page_is_legible_in_the_readers_colours(browser: Any, tmp_path: Path, scheme: Any) -> None:
    freeze.load(tmp_path)
    file = tmp_path / "rows.html"
    text = shared_page(Recorder.read(Journal(tmp_path), freeze.NAMES["rows"]), Facts())
    file.write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 800, "height": 900}, color_scheme=scheme)
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.locator(".kl-panel-sketch .cm-line", has_text="sketch").first.wait_for()
    board = Board(page, page.locator(".kl").get_attribute("data-kernellab"), anywhere=True)
    assert board.faint() == []
    # the code's ground is the page's, not a light sheet on a dark one
    ground = page.locator(".kl-panel-sketch .cm-editor").evaluate(_GROUND)
    assert (ground > 127) == (scheme == "light"), ground
    # a role's name is whole in the narrow list of a tree with forks
    cut = page.locator(".kl-role").evaluate_all(
        "all => all.filter(one => { const who = one.parentElement.getBoundingClientRect();"
        " return one.getBoundingClientRect().right > who.right + 1; }).map(one => one.textContent)"
    )
    assert cut == []
    page.close()


def test_of_what_does_not_fit_into_a_shared_page_the_heads_line_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze.load(tmp_path)
    state = Recorder.read(Journal(tmp_path), freeze.NAMES["rows"])
    whole = shared_page(state, Facts())
    most = len(whole.encode()) - 20_000
    monkeypatch.setattr("kernellab.notebook.saved.shared._MOST", most)
    less = shared_page(state, Facts())
    assert len(less.encode()) <= most
    held = [json.loads(re.findall(r'id="session">(.*?)</script>', page, re.S)[0]) for page in (whole, less)]
    assert set(held[0]["turns"]) == set(state.turns)
    assert {turn.id for turn in state.path()} <= set(held[1]["turns"])
    left_out = set(held[0]["turns"]) - set(held[1]["turns"])
    assert left_out or len(held[1]["answers"]) < len(held[0]["answers"])


def test_a_shared_search_has_its_candidates_their_differences_and_lineage(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = modelled(tmp_path, rounds=1).work().wait(200)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernellab.toml").touch()
    assert main(["share", "soft", "--out", "soft.html"]) == 0
    file = tmp_path / "soft.html"
    assert file.stat().st_size < 3_000_000
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]")
    rows = page.locator(".kl-mon-row[data-number]")
    rows.first.wait_for()
    assert rows.count() == len(run.state.proposals)
    best = run.state.best()
    assert best is not None
    page.locator(f".kl-mon-row[data-number='{best}']").click()
    page.get_by_text("load(x[").first.wait_for()
    assert not page.locator("[data-action=inject]").is_visible(), "nothing can be decided without a kernel"
    assert errors == []
    page.close()
    assert main(["share", "nothing"]) == 2
