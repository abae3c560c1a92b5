"""How quick the workbench is in a real JupyterLab: python tests/browser/measure.py

Not a test: what it prints is true of the machine that it ran on, while nothing else runs there. Measured are the time
from a key to its diagnostics in a sketch of 200 lines with an idle kernel; from a turn's event in the kernel to its row
on the page; and the frames a second while long lists are scrolled and walked through with the arrow keys; those of a
search also while two candidates arrive ten times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/notebook"), str(ROOT / "widgets/dev")]

import test_monitor  # noqa: E402
import test_scale  # noqa: E402
from board import SOON, Board  # noqa: E402
from lab import CHROMIUM, Lab, lab, no_errors, notebook  # noqa: E402
from latency import TASK, long_sketch  # noqa: E402
from smooth import COUNT, SCROLL, SELECT  # noqa: E402
from smooth_monitor import CASES  # noqa: E402

from kernellab.evolve.run import Run  # noqa: E402
from tests.evolve.runs import modelled  # noqa: E402

#: the person is the Designer, so the kernel idles and the editor takes text
EDITOR = ("%load_ext kernellab", f"%%kernel_design softmax --dsl cpp --roles designer=human --baseline eager\n{TASK}")
#: from the key, by the browser's clock, to the frame after the answer about that very text is in the page
KEYS = """(section) => {
    window.waits = [];
    let key = 0;
    section.addEventListener("keydown", (event) => { key = event.timeStamp; }, true);
    new MutationObserver(() => {
        const { docVersion, checkedVersion } = section.dataset;
        if (!key || docVersion !== checkedVersion) return;
        const since = key;
        key = 0;
        requestAnimationFrame(() => setTimeout(() => window.waits.push(performance.now() - since)));
    }).observe(section, { attributes: true, attributeFilter: ["data-checked-version"] });
}"""
#: when each turn's row was first on the page, in seconds since the epoch
ROWS = """(tree) => {
    window.seen = {};
    const look = () => {
        for (const row of tree.querySelectorAll("[role=treeitem]")) {
            const number = /^turn (\\d+),/.exec(row.getAttribute("aria-label"))?.[1];
            if (number) window.seen[number] ??= (performance.timeOrigin + performance.now()) / 1000;
        }
    };
    look();
    new MutationObserver(look).observe(tree, { subtree: true, childList: true, attributes: true });
}"""
#: a pin is a turn that is done at once, so that only the way to the page is measured
EVENTS = """
import time
told = {{}}
def note(session):
    for turn in session.turns[-2:]:
        told.setdefault(turn.number, time.time())
end = softmax.subscribe(note)
for count in range({count}):
    (softmax.pin if count % 2 == 0 else softmax.unpin)(4)
    await __import__("asyncio").sleep(0.35)
end()
import json
print(json.dumps(told))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--turns", type=int, default=40)
    args = parser.parse_args()
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        notebook(root, "editor.ipynb", *EDITOR)
        # a third of the turns are candidates
        lengths = {"500 turns": 500, "5,000 candidates (15,000 turns)": 15_000}
        for turns in lengths.values():
            _journal(root, turns)
            opened = f"from kernellab.session import open_session\nlong = open_session('long-{turns}', resume=False)"
            notebook(root, f"long-{turns}.ipynb", f"%load_ext kernellab\n{opened}\n%kernel_show long")
        search = modelled(root, score="rank")
        test_monitor.write(search, 5000)
        notebook(root, "search.ipynb", "%load_ext kernellab", f"%kernel_evolve show {search.id}")
        with lab(root, Path(folder) / "home") as page:
            rows += _searching(page, search)
            rows += _editing(page, args.keys, args.turns)
            for name, turns in lengths.items():
                rows += _scrolling(page, name, turns)
            assert page.faults == [], page.faults
    print(_machine())
    for name, value in rows:
        print(f"{name:<58} {value}")


def _editing(page: Lab, keys: int, turns: int) -> list[tuple[str, str]]:
    page.open("editor.ipynb")
    for cell in (0, 1):
        no_errors(page.run(cell))
    board = Board(page.page, "softmax")
    board.wait("waiting")
    panel = board.panel("sketch")
    text = long_sketch()
    board.paste(panel, text)
    board.checked(panel)
    panel.get_by_label("cost and footprint").get_by_text("on chip").wait_for(timeout=SOON)
    page.page.evaluate(KEYS, panel.locator(".kl-sketch").element_handle())
    _type(page, board, panel, keys)
    waits = page.page.evaluate("window.waits")
    found = [(f"key to diagnostics, {text.count(chr(10))} lines, {len(waits)} keys", _quantiles(waits))]

    # the sketch becomes a turn of its own, whose line can be pinned
    board.act("revert").click()
    board.paste(panel, text)
    board.checked(panel)
    no_errors(page.say("softmax.set_approval('all')"))
    board.act("apply").click()
    board.wait_turn("designer by human", SOON)
    board.wait("waiting")
    page.page.evaluate(ROWS, board.root.locator(".kl-tree").element_handle())
    outputs = page.say(EVENTS.format(count=turns), timeout=300)
    no_errors(outputs)
    told = json.loads("".join(output["text"] for output in outputs if output["output_type"] == "stream"))
    page.page.wait_for_function(f"Object.keys(window.seen).length >= {turns}")
    seen = page.page.evaluate("window.seen")
    new = sorted(told, key=int)[-turns:]
    waits = [1000 * (seen[number] - told[number]) for number in new if number in seen]
    return [*found, (f"a turn's event to its row, {len(waits)} turns", _quantiles(waits))]


def _type(page: Lab, board: Board, panel: Any, keys: int) -> None:
    """A line in the middle is retyped, broken and fixed; each key waits for the answer to the one before."""
    editor = board.editor(panel)
    editor.click()
    page.page.keyboard.press("ControlOrMeta+Home")
    for _ in range(100):
        page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("End")
    typed = 0
    while typed < keys:
        for key in [*["Backspace"] * 3, "a", "b", "c", *["Backspace"] * 3]:
            page.page.keyboard.press(key)
            typed += 1
            board.checked(panel)
            page.page.wait_for_timeout(60)  # a person's pause; also lets the frame be drawn that is measured
        page.page.keyboard.press("ControlOrMeta+z")
        page.page.keyboard.press("Escape")
        board.checked(panel)


def _scrolling(page: Lab, name: str, turns: int) -> list[tuple[str, str]]:
    page.open(f"long-{turns}.ipynb")
    no_errors(page.run(0))
    board = Board(page.page, "long")
    board.wait("paused")
    board.panel("candidates").locator(".kl-candidate").first.wait_for(timeout=SOON)
    found = []
    for what, selector in (("timeline", ".kl-tree"), ("candidates", ".kl-candidate-list")):
        for doing, action in (("scroll", SCROLL), ("select", SELECT)):
            page.page.evaluate(COUNT)
            page.page.evaluate(action, selector)
            rate = page.page.evaluate("window.stop_counting()")
            pauses = f"95 % of pauses under {rate['p95']:.0f} ms, longest {rate['worst']:.0f} ms"
            found.append((f"{name}: {doing} the {what}", f"{rate['rate']:.0f} frames/s, {pauses}"))
    return found


def _searching(page: Lab, search: Run) -> list[tuple[str, str]]:
    page.open("search.ipynb")
    for cell in (0, 1):
        no_errors(page.run(cell))
    page.page.locator(".kl-mon-row[data-number]").first.wait_for(timeout=SOON)
    found = []
    with _growing(search):
        for what, action, selector in CASES:
            page.page.evaluate(COUNT)
            with _tasks(page) as longest:
                page.page.evaluate(action, f".kl-mon {selector}")
                rate = page.page.evaluate("window.stop_counting()")
            pauses = f"95 % of pauses under {rate['p95']:.0f} ms, longest {rate['worst']:.0f} ms"
            work = f"longest work of the page {longest[0]:.0f} ms of the processor"
            found.append((f"a search of 5,000 candidates: {what}", f"{rate['rate']:.0f} frames/s, {pauses}, {work}"))
    return found


@contextmanager
def _growing(search: Run) -> Iterator[None]:
    """Two candidates ten times a second, as by another process."""
    ended = threading.Event()

    def grow() -> None:
        while not ended.wait(0.1):
            test_monitor.write(search, 2)

    writer = threading.Thread(target=grow)
    writer.start()
    yield
    ended.set()
    writer.join()


@contextmanager
def _tasks(page: Lab) -> Iterator[list[float]]:
    """The longest tasks of the page's threads in milliseconds of the processor, the longest first: frames wait for the
    main one, and for whatever else the machine does."""
    session, events, longest = page.page.context.new_cdp_session(page.page), [], []
    session.on("Tracing.dataCollected", lambda found: events.extend(found["value"]))
    session.on("Tracing.tracingComplete", lambda _: longest.append(0.0))
    session.send("Tracing.start", {"categories": "toplevel,devtools.timeline", "transferMode": "ReportEvents"})
    yield longest
    session.send("Tracing.end")
    while not longest:
        page.page.wait_for_timeout(50)
    main = {one["tid"] for one in events if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"}
    longest += [one["tdur"] / 1000 for one in events if "tdur" in one and one["tid"] in main]
    longest.sort(reverse=True)
    session.detach()


def _journal(root: Path, turns: int) -> None:
    from kernellab.session.record.journal import open_journal

    test_scale.TURNS = turns
    journal, owner, ident = open_journal(root), uuid.uuid4().hex, f"long-{turns}"
    assert journal.acquire(ident, owner) is None
    journal.append(ident, owner, test_scale.history())
    journal.release(ident, owner)


def _quantiles(waits: Sequence[float]) -> str:
    ordered = sorted(waits)
    return (
        f"p50 {statistics.median(ordered):.0f} ms, p95 {ordered[int(0.95 * len(ordered))]:.0f} ms, "
        f"longest {ordered[-1]:.0f} ms"
    )


def _machine() -> str:
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("model name")]
    cpu = f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"
    browser = subprocess.run([str(CHROMIUM), "--version"], capture_output=True, text=True).stdout.strip()
    packages = ", ".join(f"{name} {version(name)}" for name in ("jupyterlab", "ipykernel", "anywidget"))
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    stamp = time.strftime("%d %b %Y")
    return f"{cpu}, load {load}; {browser}; {packages}; Python {platform.python_version()}; {stamp}"


if __name__ == "__main__":
    main()
