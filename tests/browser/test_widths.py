"""The workbench at many widths, on dumps of sessions and without a kernel."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from lab import CHROMIUM

from kernellab.lens.page import page as lens_page
from kernellab.lens.records import Fact, Lens, Level, Link

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


def test_a_long_label_of_a_verdict_is_whole(browser: Any) -> None:
    long = "drawn inputs: 54% tried (19 of 35), as many as fit the time"
    with look.served() as base:
        page = browser.new_page(viewport={"width": 340, "height": 900})
        page.goto(look.address(base, fixture="designed", panel="verdict", theme="light"))
        page.wait_for_selector("body[data-ready]")
        page.locator(".kl-outcome .kl-label").first.evaluate("(label, text) => { label.textContent = text; }", long)
        assert page.evaluate(CUT, ".kl-outcome .kl-label") == []
        page.close()


def test_a_line_that_can_be_pinned_shows_its_pin_under_the_pointer(browser: Any) -> None:
    with look.served() as base:
        page = browser.new_page()
        page.goto(look.address(base, **look.SHOTS["sketch"], theme="light"))
        page.wait_for_selector(".kl-may-pin")
        line = page.locator(".kl-pins .cm-gutterElement", has=page.locator(".kl-pin-off")).nth(1)
        seen = "sign => Number(getComputedStyle(sign).opacity)"
        assert line.locator(".kl-pin-off").evaluate(seen) == 0
        line.hover()
        page.wait_for_function(f"sign => ({seen})(sign) > 0.5", arg=line.locator(".kl-pin-off").element_handle())
        page.close()


def test_a_candidate_shows_its_interval_and_no_head_sticks_out(browser: Any) -> None:
    with look.served() as base:
        page = browser.new_page()
        page.goto(look.address(base, **look.SHOTS["candidates"], theme="light"))
        page.wait_for_selector(".kl-candidate-speedup")
        page.set_viewport_size({"width": 980, "height": 900})
        speedup = page.locator(".kl-candidate .kl-candidate-speedup").first
        speedup.evaluate("cell => { cell.textContent = '10.07x eager [7.53, 12.95]'; }")
        whole = "cell => cell.scrollWidth <= cell.clientWidth"
        assert speedup.evaluate(whole)
        for width in (980, 560, 420, 375):
            page.set_viewport_size({"width": width, "height": 900})
            speedup.evaluate("cell => { cell.textContent = '2.91x eager [2.00, 3.67]'; }")
            assert speedup.evaluate(whole), width
            assert page.evaluate(CUT, ".kl-candidate-heads") == [], width
        page.close()


@pytest.mark.parametrize("panel", ["sketch", "code"])
def test_what_a_model_writes_first_has_the_panel_and_its_end_is_in_sight(browser: Any, panel: str) -> None:
    role = {"sketch": "designer", "code": "coder"}[panel]
    text = "\n".join(f"line {n}" for n in range(200))
    traits = {
        "texts": {"sketch": "", "files": {}, "files_before": {}, "artefacts": [], "main_file": ""},
        "detail": {"diagnostics": []},
        "partial": {"turn": "t1", "role": role, "text": text, "length": len(text), "waits": False},
    }
    with look.served() as base:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(look.address(base, **{"fixture": "designed", "panel": panel, "theme": "light", "with": traits}))
        page.wait_for_selector("body[data-ready]")
        written = page.locator(f".kl-panel-{panel} .kl-streaming pre")
        written.wait_for()
        heights = "one => [one.clientHeight, ...['.kl-streaming', '.kl-panel'].map(up => one.closest(up).clientHeight)]"
        own, section, whole = written.evaluate(heights)
        assert own < section and own > 0.7 * whole
        assert written.evaluate("pre => pre.scrollHeight - pre.scrollTop - pre.clientHeight") < 24
        page.close()


@pytest.mark.parametrize("size", [(1400, 1000), (1400, 800), (800, 800)])
@pytest.mark.parametrize("fixture", ["edge_tile", "designed"])
def test_the_question_and_the_buttons_are_in_sight(browser: Any, fixture: str, size: tuple[int, int]) -> None:
    """A person sees what is asked and every button of the session without scrolling."""
    with look.served() as base:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.goto(look.address(base, fixture=fixture, panel="verdict", theme="light"))
        page.wait_for_selector("body[data-ready]")
        parts = page.locator(".kl-head, .kl-cards .kl-answers, .kl-foot")
        assert parts.count() == (3 if fixture == "edge_tile" else 2)
        for part in range(parts.count()):
            box = parts.nth(part).bounding_box()
            assert box is not None and box["y"] >= 0 and box["y"] + box["height"] <= size[1], (fixture, size, box)
        page.close()


def test_a_search_s_styles_on_the_same_page_leave_room_for_the_sign_of_the_field(browser: Any) -> None:
    """Both widgets load the base's styles; the later ones come after those of the workbench's timeline."""
    later = (Path(look.ROOT) / "kernellab/notebook/static/monitor.css").read_text(encoding="utf-8")
    with look.served() as base:
        page = browser.new_page(viewport={"width": 1180, "height": 900})
        page.goto(look.address(base, fixture="designed", panel="verdict", theme="light"))
        page.wait_for_selector("body[data-ready]")
        page.add_style_tag(content=later)
        field = page.locator(".kl-search input").first
        assert field.evaluate("field => parseFloat(getComputedStyle(field).paddingLeft)") > 18
        page.close()


@pytest.mark.parametrize("width", [1400, 800])
def test_nothing_below_moves_when_the_status_changes(browser: Any, width: int) -> None:
    """A long signature shared its row with the status, and was wrapped whenever that grew."""
    with look.served() as base:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(look.address(base, fixture="designed", panel="verdict", theme="light"))
        page.wait_for_selector("body[data-ready]")
        signature = "x: f32 [8, 1024, 4096], w: f32 [4096, 4096], b: f32 [4096] -> f32 [8, 1024, 4096]"
        page.locator(".kl-operator").evaluate("(code, text) => { code.textContent = text; }", signature)
        tops = []
        for status in ("running", "running designer at work, 20.4 s", "waiting for you \u00b7 Next: you (coder)"):
            page.locator(".kl-status").first.evaluate("(one, text) => { one.textContent = text; }", status)
            tops.append(page.locator(".kl-main").bounding_box()["y"])
        assert len(set(tops)) == 1, tops
        page.close()


@pytest.mark.parametrize("size", [(1400, 1000), (1400, 800), (400, 800)])
def test_a_question_takes_from_the_panels_and_leaves_the_buttons_where_they_are(
    browser: Any, size: tuple[int, int]
) -> None:
    """However long it is, its answers are in sight, and so is a part of the open panel."""
    most = max(560, size[1] - 128)
    with look.served() as base:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.goto(look.address(base, fixture="edge_tile", panel="verdict", theme="light"))
        page.wait_for_selector("body[data-ready]")
        foot = page.locator(".kl-foot").bounding_box()
        assert page.locator(".kl").bounding_box()["height"] <= most
        page.locator(".kl-evidence").evaluate(
            "(list) => { for (let n = 0; n < 30; n++) list.append(list.lastElementChild.cloneNode(true)); }"
        )
        answers = page.locator(".kl-cards .kl-answers").bounding_box()
        cards, panel = page.locator(".kl-cards").bounding_box(), page.locator(".kl-panel:visible").bounding_box()
        assert answers["y"] + answers["height"] <= cards["y"] + cards["height"] + 1
        assert panel["height"] > 60
        assert page.locator(".kl").bounding_box()["height"] <= most
        assert size[1] != 800 or page.locator(".kl-foot").bounding_box() == foot
        page.close()


def test_use_it_stays_in_its_place_when_another_figure_comes(browser: Any) -> None:
    with look.served() as base:
        page = browser.new_page(viewport={"width": 990, "height": 900})
        page.goto(look.address(base, fixture="designed", panel="verdict", theme="light"))
        button = page.locator("[data-action=take]")
        button.wait_for()
        before = button.bounding_box()
        page.locator(".kl-figures .kl-figure").first.evaluate(
            "one => { for (let n = 0; n < 6; n++) one.after(one.cloneNode(true)); }"
        )
        assert button.bounding_box() == before
        page.close()


def test_the_note_of_a_candidate_is_whole_in_a_row_for_itself(browser: Any) -> None:
    with look.served() as base:
        page = browser.new_page(viewport={"width": 980, "height": 900})
        page.goto(look.address(base, **look.SHOTS["candidates"], theme="light"))
        note = page.locator(".kl-candidate .kl-candidate-note").first
        note.wait_for(state="attached")
        note.evaluate("one => { one.textContent = 'timed in one run: 1.99 ms, 0.33x as fast as turn 8 [0.24]'; }")
        for width in (980, 560, 400):
            page.set_viewport_size({"width": width, "height": 900})
            row = page.locator(".kl-candidate").first
            number, sign = row.locator(".kl-number").bounding_box(), row.locator(".kl-sign").first.bounding_box()
            assert number["x"] + number["width"] <= sign["x"] + 1, width
            # where there is less room, its end is under the pointer
            assert width == 400 or note.evaluate("one => one.scrollWidth <= one.clientWidth"), width
        page.close()


@pytest.mark.parametrize("width", [1000, 360])
def test_the_facts_of_a_lens_are_whole_and_above_its_texts(browser: Any, width: int) -> None:
    sentence = "Each iteration of that loop touches the stack 1 time (0 stores): values that have no register. " * 2
    facts = tuple(Fact(name=f"spills in loop {n}", value="1 of 15", sentence=sentence) for n in range(6))
    links = tuple(Link(1, 2 * n + 1) for n in range(60))
    level = Level(name="asm", text="nop\n" * 200, lines=links, title="the functions of this file")
    lens = Lens(file="kernel.cpp", text="int main() {}\n" * 40, target="C++", levels=(level,), facts=facts)
    page = browser.new_page(viewport={"width": width, "height": 620})
    page.set_content(lens_page("a kernel", [lens]))
    whole = "one => one.scrollHeight <= one.clientHeight + 1 && one.scrollWidth <= one.clientWidth + 1"
    assert page.locator("#facts").evaluate(whole)
    parts = ["#facts", "#source", "#level", "footer"] if width == 360 else ["#facts", "#level", "footer"]
    boxes = [page.locator(part).bounding_box() for part in parts]
    for above, below in pairwise(boxes):
        assert above["y"] + above["height"] <= below["y"] + 1
    assert all(box["height"] > 100 for box in boxes[1:-1])
    # of a line with many places some are named, and how many there are besides
    assert page.locator("#said").inner_text().endswith("and 52 more places of asm.")
    page.close()


def test_the_turn_that_is_looked_at_stays_in_sight_when_the_list_becomes_shorter(browser: Any) -> None:
    seen = """() => {
        const tree = document.querySelector(".kl-tree").getBoundingClientRect();
        const row = document.querySelector("[role=treeitem][aria-selected=true]")?.getBoundingClientRect();
        return row !== undefined && row.top >= tree.top - 1 && row.bottom <= tree.bottom + 1;
    }"""
    with look.served() as base:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(look.address(base, **look.SHOTS["long"], theme="light"))
        page.wait_for_selector("body[data-ready]")
        page.wait_for_function(seen)
        page.set_viewport_size({"width": 400, "height": 800})
        page.wait_for_timeout(200)
        page.wait_for_function(seen, timeout=5_000)
        # who has scrolled away stays there
        page.locator(".kl-tree").evaluate("tree => { tree.scrollTop = 400; }")
        page.set_viewport_size({"width": 1400, "height": 900})
        page.wait_for_timeout(200)
        assert page.locator(".kl-tree").evaluate("tree => tree.scrollTop") == 400
        page.close()
