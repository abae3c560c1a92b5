"""How honest the clock is on this machine: the same code on both sides, again and again.

``python tests/verifier/aa.py [RUNS]`` prints each run's speedup and interval, and how many called identical code
distinguishable. Not a test: a busy machine may not fail the suite.
"""

from __future__ import annotations

import sys

from kernellab.records import Author, Source
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

SIZES = {"small": (64, 256), "middle": (512, 1024), "large": (4096, 2048)}
BODY = """    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
"""
TASK = "import torch\ndef reference(x, w):\n{body}def inputs():\n    return torch.randn({m}, {n}), torch.randn({n})\n"
CODE = "import torch\ndef kernel(x, w):\n    with torch.no_grad():\n    {body}"


def main(runs: int) -> None:
    target = Target("cpp", Backend.CPU, Chip("this", "cpu", 0))
    source = Source(dsl="cpp", files={"kernel.py": CODE.format(body=BODY)}, origin=Author.HUMAN)
    told_apart = busy = 0
    with Verifier() as verifier:
        for run in range(runs):
            name, (m, n) = list(SIZES.items())[run % len(SIZES)]
            task = load_task(TASK.format(body=BODY, m=m, n=n), name)
            verdict = verifier.verify(task, source, target, options=VerifyOptions(allow_library=True))
            found = verdict.against("eager")
            if found is None:
                print(f"{name}: {verdict.reason}")
                continue
            told_apart += found.distinguishable
            busy += "busy machine" in verdict.label
            seconds = sum(s.seconds for s in verdict.stages if s.name.value == "fast")
            print(
                f"{name:<7} {found.speedup:.3f} [{found.low:.3f}, {found.high:.3f}] {verdict.time.samples} calls, "
                f"{seconds:.1f} s, {verdict.environment.disturbed:.0%} disturbed {verdict.label}"
                if verdict.time
                else ""
            )
    print(f"{told_apart} of {runs} runs told identical code apart; the machine was busy in {busy}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
