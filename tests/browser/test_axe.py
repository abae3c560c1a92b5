"""axe-core's rules over each panel, in the light and the dark theme, on dumps of sessions.

Nothing is let through: WCAG 2.1 A and AA, and axe's best practices.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from lab import CHROMIUM

sys.path.append(str(Path(__file__).parents[2] / "widgets/dev"))

import look

from kernellab.lens.page import page
from kernellab.lens.records import Fact, Lens, Level, Link

AXE = Path(__file__).parents[2] / "widgets/node_modules/axe-core/axe.min.js"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (python hatch_build.py run check)"),
]

RUN = """async (root) => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
    // a row of the timeline is named in words and shown in columns: the same facts in another order
    const rules = { "label-content-name-mismatch": { enabled: false } };
    const found = await axe.run(root, { runOnly: { type: "tag", values: tags }, rules });
    return found.violations.flatMap((one) =>
        one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)} (${node.failureSummary.split("\\n")[1]})`));
}"""
SHOTS = (
    "sketch", "accesses", "code", "verdict", "failed", "verifying", "roofline", "candidates", "model", "brief",
    "unparsable", "help", "memory", "predict", "fault",
)  # fmt: skip
#: what is pressed before the look
PRESSED = {"verdict": "explain-speed"}


@pytest.fixture(scope="module")
def dumps(browser: Any) -> Iterator[Any]:
    with look.served() as base:
        opened = browser.new_page(viewport={"width": 1180, "height": 900})
        opened.base = base
        opened.set_default_timeout(30_000)
        yield opened
        opened.close()


@pytest.mark.parametrize("shot", SHOTS)
def test_no_finding(dumps: Any, shot: str) -> None:
    dumps.goto(look.address(dumps.base, **look.SHOTS[shot], theme="light"))
    dumps.wait_for_selector("body[data-ready]")
    if shot in PRESSED:
        dumps.locator(f"[data-action={PRESSED[shot]}]").click()
        dumps.get_by_role("region", name="explanation").get_by_role("list").wait_for()
    if shot == "accesses":
        dumps.get_by_label("step of the run").wait_for()
    if shot == "code":
        # the level, its facts, and the source beside it
        dumps.locator("[role=tab]", has_text="asm").click()
        dumps.locator(".kl-code-facts summary").click()
    dumps.wait_for_timeout(250)  # what is drawn on the next frames
    _clean_in_both_themes(dumps)


def _clean_in_both_themes(dumps: Any) -> None:
    dumps.add_script_tag(path=AXE)
    for theme in ("light", "dark"):
        dumps.evaluate("theme => window.set_theme(theme)", theme)
        assert dumps.evaluate(RUN, ".kl") == [], theme


@pytest.mark.parametrize(("shot", "row"), [("failed", ".kl-turn"), ("candidates", ".kl-candidate")])
def test_a_row_under_the_pointer_has_no_finding(dumps: Any, shot: str, row: str) -> None:
    """Its faint words had a contrast of 4.42 in the light theme."""
    dumps.goto(look.address(dumps.base, **look.SHOTS[shot], theme="light"))
    dumps.wait_for_selector("body[data-ready]")
    dumps.locator(f"{row}:not(.kl-current, .kl-candidate-heads)").first.hover()
    _clean_in_both_themes(dumps)


#: panel of the monitor -> what the run's head says beside
WATCHED = {
    "candidates": {}, "compare": {}, "grid": {}, "ledger": {}, "steer": {"status": "paused"},
    "analyst": {"suggestion": "No gain for 2 rounds. Little tried until now: cross."},
}  # fmt: skip


@pytest.mark.parametrize("panel", WATCHED)
def test_the_monitor_has_no_finding(dumps: Any, panel: str) -> None:
    head = json.dumps(WATCHED[panel])
    dumps.goto(look.address(f"{dumps.base}monitor.html", panel=panel, theme="light", head=head))
    dumps.wait_for_selector("body[data-ready]")
    dumps.wait_for_timeout(400 if panel == "compare" else 150)  # both marks, and what is drawn on the next frames
    _clean_in_both_themes(dumps)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_the_lens_links_both_ways_by_keys_and_has_no_finding(dumps: Any, theme: str) -> None:
    asm = Level("asm", "one:\n\tmov\teax, 1\n\tret", (Link(2, 2), Link(3, 3)), "asm", "assembly")
    other = Level("asm", "one:\n\tmov\teax, 2\n\tret", asm.lines, "asm", "assembly")
    fact = Fact("stack frame", "0 B", "It keeps nothing on the stack.")
    lenses = [Lens("k.cpp", "int one() {\n  return 1;\n}", "a CPU", (level,), (fact,)) for level in (asm, other)]
    dumps.goto("about:blank")
    dumps.set_content(page("one and two", lenses, ["a", "b"], theme))
    dumps.locator("#source").focus()
    dumps.keyboard.press("ArrowDown")
    assert dumps.locator("#level .linked").inner_text().split()[1:] == ["ret"]
    dumps.locator("#level").focus()
    for _ in range(2):
        dumps.keyboard.press("ArrowUp")
    assert "return 1" in dumps.locator("#source .linked").inner_text()
    assert dumps.locator("#said").inner_text() == "Line 2 of asm: line 2 of k.cpp."
    dumps.add_script_tag(path=AXE)
    assert dumps.evaluate(RUN, "body") == []
    dumps.get_by_role("button", name="difference").click()
    assert dumps.locator("#said").inner_text() == "1 line more, 1 less."
    assert dumps.evaluate(RUN, "body") == []
