"""Where a ranking's and a verdict's seconds go, and how many a minute: ``python -m tests.verifier.rates``.

    [--dsl cpp|triton] [--kinds rank,verdict] [--kernels 12] [--judges 1,3] [--seconds 600] [--notes] [--json FILE]

Honest kernels that the rules write for built-in tasks, each judged twice by one warm judge: the second time, when the
task's baselines are there, counts. Prints each kernel's stages, their median and 95th percentile, and for each number
of judges side by side the rankings or verdicts a minute. A benchmark, not a test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernellab.records import Ranking, Source, Stage, StageResult, Verdict
from kernellab.target import Backend, Target
from kernellab.task import Task
from kernellab.verifier import RankOptions, Verifier, VerifyOptions
from kernellab.verifier.judge import turns
from tests.bench.throughput import at_once
from tests.zoo.exhibit import LOWERED, Exhibit, exhibits

Judged = Ranking | Verdict
#: what is judged: name, task, source, target
Given = tuple[str, Task, Source, Target]
STAGES = ("static", "build", "smoke", "correct", "robust", "honest", "fast")


def judge(verifier: Verifier, kind: str, given: Given) -> Judged:
    _, task, source, target = given
    if kind == "rank":
        return verifier.rank(task, source, target, options=RankOptions())
    return verifier.verify(task, source, target, options=VerifyOptions())


def by_stage(stages: Sequence[StageResult]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for stage in stages:
        found[stage.name.value] += stage.seconds
    return found


def alone(kind: str, given: Sequence[Given], left: Callable[[], float], notes: bool = False) -> list[dict[str, float]]:
    """The seconds of each stage, the total, and what came after the build, of the kernels that there is time for; with
    ``notes`` also what the stage fast tells of its clocks."""
    rows = []
    print(f"\n{kind}: {'kernel':28s} {'total':>6s} {'after':>6s} " + " ".join(f"{s[:6]:>6s}" for s in STAGES))
    with Verifier() as verifier:
        verifier.warm(given[0][3])
        for one in given:
            if left() <= 0:
                break
            judge(verifier, kind, one)
            began = time.perf_counter()
            found = judge(verifier, kind, one)
            total = time.perf_counter() - began
            stages = by_stage(found.stages)
            after = found.seconds if isinstance(found, Ranking) else total - stages["static"] - stages["build"]
            fine = found.ranked if isinstance(found, Ranking) else found.passed
            text = found.text if fine else f"REFUSED at {found.stage.value}: {found.reason}"
            times = " ".join(f"{stages[s]:6.2f}" for s in STAGES)
            print(f"{'':{len(kind)}s}  {one[0]:28s} {total:6.2f} {after:6.2f} {times}  {text}", flush=True)
            for stage in found.stages if notes else ():
                if stage.name is Stage.FAST and stage.note:
                    print(f"{'':{len(kind)}s}    {stage.note}", flush=True)
            rows.append({"total": total, "after": after, **stages})
    if not rows:
        print("  no time was left for one")
        return rows
    for name, pick in (("median", statistics.median), ("95 %", _high)):
        figures = [pick([row.get(column, 0.0) for row in rows]) for column in ("total", "after", *STAGES)]
        print(f"{'':{len(kind)}s}  {name:28s} " + " ".join(f"{f:6.2f}" for f in figures), flush=True)
    return rows


def _high(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def rate(kind: str, given: Sequence[Given], judges: int, seconds: float) -> float:
    """Rankings or verdicts a minute by so many judges side by side, which take turns at the clock."""
    with side_by_side(given[0][3]):
        verifiers = [Verifier() for _ in range(judges)]
        counts, wrong = [0] * judges, [0] * judges
        try:
            # each judge has tasks of its own, as the workers of a search have, and their baselines
            shares = [list(given[i::judges]) for i in range(judges)]
            at_once([lambda v=v, share=share: [judge(v, kind, one) for one in share[:2]]
                       for v, share in zip(verifiers, shares, strict=True)])  # fmt: skip
            until = time.monotonic() + seconds
            began = time.monotonic()

            def work(number: int) -> None:
                while time.monotonic() < until:
                    one = shares[number][counts[number] % 2]
                    found = judge(verifiers[number], kind, one)
                    counts[number] += 1
                    wrong[number] += not (found.ranked if isinstance(found, Ranking) else found.passed)

            at_once([lambda i=i: work(i) for i in range(judges)])
            took = time.monotonic() - began
        finally:
            for verifier in verifiers:
                verifier.__exit__(None, None, None)
    found = 60 * sum(counts) / took
    print(
        f"{kind}: {judges} judges: {found:.0f} a minute ({sum(counts)} in {took:.1f} s, {sum(wrong)} refused)",
        flush=True,
    )
    return found


@contextmanager
def side_by_side(target: Target) -> Iterator[None]:
    """Judges that are started inside take turns at the clock."""
    kind = "device" if target.backend is Backend.CUDA else "all"
    with tempfile.TemporaryDirectory(prefix="kernellab-turns-") as folder:
        os.environ[turns.VARIABLE] = f"{kind}:{folder}/lock"
        try:
            yield
        finally:
            os.environ.pop(turns.VARIABLE)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsl", choices=("cpp", "triton"), default="cpp")
    parser.add_argument("--kinds", default="rank,verdict")
    parser.add_argument("--kernels", type=int, default=12)
    parser.add_argument("--judges", default="", help="numbers of judges side by side, for example 1,3")
    parser.add_argument("--rate-seconds", type=float, default=20.0, help="for so long each rate is measured")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no kernel after so many seconds")
    parser.add_argument("--notes", action="store_true", help="what the stage fast tells of its clocks")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    place = "gpu" if options.dsl == "triton" else "cpu"
    named = {e.name: e for e in exhibits()}
    chosen: list[Exhibit] = [named[f"rules_{options.dsl}_{name}"] for name in LOWERED[options.dsl][: options.kernels]]
    given = [(e.lowered, e.task, e.source(place), e.target(place)) for e in chosen]
    print(f"{len(given)} kernels in {options.dsl}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    found: dict[str, object] = {}
    for kind in options.kinds.split(","):
        found[kind] = alone(kind, given, lambda: end - time.monotonic(), options.notes)
        for judges in filter(None, options.judges.split(",")):
            if time.monotonic() < end:
                found[f"{kind} by {judges}"] = rate(kind, given, int(judges), options.rate_seconds)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
