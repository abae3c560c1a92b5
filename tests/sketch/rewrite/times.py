"""How much each rewrite changes the time of a kernel in C++ on this machine.

    python -m tests.sketch.rewrite.times [--seconds S] [--only NAME,NAME] [TASK ...]

Each variant (at most two a rewrite) is lowered, built, tried and timed in a worker of the Verifier, beside the design
it was made of, which is timed before and after so that the noise is seen. A ratio above 1 is faster than the design.
"""

from __future__ import annotations

import argparse
import sys

from kernellab.dsls.machine import cpu_chip
from kernellab.records import Timing
from kernellab.sketch.rewrite import REWRITES, rewrites
from kernellab.target import Backend, Target
from kernellab.tuning.measure import WorkerMeasure
from kernellab.tuning.space import Point
from kernellab.verifier import Verifier
from tests.sketch.rewrite.designs import designs, places

TASKS = ("softmax/softmax", "normalisation/layer_norm", "matmul/addmm", "pooling/avg_pool1d")


def timed(measure: WorkerMeasure, text: str, seconds: float) -> Timing | str:
    """The time of a sketch at its own values, or why it has none."""
    found = measure(Point.of(text, {}), seconds)
    return found.time if found.time is not None else found.reason


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=[t for t in TASKS if t in places()])
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--only", default=",".join(REWRITES))
    parser.add_argument("--rank", type=int, default=0)
    options = parser.parse_args(arguments)
    target = Target("cpp", Backend.CPU, cpu_chip())
    with Verifier() as judge:
        for place in options.tasks:
            found = list(designs(place, targets={"cpp": target}))
            design = found[min(options.rank, len(found) - 1)]
            measure = WorkerMeasure(judge, design.task, target, {})
            first = timed(measure, design.text, options.seconds)
            print(f"{place}: the design {_words(first)}", flush=True)
            for name in options.only.split(","):
                for variant in rewrites(design.text, target, [name])[:2]:
                    then = timed(measure, variant.text, options.seconds)
                    known = isinstance(first, Timing) and isinstance(then, Timing)
                    ratio = f"{first.median_ms / then.median_ms:5.2f}x" if known else "     -"  # type: ignore[union-attr]
                    print(f"  {name:12} {ratio} {_words(then)}: {variant.why}", flush=True)
            print(f"{place}: the design again {_words(timed(measure, design.text, options.seconds))}", flush=True)
    return 0


def _words(time: Timing | str) -> str:
    if isinstance(time, str):
        return f"not timed ({time})"
    return f"{time.median_ms:.4f} ms ({time.q1_ms:.4f} to {time.q3_ms:.4f})"


if __name__ == "__main__":
    sys.exit(main())
