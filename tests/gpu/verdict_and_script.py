"""T2's speedup of a kernel next to that of a script that times both by `do_bench`: same sources, same card, in turn.

    python tests/gpu/verdict_and_script.py OUT [--seconds 100] [--only NAME,..] [--within 0.05]

Five operators by the rules. For each: the script (a process without kernellab), the Verifier at T2, the script again.
One JSON line an operator in ``OUT/verdict_and_script.jsonl``. Exit 1 where a verdict fails, or the speedups differ by
more than ``--within``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.dsls.machine import detect_target
from kernellab.lowering import lower
from kernellab.records import Source, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.program.bind import bind
from kernellab.task import load_task
from kernellab.verifier import Verifier, VerifyOptions

HEAD = "import torch\nimport torch.nn.functional as F\n\n\n"
OPERATORS = {
    "product": ("a, b", "a @ b", "(4096, 4096)", "(4096, 4096)"),
    "rms_norm": ("x, w", "F.rms_norm(x, (4096,), w, 1e-6)", "(8192, 4096)", "(4096,)"),
    "softmax": ("x", "torch.softmax(x, -1)", "(8192, 8192)"),
    "attention": (
        "q, k, v", "F.scaled_dot_product_attention(q, k, v, is_causal=True)", *["(2, 16, 4096, 128)"] * 3,
    ),
    "convolution": ("x, w", "F.conv2d(x, w, padding=1)", "(32, 128, 56, 56)", "(128, 128, 3, 3)"),
}  # fmt: skip
#: for each line that it reads, five rounds of both in turn: medians in ms
SCRIPT = """
import json, statistics, sys
import torch
from triton.testing import do_bench

sys.path.insert(0, sys.argv[1])
from kernel import kernel
from task import inputs, reference

torch.manual_seed(1)
with torch.device("cuda"):
    given = inputs()
given = [each.cuda() for each in given]
calls = {"eager": reference, "ours": kernel}
with torch.no_grad():
    for call in calls.values():
        call(*given)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        took = {name: [] for name in calls}
        for _ in range(5):
            for name, call in calls.items():
                took[name].append(do_bench(lambda: call(*given), warmup=10, rep=60, return_mode="median"))
        print(json.dumps({name: statistics.median(times) for name, times in took.items()}), flush=True)
"""


class Script:
    """A process without kernellab that times a kernel and its reference when it is asked to."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", SCRIPT, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def wait(self) -> None:
        if self._line() != "ready\n":
            raise RuntimeError("the script ended before it was ready")

    def times(self) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        times: dict[str, float] = json.loads(self._line())
        return times

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def task_text(names: str, body: str, *shapes: str) -> str:
    made = ", ".join(f"torch.randn{shape[:-1].rstrip(',')}, dtype=torch.bfloat16)" for shape in shapes)
    return f"{HEAD}def reference({names}):\n    return {body}\n\n\ndef inputs():\n    return {made},\n"


def design(name: str, out: Path) -> Source:
    """Write the task and the rules' first design of it into ``out/name``."""
    folder, target = out / name, detect_target("triton")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").write_text(task_text(*OPERATORS[name]))
    task = load_task(folder / "task.py")
    reply = RulesDesigner().designs(DesignBrief(task, target))[0]
    point = dict(reply.constexpr)
    program = load_program(reply.sketch, constexpr=point)
    source = lower(program, bind(program, task, point, target), target)
    for file, text in source.files.items():
        (folder / file).write_text(text)
    return source


def compared(name: str, source: Source, script: Script, out: Path, verifier: Verifier) -> dict[str, Any]:
    began = time.monotonic()
    scripts = [script.times()]
    task = load_task(out / name / "task.py")
    verdict: Verdict = verifier.verify(task, source, detect_target("triton"), options=VerifyOptions())
    scripts.append(script.times())
    row: dict[str, Any] = {"name": name, "scripts": scripts, "passed": verdict.passed, "words": verdict.text}
    row["script"] = [times["eager"] / times["ours"] for times in scripts]
    against = verdict.against("eager")
    if verdict.passed and verdict.time is not None and against is not None:
        row["verdict"] = [against.speedup, against.low, against.high]
        row["verdict_ms"] = verdict.time.median_ms
        row["apart"] = against.speedup / (sum(row["script"]) / len(row["script"])) - 1
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--only", default=",".join(OPERATORS))
    parser.add_argument("--within", type=float, default=0.05)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names, end, wrong = options.only.split(","), time.monotonic() + options.seconds, 0
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    with ProcessPoolExecutor(len(names), get_context("spawn")) as pool:
        sources = dict(zip(names, pool.map(design, names, [options.out] * len(names)), strict=True))
    scripts = {name: Script(options.out / name) for name in names}
    for script in scripts.values():
        script.wait()
    print(f"designed and compiled after {options.seconds - (end - time.monotonic()):.0f} s", flush=True)
    with Verifier() as verifier:
        for name, source in sources.items():
            if time.monotonic() > end:
                print(f"{name}: not reached")
                continue
            row = compared(name, source, scripts[name], options.out, verifier)
            with (options.out / "verdict_and_script.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            apart = row.get("apart")
            wrong += apart is None or abs(apart) > options.within
            script_words = ", ".join(f"{ratio:.3f}x" for ratio in row["script"])
            off = "" if apart is None else f", {100 * apart:+.1f} %"
            print(f"{name:12} T2 {row['words']}; script {script_words}{off}; {row['seconds']} s", flush=True)
    for script in scripts.values():
        script.close()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
