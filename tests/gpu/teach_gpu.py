"""Records what the lessons' cells ``%%kernel_measure NAME --on CHIP`` measure on this machine's GPU, in a minute.

    python tests/gpu/teach_gpu.py --out notebooks/replays/measured.json

Each such cell's sketch is lowered to Triton, checked and timed beside eager by the Verifier, as the cell itself would
be on this chip. A line a cell; rows of other chips stay in the file, a cell that fails keeps its old row. Commit the
file, and execute the lessons anew: a learner without the chip sees the row, marked as recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernellab.errors import KernellabError
from kernellab.task import load_task
from kernellab.teach.exercise import course
from kernellab.teach.judge import source_of
from kernellab.teach.measure import figures
from kernellab.teach.progress import text_hash
from kernellab.teach.recorded import FILE, Recording, chip_name, here, recordings, write
from kernellab.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cell:
    name: str
    task: str
    chip: str
    text: str


def cells() -> Iterator[Cell]:
    """The cells of all lessons that ask for a chip."""
    for path in sorted((ROOT / "notebooks" / "lessons").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            head, _, text = "".join(cell["source"]).partition("\n")
            words = head.split()
            if words[:1] == ["%%kernel_measure"] and "--on" in words:
                task = words[words.index("--task") + 1] if "--task" in words else words[1]
                yield Cell(words[1], task, words[words.index("--on") + 1], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "notebooks" / FILE)
    parser.add_argument("--only", default="", help="cells whose name holds this word")
    parser.add_argument("--list", action="store_true", help="name the cells, and measure nothing")
    parser.add_argument("--seconds", type=float, default=140.0, help="begin no cell after so long")
    args = parser.parse_args()
    wanted = [cell for cell in cells() if args.only in cell.name]
    if args.list:
        print("\n".join(f"{c.name:22} {c.task:18} {c.chip}  {text_hash(c.text)}" for c in wanted))
        return 0
    import torch
    import triton  # type: ignore[import-untyped]

    versions = f"torch {torch.__version__.partition('+')[0]}, Triton {triton.__version__}"
    rows = {(row.chip, row.name): row for row in recordings(args.out)}
    started, failed = time.monotonic(), 0
    with Verifier() as verifier:
        for cell in wanted:
            target = here(cell.chip)
            if target is None or time.monotonic() - started > args.seconds:
                failed += 1
                why = "no time is left" if target else f"this machine has no {cell.chip}"
                print(f"{cell.name:22} left out: {why}", flush=True)
                continue
            try:
                task = load_task(course(ROOT).task_text(cell.task) or "", cell.task.replace("-", "_"))
                source = source_of(cell.text, task, target.dsl)
                found = figures(task, target, verifier.rank(task, source, target))
            except KernellabError as error:
                failed += 1
                print(f"{cell.name:22} failed: {error}", flush=True)
                continue
            row = Recording(
                name=cell.name, task=cell.task, text=text_hash(cell.text), chip=chip_name(cell.chip), dsl=target.dsl,
                ms=round(found.ms, 5), speedup=found.speedup, against=found.against,
                date=time.strftime("%Y-%m-%d"), versions=versions,
            )  # fmt: skip
            rows[row.chip, row.name] = row
            write(list(rows.values()), args.out)
            print(f"{cell.name:22} {found.text}", flush=True)
    print(f"{len(wanted) - failed} of {len(wanted)} cells recorded in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
