"""Make the pictures of the documents anew from a real run: python tests/browser/screenshots.py notebooks/images"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from lab import lab
from quickstart import NOTEBOOK, look, walk


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        shutil.copy(NOTEBOOK, root)
        with lab(root, Path(folder) / "home") as page:

            def at(moment: str) -> None:
                look(page, "Sketch" if moment == "designed" else "Verdict")
                name = "quickstart" if moment == "designed" else "quickstart-asked"
                for theme in ("dark", "light"):
                    page.theme(theme)
                    look(page, "Sketch" if moment == "designed" else "Verdict")
                    page.page.screenshot(path=target / f"{name}-{theme}.png")

            walk(page, at)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
