"""The Verifier attacked with all that is known, as the table of SECURITY.md: ``make redteam``.

    python -m tests.zoo.redteam [--parts cheats,errors,plain,honest,mutants,rank] [--jobs 2] [--gpu] [--mutants 150]
        [--seconds 3600] [--write]

Each part is one row, with its date and machine; parts that do not run keep their last row. The public corpora's
exploits are exhibits of the zoo by their kind (``catalogue.toml``), and are counted as rows of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from kernellab.conditions import DrawnLimit, Mark, ScalarLimit, StridesLimit
from kernellab.errors import KernellabError
from kernellab.records import Ranking
from kernellab.verifier import RankOptions, Verifier
from tests.verifier import mutated_references

from .exhibit import Exhibit, Place, exhibits
from .show import BROKEN, ELSEWHERE, FALSE_ALARM, HARMLESS, NO_TIME, RIGHT, TOLD, Finding, Keeper

ROOT = Path(__file__).resolve().parents[2]
ROWS = Path(__file__).with_suffix(".json")
#: numbers of the catalogue by who met them
CORPORA = {
    "KernelBench's reports": (1, 5, 24, 30, 32, 33, 36, 37, 45, 47, 53),
    "robust-kbench": (8, 24, 29, 33, 39),
    "KernelBench-Hard's annotated runs": (13, 15, 43, 44, 45, 54),
    "gpu-mode's incidents": (3, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 29, 35, 44, 46),
}
#: what a search that only ranks would breed
BRED = (
    "blas_by_ctypes", "written_late", "powers_of_two_of_rows", "ring_of_outputs", "argmax_past_nan",
    "online_softmax_from_a_leading_inf", "sum_in_32_bits", "one_argument_transposed", "a_slope_above_one",
    "a_row_buffer_of_40000", "zeros_after_some_calls", "half_precision_inside", "the_first_answer_for_ever",
    "causal_built_in", "one_maximum_for_all_rows", "ties_rounded_up",
)  # fmt: skip
_BEGIN, _END = "<!-- redteam: python -m tests.zoo.redteam --write -->", "<!-- /redteam -->"


@dataclass(frozen=True)
class Row:
    """What became of one part's kernels. ``by_name``: refused where and as it is expected; ``told``: passed with a
    condition that names the values or layouts for which it is wrong; ``unseen``: could not be shown."""

    part: str
    tried: int
    by_name: int = 0
    refused: int = 0
    told: int = 0
    harmless: int = 0
    passed: int = 0
    unseen: int = 0
    when: str = ""
    where: str = ""

    @property
    def text(self) -> str:
        tried = f"{self.tried} of {self.tried + self.unseen}" if self.unseen else self.tried
        figures = (tried, self.by_name, self.refused, self.told, self.harmless, self.passed)
        return f"| {self.part} | {' | '.join(map(str, figures))} | {self.when}, {self.where} |"


def of_findings(part: str, findings: Sequence[Finding]) -> Row:
    seen = [f for f in findings if f.outcome != BROKEN]

    def count(*outcomes: str) -> int:
        return sum(f.outcome in outcomes for f in seen)

    refused = (RIGHT,) if part != HONEST else ()
    return Row(
        part, len(seen), count(*refused), count(ELSEWHERE, FALSE_ALARM), count(TOLD), count(HARMLESS),
        len(seen) - count(*refused, ELSEWHERE, FALSE_ALARM, TOLD, HARMLESS), len(findings) - len(seen),
    )  # fmt: skip


HONEST = "honest kernels (a refusal is an error)"


def shown(chosen: Sequence[Exhibit], place: Place, jobs: int, until: float) -> list[Finding]:
    found = []
    with Keeper(jobs, place, until) as keeper:
        for finding in keeper.all(chosen):
            found.append(finding)
            print(f"  {finding.outcome:18} {finding.seconds:6.1f} s  {finding.name}", flush=True)
            if not finding.ok and finding.reason != NO_TIME:
                print(f"    {finding.reason} [{finding.label}]", flush=True)
    return found


def ranked(until: float) -> Row:
    """The sixteen that a search would breed, each ranked."""
    named = {e.name: e for e in exhibits()}
    fates: list[str] = []
    with Verifier() as verifier:
        for name in BRED:
            if time.monotonic() > until:
                break
            exhibit = named[name]
            options = RankOptions(allow_library=exhibit.card.allow_library, budget=0.05, threads=1)
            try:
                found = verifier.rank(exhibit.task, exhibit.source("cpu"), exhibit.target("cpu"), options=options)
            except KernellabError as error:
                print(f"  unseen {name}: {error.message}", flush=True)
                continue
            fates.append(fate(found))
            print(f"  {fates[-1]:8} {found.seconds:5.2f} s  {name}: {found.reason}", flush=True)
    counts = {kind: fates.count(kind) for kind in ("refused", "told", "passed")}
    part = "what a search would breed, ranked"
    return Row(part, len(fates), unseen=len(BRED) - len(fates), **counts)


def fate(found: Ranking) -> str:
    limits = [c for c in found.conditions if isinstance(c, (DrawnLimit, ScalarLimit, StridesLimit, Mark))]
    told = [c for c in limits if not isinstance(c, Mark) or c.kind in ("tensor-given-twice", "ghost")]
    return "refused" if not found.ranked else "told" if told else "passed"


def mutants(count: int, rank: bool, until: float) -> Row:
    """Built-in references with one place changed; those that pass are read and listed in mutants.md."""
    fates: list[str] = []
    with Verifier() as verifier:
        for task, change, text in mutated_references.chosen(60, 5, each=-(-count // 60)):
            if time.monotonic() > until or len(fates) == count:
                break
            one = mutated_references.judged(verifier, task, change, text, rank)
            fates.append(one.fate)
            print(f"  {one.fate:10} {one.seconds:5.1f} s  {one.task}: {one.change}", flush=True)
    part = f"changed references, {'ranked' if rank else 'verified'} (some are equivalent)"
    tried = [f for f in fates if f != "failed"]
    told, passed = tried.count("condition"), tried.count("passed")
    return Row(part, len(tried), 0, len(tried) - told - passed, told, 0, passed, len(fates) - len(tried))


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), os.uname().machine)
    return f"{re.sub(r' Processor|[(]R[)]|[(]TM[)]| CPU @.*', '', name)}, {os.cpu_count()} cores"


def rows_of(parts: Sequence[str], options: argparse.Namespace) -> Iterator[Row]:
    """Runs the parts, each until its time is over."""
    place: Place = "gpu" if options.gpu else "cpu"
    here = [e for e in exhibits() if place in e.card.where]
    groups: dict[str, tuple[str, Callable[[Exhibit], bool]]] = {
        "cheats": ("cheats of the zoo", lambda e: e.kind == "cheats"),
        "errors": ("errors of the zoo", lambda e: e.kind == "errors" and e.short is None),
        "plain": ("plain bugs that people write", lambda e: e.short is not None),
        "honest": (HONEST, lambda e: e.honest),
    }
    for part in parts:
        print(part, flush=True)
        until = time.monotonic() + options.seconds
        if part in groups:
            name, belongs = groups[part]
            chosen = [e for e in here if belongs(e)][: options.most or None]
            found = shown(chosen, place, options.jobs, until)
            yield of_findings(name, found)
            if part == "cheats":
                numbers = {e.name: e.card.catalogue for e in chosen}
                for corpus, wanted in CORPORA.items():
                    yield of_findings(
                        f"of these, kinds of {corpus}", [f for f in found if set(numbers[f.name]) & set(wanted)]
                    )
        elif part == "mutants":
            yield mutants(options.mutants, False, until)
            yield mutants(options.mutants, True, until)
        else:
            yield ranked(until)


def table(rows: Sequence[Row]) -> str:
    """The table of SECURITY.md."""
    head = "| what | tried | refused by name | refused | told as a condition | harmless | passed | when, where |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *(r.text for r in rows)])


def written(rows: Sequence[Row]) -> None:
    """Keeps the rows, and puts the table into SECURITY.md."""
    known = {r["part"]: Row(**r) for r in json.loads(ROWS.read_text())} if ROWS.exists() else {}
    known |= {r.part: r for r in rows}
    ROWS.write_text(json.dumps([asdict(r) for r in known.values()], indent=1) + "\n")
    page = ROOT / "SECURITY.md"
    before, rest = page.read_text().split(_BEGIN)
    page.write_text(f"{before}{_BEGIN}\n{table(list(known.values()))}\n{_END}{rest.split(_END)[1]}")


PARTS = ("cheats", "errors", "plain", "honest", "mutants", "rank")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--jobs", type=int, default=2, help="Verifiers side by side")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no kernel of a part after so many")
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--most", type=int, default=0, help="exhibits of a part, at most (0: all)")
    parser.add_argument("--gpu", action="store_true", help="on the GPU of this machine")
    parser.add_argument("--write", action="store_true", help="put the rows into SECURITY.md")
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    stamp = {"when": date.today().isoformat(), "where": machine()}
    rows = [Row(**asdict(row) | stamp) for row in rows_of(parts, options)]
    print(table(rows))
    unseen = sum(r.unseen for r in rows)
    if unseen:
        print(f"{unseen} kernels could not be shown, or no time was left for them.")
    if options.write:
        written(rows)
    wrongly = sum(r.refused if r.part == HONEST else r.passed for r in rows if "equivalent" not in r.part)
    return 1 if wrongly or unseen else 0


if __name__ == "__main__":
    sys.exit(main())
