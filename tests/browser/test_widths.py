"""The workbench at many widths, on dumps of sessions and without a kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from lab import CHROMIUM

sys.path.append(str(Path(__file__).parents[2] / "widgets/dev"))

import look

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

#: what of these is out of sight to the right, whether its parent scrolls or not
CUT = """(selector) => {
    const end = document.querySelector(".kl-work").getBoundingClientRect().right + 0.5;
    return [...document.querySelectorAll(selector)].filter((one) => {
        const cut = one.parentElement.scrollWidth > one.parentElement.clientWidth;
        return cut || one.getBoundingClientRect().right > end;
    }).map((one) => one.textContent);
}"""


@pytest.mark.parametrize("fixture", ["edge_tile", "model"])
def test_tabs_and_verdict_are_whole_at_every_width(browser: Any, fixture: str) -> None:
    with look.served() as base:
        page = browser.new_page()
        page.goto(look.address(base, fixture=fixture, panel="verdict", theme="light"))
        page.wait_for_selector("body[data-ready]")
        for width in (1180, 900, 760, 720, 560, 420, 360):
            page.set_viewport_size({"width": width, "height": 900})
            # a tab with nothing in it is not shown: what models were told, and the memory
            assert page.locator(".kl-tab").count() == (8 if fixture == "model" else 7)
            assert page.evaluate(CUT, ".kl-tab") == [], f"tabs at {width}"
            assert page.evaluate(CUT, ".kl-whisker-value") == [], f"speedups at {width}"
        page.close()
