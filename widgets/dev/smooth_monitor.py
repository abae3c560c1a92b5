"""Whether the monitor stays smooth at 5,000 candidates: python widgets/dev/smooth_monitor.py [P95_MS]

In headless Chromium, while two candidates arrive ten times a second: the table is scrolled and walked through, and the
chart is looked at. Says the 95th percentile of the time between two frames; fails above P95_MS (33).
"""

from __future__ import annotations

import sys

from look import address, browser, served
from smooth import SCROLL, SELECT, measure

#: what a search of two candidates each tenth of a second would send
GROW = "() => { window.growing = setInterval(() => window.grow(2), 100); }"
#: nothing is done: what arrives is drawn
WATCH = "() => new Promise((done) => setTimeout(done, 4000))"
#: the mouse goes over the chart, as a person who looks for a point
POINT = """(selector) => new Promise((done) => {
    const canvas = document.querySelector(selector);
    const frame = canvas.getBoundingClientRect();
    let step = 0;
    const next = () => {
        step += 1;
        const at = { clientX: frame.left + (step * 7) % frame.width, clientY: frame.top + (step * 3) % frame.height };
        canvas.dispatchEvent(new MouseEvent("mousemove", { ...at, bubbles: true }));
        step < 240 ? requestAnimationFrame(next) : done();
    };
    next();
})"""
CASES = (
    ("watch", WATCH, "canvas"), ("point", POINT, "canvas"), ("scroll", SCROLL, ".kl-mon-table"),
    ("select", SELECT, ".kl-mon-table"),
)  # fmt: skip


def main(most: float) -> int:
    slow = 0
    with served() as base, browser() as chromium:
        for rows in (500, 5000):
            page = chromium.new_page(viewport={"width": 1180, "height": 900})
            page.goto(address(f"{base}monitor.html", rows=rows, theme="light"))
            page.wait_for_selector("body[data-ready]")
            print(f"{rows} candidates: first drawn in {page.evaluate('window.drawn_ms'):.0f} ms")
            page.evaluate(GROW)
            for what, action, selector in CASES:
                found = measure(page, action, selector)
                slow += found["p95"] > most
                print(
                    f"  {what}: p95 {found['p95']:.1f} ms, longest {found['worst']:.0f} ms, "
                    f"{found['rate']:.0f} frames/s over {found['frames']:.0f} frames"
                )
            page.close()
    return slow


if __name__ == "__main__":
    sys.exit(1 if main(float(sys.argv[1]) if len(sys.argv) > 1 else 33) else 0)
