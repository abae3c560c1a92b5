"""axe-core's rules over each panel, in the light and the dark theme, on dumps of sessions.

Nothing serious or critical is let through: WCAG 2.1 A and AA, and axe's best practices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from lab import CHROMIUM

sys.path.append(str(Path(__file__).parents[2] / "widgets/dev"))

import look

AXE = Path(__file__).parents[2] / "widgets/node_modules/axe-core/axe.min.js"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (python hatch_build.py run check)"),
]

RUN = """async () => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
    // a row of the timeline is named in words and shown in columns: the same facts in another order
    const rules = { "label-content-name-mismatch": { enabled: false } };
    const found = await axe.run(".kl", { runOnly: { type: "tag", values: tags }, rules });
    return found.violations.filter((one) => ["serious", "critical"].includes(one.impact)).flatMap((one) =>
        one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)} (${node.failureSummary.split("\\n")[1]})`));
}"""
SHOTS = (
    "sketch", "accesses", "code", "verdict", "failed", "verifying", "roofline", "candidates", "model", "brief",
    "unparsable", "help",
)  # fmt: skip
#: what is pressed before the look
PRESSED = {"verdict": "explain-speed"}


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with look.served() as base, look.browser() as chromium:
        opened = chromium.new_page(viewport={"width": 1180, "height": 900})
        opened.base = base
        opened.set_default_timeout(8_000)
        yield opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("shot", SHOTS)
def test_no_serious_finding(page: Any, shot: str, theme: str) -> None:
    page.goto(look.address(page.base, **look.SHOTS[shot], theme=theme))
    page.wait_for_selector("body[data-ready]")
    if shot in PRESSED:
        page.locator(f"[data-action={PRESSED[shot]}]").click()
        page.get_by_role("region", name="explanation").get_by_role("list").wait_for()
    if shot == "accesses":
        page.get_by_label("step of the run").wait_for()
    page.wait_for_timeout(250)  # the theme's style sheet, and what is drawn on the next frames
    page.add_script_tag(path=AXE)
    assert page.evaluate(RUN) == []
