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


def test_a_saved_view_shows_what_was_saved_until_a_kernel_sends_the_code(browser: Any) -> None:
    page = browser.new_page()
    page.evaluate(_OPEN, loader("workbench"))
    page.wait_for_function("window.asked.length === 1")
    assert page.evaluate("window.asked[0].body") == {"ask": "bundle"}
    assert page.inner_text("body") == ""
    page.wait_for_selector("b", timeout=10_000)
    assert page.inner_text("body") == "what was saved"

    answer = {"kind": "bundle", "js": _DRAWN, "css": "body { color: rgb(1, 2, 3) }"}
    page.evaluate("(message) => window.answer(message)", answer)
    page.wait_for_function("document.body.textContent.startsWith('drawn')")
    assert page.inner_text("body") == "drawn with <b>what was saved</b>"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(1, 2, 3)"
    page.evaluate("window.leave()")
    assert page.evaluate("window.left")
    page.close()
