"""The view of a widget in a page that no kernel, or a late one, sends the front end to."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from lab import CHROMIUM

from kernellab.notebook.widget import loader

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

#: a saved model, whose kernel answers when it is told to
_OPEN = """async (text) => {
    const hear = [];
    window.asked = [];
    const model = {get: (name) => name === "saved" ? "<b>what was saved</b>" : undefined,
                   on: (_, take) => hear.push(take), send: (message) => window.asked.push(message)};
    window.answer = (message) => hear.forEach((take) => take(message));
    const {default: view} = await import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
    view.initialize({model});
    window.leave = await view.render({model, el: document.body});
}"""
_DRAWN = """export default {render({model, el}) { el.append("drawn with " + model.get("saved")); return () => {
    window.left = true; }; }};"""


_KIND = {"kind": "bundle", "js": _DRAWN, "css": "body { color: rgb(1, 2, 3) } b { color: rgb(4, 5, 6) }"}


def test_a_saved_view_shows_what_was_saved_until_a_kernel_sends_the_code(browser: Any) -> None:
    page = browser.new_page()
    page.evaluate(_OPEN, loader("workbench"))
    page.wait_for_function("window.asked.length === 1")
    assert page.evaluate("window.asked[0].body") == {"ask": "bundle"}
    assert page.inner_text("body") == ""
    page.wait_for_selector("b", timeout=10_000)
    assert page.inner_text("body") == "what was saved"

    page.evaluate("(message) => window.answer(message)", _KIND)
    page.wait_for_function("document.body.textContent.startsWith('drawn')")
    assert page.inner_text("body") == "drawn with <b>what was saved</b>"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(1, 2, 3)"
    page.evaluate("window.leave()")
    assert page.evaluate("window.left")
    page.close()


def test_a_page_asks_once_for_all_its_views_and_again_where_no_answer_comes(browser: Any) -> None:
    page = browser.new_page()
    text = loader("workbench").replace("const AGAIN = [3000,", "const AGAIN = [900,")
    for _ in range(3):
        page.evaluate(_OPEN.replace("window.asked = []", "window.asked ??= []"), text)
    page.wait_for_function("window.asked.length === 1")
    page.wait_for_timeout(400)
    assert page.evaluate("window.asked.length") == 1
    page.wait_for_function("window.asked.length === 2")
    page.evaluate("(message) => window.answer(message)", _KIND)
    page.wait_for_function("document.body.textContent.startsWith('drawn')")
    page.close()


def test_what_fails_while_it_is_drawn_is_said_where_the_view_would_stand(browser: Any) -> None:
    page = browser.new_page()
    page.evaluate(_OPEN, loader("workbench"))
    failing = "export default {render() { throw new Error('no canvas'); }};"
    page.evaluate("(message) => window.answer(message)", {**_KIND, "js": failing})
    page.wait_for_function("document.body.textContent.includes('no canvas')")
    assert "could not be drawn" in page.inner_text("body")
    page.close()


def test_a_view_in_a_shadow_root_has_its_styles(browser: Any) -> None:
    """marimo draws each widget in one; what is in the page's head does not reach it."""
    page = browser.new_page()
    host = """const root = document.body.appendChild(document.createElement("div")).attachShadow({mode: "open"});
    const el = root.appendChild(document.createElement("div"));
    window.leave"""
    page.evaluate(_OPEN.replace("window.leave", host).replace("el: document.body", "el"), loader("workbench"))
    drawn = "export default {render({el}) { el.innerHTML = '<b>in the shadow</b>'; }};"
    page.evaluate("(message) => window.answer(message)", {**_KIND, "js": drawn})
    found = page.locator("b", has_text="in the shadow")
    found.wait_for()
    assert found.evaluate("b => getComputedStyle(b).color") == "rgb(4, 5, 6)"
    page.close()
