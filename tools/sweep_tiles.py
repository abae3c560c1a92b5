"""Measure tiles of one kind on this GPU and write the fastest as a row of its ``knowledge/hardware/<chip>.tiles.toml``.

    python tools/sweep_tiles.py product --when "precision == 'tf32' and along" --values m=64,128 n=64,128,256 d=32 \\
        warps=4,8 stages=3,4 --task big.py --task small.py --sweep "4 x 3 tiles at 4096^3 and 512^3" --write

Every combination of ``--values`` is designed for every task, as if a row said so, and timed by the Verifier's ranking
clock. The row that is written is the one with the least geometric mean of (its time / the fastest of that task); a
combination that fails for a task is out. ``--when`` must hold for each launch of the kind in every task: what it may
name stands above the kind's rows. ``--dry`` designs, prints what would be measured, and needs no GPU (``--chip``).
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from kernellab.capture import Graph, capture
from kernellab.designer.schedule import scheduled
from kernellab.designer.tile.gpu.rows import Quantity, Row, Rows, Value, read_rows
from kernellab.designer.tile.styles import Style, styles
from kernellab.dsls.machine import detect_target, named_chip
from kernellab.errors import DesignError, KernellabError
from kernellab.target import Backend, Target
from kernellab.target.chips import known_chips
from kernellab.task import Task, load_task
from kernellab.tuning import WorkerMeasure
from kernellab.tuning.space import Point

Tile = Mapping[str, Value]


@dataclass(frozen=True)
class Trial(Rows):
    """The chip's rows, with ``tile`` for every launch of ``kind``; ``asked`` collects what those launches are."""

    kind: str = ""
    tile: Tile = field(default_factory=dict)
    asked: list[Mapping[str, Quantity]] = field(default_factory=list)

    def first(self, kind: str, dsl: str, quantities: Mapping[str, Quantity]) -> Mapping[str, Value] | None:
        if kind != self.kind:
            return super().first(kind, dsl, quantities)
        self.asked.append(quantities)
        return self.tile


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        return _sweep(args)
    except KernellabError as error:
        print(f"{error.message}\n  -> {error.remedy}", file=sys.stderr)
        return 1


def _sweep(args: argparse.Namespace) -> int:
    if args.dry:
        target = Target(args.dsl, Backend.CUDA, named_chip(args.chip))
    else:
        target = detect_target(args.dsl)
        if target.backend is not Backend.CUDA:
            raise KernellabError(
                "Tiles are measured on a GPU, and this machine has none.", "Add --dry to see the plan."
            )
    path = _rows_file(target)
    present = read_rows(path) if path.exists() else Rows()
    tiles = combinations(args.values)
    tasks = [load_task(Path(name).read_text(encoding="utf-8"), Path(name).stem) for name in args.task]
    designs = {task.name: designed(task, target, args.kind, args.when, tiles, present) for task in tasks}
    for name, texts in designs.items():
        print(f"{name}: {sum(t is not None for t in texts)} of {len(tiles)} combinations can be designed")
    if args.dry:
        print(row_text(args.kind, args.when, tiles[0], target.dsl, args.sweep))
        return 0
    times = [_measured(task, target, designs[task.name], args.seconds) for task in tasks]
    best = fastest(times)
    for tile, *each in zip(tiles, *times, strict=True):
        print(words(tile), " ".join("-" if t is None else f"{t * 1e3:.1f}us" for t in each))
    row = row_text(args.kind, args.when, tiles[best], target.dsl, args.sweep)
    print(row)
    if args.write:
        path.write_text(with_row(path.read_text(encoding="utf-8") if path.exists() else "", args.kind, row))
        read_rows.cache_clear()
        print(f"written to {path}; record the golden texts that it changes")
    return 0


def designed(
    task: Task, target: Target, kind: str, when: str, tiles: Sequence[Tile], present: Rows
) -> list[str | None]:
    """The sketch of ``task`` with each tile; None where it cannot be designed so.

    Raises:
        KernellabError: no launch asks for the kind, or ``when`` does not hold for one that does.
    """
    graph, style = capture(task), next(s for s in styles(target) if s.measured)
    condition = Row(kind, (target.dsl,), when, {}, "", "")
    found: list[str | None] = []
    for tile in tiles:
        trial = Trial(present.rows, kind, tile)
        found.append(_text(task, graph, target, style, trial))
        if not trial.asked:
            raise KernellabError(
                f"No launch of {task.name} asks for rows of the kind {kind!r}.", "Choose another task."
            )
        for quantities in trial.asked:
            try:
                holds = condition.holds(quantities)
            except KeyError as error:
                known = ", ".join(quantities)
                raise KernellabError(
                    f"--when names {error.args[0]!r}, which a {kind} has not.", f"Use {known}."
                ) from None
            if not holds:
                facts = ", ".join(f"{k} = {v!r}" for k, v in quantities.items() if not callable(v))
                raise KernellabError(f"--when does not hold for {task.name}: {facts}.", "Change it, or the tasks.")
    return found


def _text(task: Task, graph: Graph, target: Target, style: Style, rows: Rows) -> str | None:
    try:
        return scheduled(task, graph, target, style, rows).text
    except DesignError:
        return None


def _measured(task: Task, target: Target, texts: Iterable[str | None], seconds: float) -> list[float | None]:
    """Milliseconds of each text; None where it has none."""
    from kernellab.verifier import Verifier

    with Verifier() as verifier:
        measure = WorkerMeasure(verifier, task, target, {})
        points = [None if text is None else measure(Point.of(text, {}), seconds) for text in texts]
    return [None if p is None or p.time is None else p.time.median_ms for p in points]


def fastest(times: Sequence[Sequence[float | None]]) -> int:
    """Which combination has the least geometric mean over the tasks of its time / the task's least.

    Raises:
        KernellabError: none ran for every task.
    """
    least = [min((t for t in each if t is not None), default=math.inf) for each in times]
    scores = {}
    for n, own in enumerate(zip(*times, strict=True)):
        ratios = [t / low for t, low in zip(own, least, strict=True) if t is not None]
        if len(ratios) == len(times):
            scores[n] = math.prod(ratios) ** (1 / len(ratios))
    if not scores:
        raise KernellabError("No combination ran for every task.", "Leave out a task, or give other values.")
    return min(scores, key=scores.__getitem__)


def combinations(given: Sequence[str]) -> list[Tile]:
    """``m=64,128 d=32`` as every choice of one value for each name. Raises KernellabError."""
    names, values = [], []
    for text in given:
        name, _, listed = text.partition("=")
        if not name.isidentifier() or not all(part.isdigit() for part in listed.split(",")):
            raise KernellabError(f"--values {text!r} is not NAME=NUMBER,NUMBER...", "Write m=64,128.")
        names.append(name)
        values.append([int(part) for part in listed.split(",")])
    return [dict(zip(names, choice, strict=True)) for choice in itertools.product(*values)]


def row_text(kind: str, when: str, tile: Tile, dsl: str, sweep: str) -> str:
    """The row as it stands in the file."""
    lines = ["[[row]]", f'kind = "{kind}"', f'dsls = ["{dsl}"]', f"when = {_quoted(when)}"]
    lines += [f"{name} = {value}" for name, value in tile.items()]
    return "\n".join([*lines, f"date = {date.today()}", f"sweep = {_quoted(sweep)}"]) + "\n"


def with_row(text: str, kind: str, row: str) -> str:
    """``text`` with ``row`` before the first of its kind, for the first that holds is taken; else at the end."""
    head = f'[[row]]\nkind = "{kind}"\n'
    before, found, after = text.partition(head)
    return f"{before}{row}\n{found}{after}" if found else f"{text}\n{row}".lstrip("\n")


def words(tile: Tile) -> str:
    return " ".join(f"{name}={value}" for name, value in tile.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _rows_file(target: Target) -> Path:
    entry = next((e for e in known_chips() if e.chip.name == target.chip.name), None)
    if entry is None:
        raise KernellabError(f"No file of knowledge/hardware describes {target.chip.name}.", "Write one first.")
    return entry.path.with_suffix(".tiles.toml")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", help="product, attention, row_block, scan_block, window_tile ...")
    parser.add_argument("--task", action="append", required=True, help="a task's Python file; repeatable")
    parser.add_argument("--values", nargs="+", required=True, help="NAME=NUMBER,NUMBER for each value of a row")
    parser.add_argument("--when", default="True", help="the row's condition")
    parser.add_argument("--sweep", required=True, help="what was measured, in words")
    parser.add_argument("--dsl", default="triton")
    parser.add_argument("--chip", default="h200", help="with --dry: the chip to design for")
    parser.add_argument("--seconds", type=float, default=0.4, help="seconds of timed calls of a combination")
    parser.add_argument("--dry", action="store_true", help="design and print, measure nothing")
    parser.add_argument("--write", action="store_true", help="put the row into the chip's file")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
