"""Execute a notebook here, print what its cells tagged ``demo`` say, and save it as HTML.

python tools/demo.py notebooks/01_quickstart.ipynb --out out
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--in-place", action="store_true", help="write the executed notebook back")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    book = nbformat.read(args.notebook, as_version=4)
    started = time.monotonic()
    failure = ""
    # a separate folder, so that the demo designs everything again and leaves no journal
    with tempfile.TemporaryDirectory(prefix="kernellab-demo-") as folder:
        (Path(folder) / "kernellab.toml").touch()
        if (recordings := args.notebook.parent / "replays").is_dir():
            shutil.copytree(recordings, Path(folder) / "replays")
        client = NotebookClient(
            book,
            timeout=600,
            store_widget_state=False,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # no warning of a transport that stays on this machine
            resources={"metadata": {"path": folder}},
            on_cell_executed=lambda cell, **_: report(cell),
        )
        try:
            client.execute()
        except CellExecutionError as error:
            failure = f"{error.ename}: {error.evalue}"

    without_widgets(book)
    resources = {"metadata": {"path": str(args.notebook.parent)}}  # where its pictures are
    page, _ = HTMLExporter(template_name="lab", embed_images=True).from_notebook_node(book, resources=resources)
    target = args.out / f"{args.notebook.stem}.html"
    target.write_text(page)
    nbformat.write(book, args.notebook if args.in_place and not failure else args.out / args.notebook.name)
    print(f"\nexecuted in {time.monotonic() - started:.0f} s, saved as {target}")
    if failure:
        print(f"the notebook stopped: {failure}", file=sys.stderr)
    return 1 if failure else 0


def without_widgets(book: Any) -> None:
    """Keep each output's text and HTML only: a widget without its kernel shows as an error, and hides them."""
    book.metadata.pop("widgets", None)
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times of day
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)


def report(cell: Any) -> None:
    if "demo" not in cell.metadata.get("tags", []):
        return
    title = cell.source.strip().splitlines()[0]
    print(f"\n> {title}")
    for output in cell.outputs:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        print("  " + text.rstrip().replace("\n", "\n  "), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
