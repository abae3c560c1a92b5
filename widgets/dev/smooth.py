"""Whether long sessions stay smooth: python widgets/dev/smooth.py [FRAMES_A_SECOND]

Scrolls and selects in a timeline of 500 turns and in lists of 5,000 turns and candidates, in headless Chromium, and
counts the frames that are drawn meanwhile. Fails under 30 frames a second.
"""

from __future__ import annotations

import sys
from typing import Any

from look import address, browser, served

#: counts frames until stop_counting(), and the longest pause between two
COUNT = """() => {
    const frames = [];
    let on = true;
    const frame = (at) => { frames.push(at); if (on) requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    window.stop_counting = () => {
        on = false;
        const pauses = frames.slice(1).map((at, index) => at - frames[index]).sort((a, b) => a - b);
        const seconds = (frames.at(-1) - frames[0]) / 1000;
        return {
            rate: (frames.length - 1) / seconds, worst: pauses.at(-1),
            p95: pauses[Math.floor(0.95 * pauses.length)], frames: frames.length,
        };
    };
}"""
#: from one end to the other and back in small steps, one a frame, as a wheel or a dragged bar does
SCROLL = """(selector) => new Promise((done) => {
    const box = document.querySelector(selector);
    const end = box.scrollHeight - box.clientHeight;
    const steps = 240;
    let step = 0;
    const next = () => {
        step += 1;
        box.scrollTop = end * Math.abs(1 - Math.abs(1 - (2 * step) / steps));
        step < steps ? requestAnimationFrame(next) : done(box.scrollTop);
    };
    next();
})"""
#: an arrow key a frame
SELECT = """(selector) => new Promise((done) => {
    const box = document.querySelector(selector);
    box.focus();
    let step = 0;
    const next = () => {
        step += 1;
        const key = step % 40 === 0 ? "PageUp" : step > 120 ? "ArrowUp" : "ArrowDown";
        box.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
        step < 240 ? requestAnimationFrame(next) : done();
    };
    next();
})"""
#: a trait of the kernel changes every 100 ms: the newest row, as a turn runs
GROW = """() => {
    window.growing = setInterval(() => {
        const rows = window.model.get("turns");
        const last = { ...rows.at(-1), note: `at work ${Date.now()}`, state: "running" };
        window.model.set("changed", [last]);
    }, 100);
}"""
CASES = [
    ("500 turns", 500, ".kl-tree"),
    ("5000 turns", 5000, ".kl-tree"),
    ("5000 candidates", 5000, ".kl-candidate-list"),
]


def measure(page: Any, action: str, selector: str) -> dict[str, float]:
    page.evaluate(COUNT)
    page.evaluate(action, selector)
    found: dict[str, float] = page.evaluate("window.stop_counting()")
    return found


def main(wanted: float) -> int:
    slow = 0
    with served() as base, browser() as chromium:
        for name, rows, selector in CASES:
            page = chromium.new_page(viewport={"width": 1180, "height": 900})
            page.goto(address(base, fixture="designed", turns=rows, panel="candidates", theme="light"))
            page.wait_for_selector("body[data-ready]")
            page.wait_for_selector(".kl-candidate")
            page.evaluate(GROW)
            print(f"{name}: first drawn in {page.evaluate('window.drawn_ms'):.0f} ms")
            for what, action in (("scroll", SCROLL), ("select", SELECT)):
                found = measure(page, action, selector)
                slow += found["rate"] < wanted
                print(
                    f"  {what}: {found['rate']:.0f} frames/s over {found['frames']:.0f} frames, "
                    f"95 % of pauses under {found['p95']:.0f} ms, longest {found['worst']:.0f} ms"
                )
            page.close()
    return slow


if __name__ == "__main__":
    sys.exit(1 if main(float(sys.argv[1]) if len(sys.argv) > 1 else 30) else 0)
