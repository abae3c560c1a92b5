"""Pictures of the workbench on dumps of sessions, without a kernel: python widgets/dev/look.py OUT [NAME ...]"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/browser"))
THEMES = {
    "light": "theme-light-extension",
    "dark": "theme-dark-extension",
    "contrast": "theme-dark-high-contrast-extension",
}

#: name -> what the page is asked for
SHOTS: dict[str, dict[str, Any]] = {
    "sketch": {"fixture": "designed", "panel": "sketch"},
    "code": {"fixture": "designed", "panel": "code"},
    "verdict": {"fixture": "designed", "panel": "verdict"},
    "failed": {"fixture": "edge_tile", "panel": "verdict"},
    "verifying": {"fixture": "verifying", "panel": "verdict"},
    "accesses": {"fixture": "edited", "panel": "accesses"},
    "roofline": {"fixture": "edited", "panel": "roofline"},
    "candidates": {"fixture": "edited", "panel": "candidates"},
    "brief": {"fixture": "brief", "panel": "sketch"},
    "unparsable": {"fixture": "unparsable", "panel": "sketch"},
    "long": {"fixture": "designed", "panel": "candidates", "turns": 5000},
    "model": {"fixture": "model", "panel": "prompt"},
    "prompt": {"fixture": "edited", "panel": "prompt", "extra": 1},
    "memory": {
        "fixture": "edited",
        "panel": "memory",
        "extra": 1,
        "with": {"detail": {"memory": [{"title": "layer_norm", "text": "sketch layer_norm", "why": "alike"}]}},
    },
    "predict": {
        "fixture": "edited",
        "panel": "code",
        "extra": 1,
        "with": {
            "head": {
                "prediction": {
                    "asked": True,
                    "turn": "t9",
                    "expected": None,
                    "reason": "",
                    "measured": None,
                    "history": [],
                }
            },
            "partial": {"turn": "t9", "role": "coder", "text": '#include "kl_tile.h"\n\nstatic void', "length": 4210},
            "detail": {"exchanges": []},
        },
    },
    "fault": {
        "fixture": "designed",
        "panel": "sketch",
        "with": {
            "head": {
                "status": "waiting",
                "status_text": "waiting for you",
                "message": "",
                "card": {
                    "id": "c",
                    "kind": "error",
                    "role": "coder",
                    "title": "The Coder could not go on.",
                    "text": "",
                    "hint": "Try again, or do it yourself.",
                    "evidence": [],
                    "to": None,
                    "suggestion": "",
                    "pending": True,
                    "editable": False,
                },
            },
            "detail": {
                "error": "The model's server did not answer within 60 s.",
                "remedy": "Check base_url in kernellab.toml, then try again.",
            },
        },
    },
    "help": {"fixture": "designed", "panel": "verdict", "keys": "?"},
    "narrow": {"fixture": "edge_tile", "panel": "verdict", "width": 420},
}


#: the monitor's, on a search that is made up
MONITOR: dict[str, dict[str, Any]] = {
    "monitor": {"rows": 240},
    "monitor-compare": {"rows": 240, "panel": "compare"},
    "monitor-kinds": {"rows": 240, "panel": "grid"},
    "monitor-analyst": {"rows": 60, "panel": "analyst"},
    "monitor-ledger": {"rows": 240, "panel": "ledger"},
    "monitor-steer": {"rows": 240, "panel": "steer"},
    "monitor-long": {"rows": 5000},
    "monitor-narrow": {"rows": 240, "width": 560},
}


class _Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        if path.startswith("/themes/"):
            theme, _, rest = path.removeprefix("/themes/").partition("/")
            share = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"
            return str(share / THEMES[theme] / rest)
        return super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(ROOT)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/widgets/dev/"
    finally:
        server.shutdown()


@contextmanager
def browser() -> Iterator[Any]:
    from lab import CHROMIUM, FLAGS
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def address(base: str, **asked: Any) -> str:
    if "with" in asked:
        asked["with"] = json.dumps(asked["with"])
    return f"{base}?{urlencode(asked)}"


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with served() as base, browser() as chromium:
        for name in names or [*SHOTS, *MONITOR]:
            for theme in THEMES:
                page = chromium.new_page(viewport={"width": 1180, "height": 900})
                faults: list[str] = []
                page.on("console", lambda m, f=faults: f.append(m.text) if m.type == "error" else None)
                page.on("pageerror", lambda e, f=faults: f.append(str(e)))
                where = f"{base}monitor.html" if name in MONITOR else base
                page.goto(address(where, **(MONITOR.get(name) or SHOTS[name]), theme=theme))
                page.wait_for_selector("body[data-ready]")
                page.wait_for_timeout(400)
                page.screenshot(path=out / f"{name}-{theme}.png", full_page=True)
                page.close()
                for fault in faults:
                    print(f"{name} {theme}: {fault}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
