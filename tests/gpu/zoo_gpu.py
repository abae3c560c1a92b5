"""The zoo on the GPU of this machine, by one command.

    python tests/gpu/zoo_gpu.py [--only REGEX] [--part K/N] [--skip-shown FILE] [--jobs N] [--seconds S] [--static]
                                [--calm]

Shows every exhibit that can run on a GPU to the CUDA Verifier, and prints a table: what was expected, what was found.
Those that the static stage refuses need no GPU and are left out unless ``--static`` asks for them.
After ``--seconds`` no further exhibit is begun; those are listed as not shown. All findings go to ``$OUT/zoo.json`` as
they come, so that a run which is cut short leaves what it has seen: ``--skip-shown zoo.json`` goes on where such a run
ended, and its own zoo.json has the findings of both. ``--part 2/3`` shows every third exhibit, from the second on.
Exit 1 when a cheat passes or an honest kernel is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future, wait
from dataclasses import fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernellab.records import Stage
from kernellab.verifier.judge import turns
from tests.zoo.exhibit import Exhibit, exhibits
from tests.zoo.show import NO_TIME, Finding, Keeper, row, totals

#: exhibits from the front among which one may be preferred
NEAR = 24


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that kinds and names must contain")
    parser.add_argument("--jobs", type=int, default=6, help="Verifiers side by side; they take turns to time")
    parser.add_argument("--calm", action="store_true", help="nothing works while one is timed; takes much longer")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no exhibit after so many")
    parser.add_argument("--static", action="store_true", help="also those that the static stage refuses")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="every N-th, from the K-th on")
    parser.add_argument("--skip-shown", type=Path, metavar="FILE", help="leave out what this zoo.json shows")
    options = parser.parse_args()
    chosen = _in_order([e for e in exhibits() if "gpu" in e.card.where])
    chosen = [e for e in chosen if re.search(options.only, f"{e.kind}/{e.name}")]
    chosen = [e for e in chosen if options.static or e.card.expect is not Stage.STATIC]
    number, parts = options.part
    chosen = chosen[number - 1 :: parts]
    earlier = _findings(options.skip_shown) if options.skip_shown else []
    seen = {f.name for f in earlier}
    chosen = [e for e in chosen if e.name not in seen]
    print(f"{len(chosen)} exhibits" + (f", {len(earlier)} shown before" if earlier else ""), flush=True)
    out = Path(os.environ.get("OUT", ".")) / "zoo.json"
    end = time.monotonic() + options.seconds
    findings: list[Finding] = []
    if options.calm:
        # whoever times has the device to itself: contexts that share it are given slices of its time
        os.environ[turns.VARIABLE] = f"device:{Path(tempfile.mkdtemp(prefix='kernellab-zoo-')) / 'turns'}"
    keeper = Keeper(options.jobs, "gpu", until=end)
    stock = Stock(chosen)
    try:
        pending: set[Future[Finding]] = {keeper.call(stock.next) for _ in chosen}
        while pending and time.monotonic() < end + 20:
            done, pending = wait(pending, timeout=5, return_when="FIRST_COMPLETED")
            for future in done:
                found = future.result()
                if found.reason == NO_TIME:
                    continue
                findings.append(found)
                print(row(found), flush=True)
                if not found.ok:
                    print(f"    {found.reason[:300]}" + (f" [{found.label}]" if found.label else ""), flush=True)
            _write(out, [*earlier, *findings])
    finally:
        shown = {f.name for f in findings}
        missing = [e.name for e in chosen if e.name not in shown]
        print(f"\n{totals(findings)}", flush=True)
        if missing:
            print(f"not shown for want of time ({len(missing)}): {' '.join(missing)}", flush=True)
        _write(out, [*earlier, *findings], missing)
        # a hung worker must not keep the device: what this process started ends with it
        sys.stdout.flush()
        if pending:
            os._exit(1)
        keeper.__exit__()
    return 0 if not missing and all(f.ok for f in findings) else 1


def _part(text: str) -> tuple[int, int]:
    """``2/3`` as (2, 3). Raises ValueError."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(f"{text}: K/N with K from 1 to N")
    return number, parts


def _findings(path: Path) -> list[Finding]:
    """What a run has written to its zoo.json."""
    rows = json.loads(path.read_text())["findings"]
    names = {f.name for f in fields(Finding)}
    return [Finding(**{k: v for k, v in row.items() if k in names}) for row in rows]


def _write(out: Path, findings: list[Finding], missing: list[str] | None = None) -> None:
    report: dict[str, object] = {"findings": [f.as_json() for f in findings]}
    if missing is not None:
        report["not_shown"] = missing
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1))


class Stock:
    """Hands exhibits out, each to whoever showed one of the same task last, since a judge keeps a task's baselines."""

    def __init__(self, chosen: list[Exhibit]) -> None:
        self._left = list(chosen)
        self._lock = threading.Lock()
        self._last = threading.local()
        #: tasks and how many judges have their baselines
        self._held: Counter[str] = Counter()

    def next(self) -> Exhibit:
        """One of the first few: of this thread's own task, else of a task that few others have."""
        with self._lock:
            own = getattr(self._last, "task", "")
            near = self._left[:NEAR]
            best = min(near, key=lambda e: (e.card.task != own, self._held[e.card.task], near.index(e)))
            self._left.remove(best)
            if best.card.task != own:
                self._held[best.card.task] += 1
            self._last.task = best.card.task
            return best


def _in_order(found: list[Exhibit]) -> list[Exhibit]:
    """What only a GPU can show first; of the rest, kinds in turn, so that a run cut short has seen some of all."""
    first = [e for e in found if e.card.where == ("gpu",)]
    rest = [e for e in found if e.card.where != ("gpu",)]
    kinds = {kind: [e for e in rest if e.kind == kind] for kind in ("cheats", "errors", "honest")}
    place = {e.name: i / max(1, len(group)) for group in kinds.values() for i, e in enumerate(group)}
    return first + sorted(rest, key=lambda e: place[e.name])


if __name__ == "__main__":
    sys.exit(main())
