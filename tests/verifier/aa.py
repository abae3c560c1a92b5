"""How honest the clock is on this machine: the same code on both sides, again and again.

``python tests/verifier/aa.py [RUNS] [--load N]`` prints each run's speedup and interval, how many runs told identical
code apart, and for each size the coefficient of variation of the candidate's time and of the speedup over the runs, the
speedup's geometric mean and the interval's usual half width.
``--load N`` keeps N processes busy beside it. Not a test: a busy machine may not fail the suite.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
from collections import defaultdict

from kernellab.records import Author, Source
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

SIZES = {"small": (64, 256), "middle": (512, 1024), "large": (4096, 2048)}
BODY = """    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
"""
TASK = "import torch\ndef reference(x, w):\n{body}def inputs():\n    return torch.randn({m}, {n}), torch.randn({n})\n"
CODE = "import torch\ndef kernel(x, w):\n    with torch.no_grad():\n    {body}"
#: fills caches and memory as well as cores, as a build or another kernel does
BUSY = "import numpy\na = numpy.random.rand(1 << 22)\nwhile True: a = a * 1.0000001 + 1e-9"


def main(runs: int, repeat: int) -> int:
    target = Target("cpp", Backend.CPU, Chip("this", "cpu", 0))
    source = Source(dsl="cpp", files={"kernel.py": CODE.format(body=BODY)}, origin=Author.HUMAN)
    told_apart = busy = 0
    times: dict[str, list[float]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    with Verifier() as verifier:
        for run in range(runs):
            name, (m, n) = list(SIZES.items())[run % len(SIZES)]
            task = load_task(TASK.format(body=BODY, m=m, n=n), name)
            options = VerifyOptions(allow_library=True, repeat=repeat)
            verdict = verifier.verify(task, source, target, options=options)
            found = verdict.against("eager")
            if found is None or verdict.time is None:
                print(f"{name}: {verdict.reason}")
                continue
            told_apart += found.distinguishable
            busy += "busy machine" in verdict.label
            times[name].append(verdict.time.median_ms)
            ratios[name].append(found.speedup)
            widths[name].append((found.high - found.low) / 2 / found.speedup)
            seconds = sum(s.seconds for s in verdict.stages if s.name.value == "fast")
            print(
                f"{name:<7} {found.speedup:.3f} [{found.low:.3f}, {found.high:.3f}] {verdict.time.median_ms:.3f} ms, "
                f"{verdict.time.samples} calls, {seconds:.1f} s, {verdict.environment.disturbed:.0%} disturbed "
                f"{verdict.label}{'   TOLD APART' if found.distinguishable else ''}",
                flush=True,
            )
    for name, values in times.items():
        print(f"{name:<7} CV of the time {_variation(values):.1%}, of the speedup {_variation(ratios[name]):.1%}, "
              f"geometric mean {statistics.geometric_mean(ratios[name]):.3f}, half width "
              f"{statistics.median(widths[name]):.1%} ({len(values)} runs)")  # fmt: skip
    every = [ratio for found in ratios.values() for ratio in found]
    print(f"all     geometric mean of the speedup {statistics.geometric_mean(every):.3f}")
    print(f"{told_apart} of {runs} runs told identical code apart; the machine was busy in {busy}")
    return told_apart


def _variation(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else 0.0


@contextlib.contextmanager
def loaded(count: int):  # type: ignore[no-untyped-def]
    beside = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in beside:
            process.kill()
            process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=12)
    parser.add_argument("--load", type=int, default=0, help="processes that are kept busy beside it")
    parser.add_argument("--repeat", type=int, default=1, help="timings of each run (VerifyOptions.repeat)")
    given = parser.parse_args()
    with loaded(given.load):
        sys.exit(main(given.runs, given.repeat) > 0)
