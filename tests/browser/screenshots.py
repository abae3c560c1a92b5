"""Make the pictures of the documents from real runs: python tests/browser/screenshots.py notebooks/images

The Prompt panel's is of the session that 05_models_replayed.ipynb replays. README's moving picture, quickstart.webp, is
written where Pillow is installed.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from board import SOON, Board
from lab import Lab, lab, no_errors, notebook
from quickstart import NOTEBOOK, walk

TEACHING = (
    "%load_ext kernellab\n%config KernelLab.teaching = True",
    """%%kernel_design hardswish --dsl cpp --baseline eager
import torch
from kernellab import Dim
def reference(x):
    return x * torch.clamp(x + 3, 0, 6) / 6
N = Dim("N", 1, 2**24)
def inputs(N=2**22):
    return torch.randn(N)
""",
)


#: milliseconds of a frame of the moving picture (five frames are 20 s), and its width in pixels
FRAME_MS, FRAME_WIDTH = 4000, 1100


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    frames: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        shutil.copy(NOTEBOOK, root)
        shutil.copytree(NOTEBOOK.parent / "images", root / "images")
        notebook(root, "teaching.ipynb", *TEACHING)
        with lab(root, Path(folder) / "home") as page:
            page.page.set_viewport_size({"width": 1500, "height": 1100})
            walk(page, lambda moment: _quickstart(page, target, moment, frames))
            _moving(target, frames)
            _predictions(page, target)
            _prompts(page, root, target)


def _quickstart(page: Lab, target: Path, moment: str, frames: list[bytes]) -> None:
    board = Board(page.page, "rms_norm")
    if moment == "asked":
        board.panel("verdict")
        frames.append(_frame(page, board))
        _both(page, board, target, "quickstart-asked", whole=True)
        _both(page, board, target, "card", part=".kl-cards")
        return
    page.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    board.panel("sketch")
    _both(page, board, target, "quickstart", whole=True)
    for panel in ("sketch", "code", "verdict", "roofline"):
        board.panel(panel)
        frames.append(_frame(page, board))
        _both(page, board, target, panel, part=".kl-work")


def _predictions(page: Lab, target: Path) -> None:
    page.open("teaching.ipynb")
    for cell in (0, 1):
        no_errors(page.run(cell))
    board = Board(page.page, "hardswish")
    card = board.root.get_by_role("region", name="prediction")
    card.get_by_text("How fast will it be?").wait_for(timeout=SOON)
    card.get_by_label("times as fast as the reference").fill("3")
    card.get_by_label("because").fill("one pass over memory instead of four, but the sum of it is small")
    board.act("predict").click()
    board.wait("finished")
    card.get_by_text("measured").first.wait_for(timeout=SOON)
    card.locator("details").evaluate("details => { details.open = true; }")
    _both(page, board, target, "prediction", part=".kl-card-predict")


def _prompts(page: Lab, root: Path, target: Path) -> None:
    shutil.copytree(NOTEBOOK.parent / "replays", root / "replays")
    cells = nbformat.read(NOTEBOOK.parent / "05_models_replayed.ipynb", as_version=4).cells
    design = next(cell.source for cell in cells if "--roles replay:" in cell.source and cell.cell_type == "code")
    notebook(root, "replayed.ipynb", "%load_ext kernellab", design)
    page.open("replayed.ipynb")
    for cell in (0, 1):
        no_errors(page.run(cell))
    board = Board(page.page, "attention")
    board.wait("finished")
    board.look(1)
    prompt = board.panel("prompt")
    prompt.get_by_text("Why this prompt").wait_for(timeout=SOON)
    _both(page, board, target, "prompt", part=".kl-work")


def _still(page: Lab, board: Board, theme: str) -> None:
    """The workbench in sight, in ``theme``, drawn, and without a tooltip."""
    page.theme(theme)
    board.root.evaluate("element => element.scrollIntoView({block: 'end'})")
    page.page.mouse.move(2, 2)
    page.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _frame(page: Lab, board: Board) -> bytes:
    """The page in the light theme, as PNG."""
    _still(page, board, "light")
    shot: bytes = page.page.screenshot()
    return shot


def _moving(target: Path, frames: list[bytes]) -> None:
    """The frames as one animated picture, a loop."""
    try:
        from PIL import Image
    except ImportError:
        print("quickstart.webp stays as it is: Pillow is not installed.")
        return
    first, *others = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames]
    size = FRAME_WIDTH, first.height * FRAME_WIDTH // first.width
    small = [picture.resize(size, Image.Resampling.LANCZOS) for picture in (first, *others)]
    small[0].save(
        target / "quickstart.webp", save_all=True, append_images=small[1:], duration=FRAME_MS, loop=0, quality=70,
        method=6,
    )  # fmt: skip


def _both(page: Lab, board: Board, target: Path, name: str, part: str = "", whole: bool = False) -> None:
    """A picture in each theme: of the page, or of a part of the workbench."""
    for theme in ("dark", "light"):
        _still(page, board, theme)
        file = target / f"{name}-{theme}.png"
        if whole:
            page.page.screenshot(path=file)
        else:
            board.root.locator(part).screenshot(path=file)
        _smaller(file)


def _smaller(file: Path) -> None:
    """In 128 colours where a tool for it is there; a picture of text loses nothing to see."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
