"""How much of the built-in suite each rewrite reaches, and whether what it makes keeps the meaning.

    python -m tests.sketch.rewrite.coverage [--share N] [--seed WORD] [--only NAME,NAME] [--no-gate] [--rank N]

For each rewrite and DSL: the share of the suite's sketches that it applies to, the variants that it made and how many
of them pass ``check`` on the chip, and of one variant of each sketch how many the sketch gate finds right. A design
that is not right itself, or cannot be run, is left out of the gate. ``--share 4`` takes a quarter of the tasks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from kernellab.records import GateState
from kernellab.sketch.gate import gate
from kernellab.sketch.rewrite import REWRITES, Setting
from kernellab.sketch.syntax.parse import parse
from tests.breadth import share
from tests.sketch.rewrite.designs import Design, designs, drawn, places, variants

PROCESSES = 1
SECONDS = 0.2


@dataclass
class Found:
    """Counts by (rewrite, dsl): sketches, those it applies to, variants made and kept, gated and right."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, name: str, dsl: str, count: int = 1) -> None:
        self.counts[what, name, dsl] += count


def look(place: str, names: tuple[str, ...], seed: str, gated: bool, ranks: int) -> Found:
    """Every rewrite on every design of one task."""
    found = Found()
    for design in designs(place, ranks):
        found.add("sketches", "", design.dsl)
        runs = gated and gate(design.text, design.task, seconds=SECONDS).state is GateState.RIGHT
        setting = Setting(design.text, parse(design.text), design.target.chip, design.dsl)
        for name in names:
            made = {v.text for v in REWRITES[name].apply(setting)} - {design.text}
            kept = variants(design, name)
            found.add("made", name, design.dsl, len(made))
            found.add("kept", name, design.dsl, len(kept))
            found.add("applies", name, design.dsl, bool(kept))
            if kept and runs:
                _gated(found, design, place, name, seed)
    return found


def _gated(found: Found, design: Design, place: str, name: str, seed: str) -> None:
    variant = drawn(design, name, seed)
    assert variant is not None
    result = gate(variant.text, design.task, chip=design.target.chip, seconds=SECONDS)
    if result.state is GateState.NOT_RUNNABLE:
        # too much for the interpreter in that time
        return
    found.add("gated", name, design.dsl)
    if result.state is GateState.RIGHT:
        found.add("right", name, design.dsl)
    else:
        found.wrong.append(f"{place} {design.dsl} {design.rank} {name}: {variant.why}: {result.reason}\n{variant.text}")


def table(found: Found, names: tuple[str, ...]) -> str:
    """One line a rewrite, with what it does in each DSL."""
    dsls = sorted({dsl for what, _, dsl in found.counts if what == "sketches"})
    lines = [f"{'rewrite':12}" + "".join(f" | {dsl:>8} applies    kept/made   right/gated" for dsl in dsls)]
    for name in names:
        line = f"{name:12}"
        for dsl in dsls:
            count = {w: found.counts[w, name, dsl] for w in ("applies", "made", "kept", "gated", "right")}
            part = count["applies"] / max(1, found.counts["sketches", "", dsl])
            line += f" | {part:16.0%} {count['kept']:>6}/{count['made']:<6} {count['right']:>5}/{count['gated']:<5}"
        lines.append(line)
    total = ", ".join(f"{found.counts['sketches', '', dsl]} in {dsl}" for dsl in dsls)
    return "\n".join([*lines, f"Sketches: {total}."])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default=",".join(REWRITES))
    parser.add_argument("--no-gate", action="store_true")
    parser.add_argument("--rank", type=int, default=8, help="schedules of each task and DSL")
    options = parser.parse_args(arguments)
    names = tuple(options.only.split(","))
    wanted = share(places(), options.seed, options.share)
    found = Found()
    # spawned: a forked process inherits torch's threads in whatever state they are
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(look, p, names, options.seed, not options.no_gate, options.rank) for p in wanted]
        for job in jobs:
            part = job.result()
            found.counts.update(part.counts)
            found.wrong += part.wrong
            for text in part.wrong:
                print(text, flush=True)
    print(table(found, names))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
