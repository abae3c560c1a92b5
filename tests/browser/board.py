"""One workbench on a page: what a person looks at and clicks."""

from __future__ import annotations

import re
import time
from typing import Any

#: milliseconds for a verification on two busy cores; what is waited for comes much sooner mostly
PATIENCE = 240_000
SOON = 60_000

_TURNS = """async (tree) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const before = tree.scrollTop;
    const found = new Map();
    for (let top = 0; ; top += tree.clientHeight) {
        tree.scrollTop = top;
        await frame();
        await frame();
        for (const row of tree.querySelectorAll("[role=treeitem]"))
            found.set(Number(row.getAttribute("aria-posinset")), row.getAttribute("aria-label"));
        if (top + tree.clientHeight >= tree.scrollHeight) break;
    }
    tree.scrollTop = before;
    return [...found.keys()].sort((a, b) => a - b).map((place) => found.get(place));
}"""


class Board:
    """The workbench of the session ``name`` in the notebook that is in front."""

    def __init__(self, page: Any, name: str, anywhere: bool = False) -> None:
        """``anywhere``: on a page without JupyterLab."""
        self.page = page
        place = "" if anywhere else ".jp-NotebookPanel:visible "
        self.root = page.locator(f"{place}.kl[data-kernellab={name}]").first

    # -- looking -------------------------------------------------------------------------------------------------------

    def wait(self, status: str, timeout: float = PATIENCE) -> None:
        """Until the session's status is one of the words in ``status``."""
        marks = ", ".join(f"[data-status={word}]" for word in status.split())
        self.root.and_(self.page.locator(marks)).wait_for(timeout=timeout)

    def wait_turn(self, words: str, timeout: float = PATIENCE) -> str:
        """Until a turn's spoken line matches the regular expression ``words``; returns the newest that does."""
        end = time.monotonic() + timeout / 1000
        while True:
            turns = self.turns()
            found = [turn for turn in turns if re.search(words, turn)]
            if found:
                return found[-1]
            if time.monotonic() > end:
                raise TimeoutError(f"no turn says {words!r}: {turns}")
            self.page.wait_for_timeout(200)

    def turns(self) -> list[str]:
        """Each turn's spoken line, by number. Only rows in sight are in the page, so this scrolls through them."""
        found: list[str] = self.root.locator(".kl-tree").evaluate(_TURNS)
        return found

    def look(self, number: int) -> None:
        """Look at a turn: bring its row into sight and click on it."""
        row = self.root.get_by_role("treeitem").first.element_handle()
        self.root.locator(".kl-tree").evaluate("(tree, [row, at]) => { tree.scrollTop = at * row.offsetHeight; }", [
            row, number - 1,
        ])  # fmt: skip
        self.root.get_by_role("treeitem", name=re.compile(rf"^turn {number},")).click()
        self.root.get_by_text(f"Turn {number}", exact=True).wait_for(timeout=SOON)

    @property
    def headline(self) -> str:
        found: str = self.root.locator(".kl-figures").inner_text()
        return found

    @property
    def card(self) -> Any:
        """The question to the person."""
        return self.root.get_by_role("region", name="a question to you")

    def act(self, action: str) -> Any:
        """The button of an action, in sight."""
        return self.root.locator(f"[data-action={action}]:visible").first

    def panel(self, name: str) -> Any:
        """Open a panel; returns it."""
        self.root.locator(f"[role=tab][id$=-{name}]").click()
        panel = self.root.locator(f".kl-panel-{name}")
        panel.wait_for(state="visible")
        return panel

    # -- writing -------------------------------------------------------------------------------------------------------

    def editor(self, panel: Any) -> Any:
        """The panel's editor; beside the code the sketch has one too, to its left."""
        return panel.locator(".cm-content").last

    def paste(self, panel: Any, text: str) -> None:
        """Replace the whole text of the panel's editor, as a person does with Ctrl+A and Ctrl+V."""
        editor = self.editor(panel)
        # a click goes to the middle, which is out of sight where a line is long
        editor.focus()
        self.page.keyboard.press("ControlOrMeta+a")
        editor.evaluate(
            """(editor, text) => {
                const data = new DataTransfer();
                data.setData("text/plain", text);
                const paste = { clipboardData: data, bubbles: true, cancelable: true };
                editor.dispatchEvent(new ClipboardEvent("paste", paste));
            }""",
            text,
        )

    def to_end_of(self, panel: Any, words: str) -> None:
        """The caret behind the first line that holds ``words``."""
        self.editor(panel).locator(".cm-line", has_text=words).first.click()
        self.page.keyboard.press("End")

    def checked(self, panel: Any) -> None:
        """Until the checker's answer is about the text that the sketch editor shows."""
        section = panel.locator(".kl-sketch").element_handle()
        self.page.wait_for_function(
            "one => one.dataset.docVersion === one.dataset.checkedVersion", arg=section, timeout=SOON
        )

    def text(self, panel: Any) -> str:
        """What the editor shows; only for texts that fit into it."""
        found: list[str] = self.editor(panel).locator(".cm-line").all_inner_texts()
        return "\n".join(found)

    # -- looks ---------------------------------------------------------------------------------------------------------

    def faint(self) -> list[str]:
        """Texts whose contrast with their ground is under 4.5, the limit of WCAG; buttons that are off are left out."""
        found: list[str] = self.root.evaluate(_FAINT)
        return found

    def too_wide(self) -> list[str]:
        """Parts that stick out of the workbench to the right, and are no text that scrolls in its own box."""
        found: list[str] = self.root.evaluate(_TOO_WIDE)
        return found


_FAINT = """(root) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const parse = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], [R, G, B]) => [r, g, b].map((c, i) => c * a + [R, G, B][i] * (1 - a));
    const behind = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255]);
    };
    const light = (colour) => {
        const [r, g, b] = colour.map((c) => {
            const s = c / 255;
            return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    for (const element of root.querySelectorAll("*")) {
        const words = [...element.childNodes].map((n) => (n.nodeType === 3 ? n.data.trim() : "")).filter(Boolean);
        if (!words.length || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        if (element.closest("[aria-disabled=true], .kl-unseen, [disabled], option, .kl-off-path")) continue;
        const ground = behind(element);
        const text = over(parse(getComputedStyle(element).color), ground);
        const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < 4.5) found.push(`${element.className || element.tagName}: ${words[0]} (${contrast.toFixed(2)})`);
    }
    return found;
}"""

_TOO_WIDE = """(root) => {
    const edge = root.getBoundingClientRect().right + 1;
    const scrolls = (element) => {
        for (let at = element.parentElement; at && at !== root; at = at.parentElement)
            if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(at).overflowX)) return true;
        return false;
    };
    const found = [];
    for (const element of root.querySelectorAll("*")) {
        if (!element.checkVisibility() || element.closest(".kl-unseen") || scrolls(element)) continue;
        const { right, width } = element.getBoundingClientRect();
        const out = Math.round(right - edge);
        if (width > 0 && out > 0) found.push(`${element.className || element.tagName} by ${out} px`);
    }
    return found;
}"""
