"""How a search uses several GPUs of one machine: candidates a minute over the whole run, and how busy the devices are.

    CUDA_VISIBLE_DEVICES=0       python -m tests.gpu.search_gpu --minutes 5
    CUDA_VISIBLE_DEVICES=0,1     python -m tests.gpu.search_gpu --minutes 5
    CUDA_VISIBLE_DEVICES=0,1,2,3 python -m tests.gpu.search_gpu --minutes 5

One line a run, and JSON with ``--json``: the devices, evaluations that were measured, how many a minute of the whole
run and of the time after the seeds, the share of the devices' time in rankings and verdicts, seconds until the first
evaluation and until every device had one. Called twice with one device it gives the spread of A against A.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from kernellab.dsls.machine import gpu_products
from kernellab.evolve.begin import begin
from kernellab.evolve.records import Evaluated, Step
from kernellab.evolve.stream import Stream
from kernellab.evolve.summary import summary

TASKS = {
    "linear_gelu": """import torch
import torch.nn.functional as F


def reference(x, w, b):
    return F.gelu(F.linear(x, w, b))


def inputs():
    x, w = torch.randn(2048, 4096), torch.randn(4096, 4096) * 0.02
    return x.to(torch.bfloat16), w.to(torch.bfloat16), torch.randn(4096).to(torch.bfloat16)
""",
    "depthwise": """import torch
import torch.nn.functional as F


def reference(x, w):
    return F.conv2d(x, w, padding=1, groups=128)


def inputs():
    return torch.randn(32, 128, 112, 112), torch.randn(128, 1, 3, 3)
""",
}


def measured(task: str, devices: int, minutes: float, seed: int, folder: Path) -> dict[str, object]:
    """A search of ``minutes`` over ``devices`` GPUs in figures."""
    run = begin(
        TASKS[task], "triton", name=task, workspace=folder, cluster=f"local:{devices}", rounds=10_000, parallel=8,
        islands=2, seed=seed, budget=f"minutes={minutes}", memory="off", headroom=1.0,
    ).work().wait()  # fmt: skip
    state = run.state
    times = [
        event.time - state.begun.time
        for _, event in Stream(folder, run.id).read()
        if isinstance(event, Evaluated) and Step.RANK in {spent.step for spent in event.evaluation.spent}
    ]
    seeds = sum(not proposal.parents for proposal in state.proposals.values())
    whole, later = state.latest - state.begun.time, times[seeds:]
    found = summary(run.id, state)
    return {
        "task": task, "devices": devices, "gpu": gpu_products()[0], "measured": len(times), "seconds": round(whole, 1),
        "a_minute": round(60 * len(times) / whole, 2),
        "a_minute_after_seeds": round(60 * (len(later) - 1) / (later[-1] - later[0]), 2) if len(later) > 1 else None,
        "busy": round(state.device_seconds / (devices * whole), 3),
        "first_after_s": round(times[0], 1) if times else None,
        "each_device_after_s": round(times[devices - 1], 1) if len(times) >= devices else None,
        "rounds": len(state.rounds), "best": found.text, "won": found.against_first,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="linear_gelu")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    devices = len(named) or len(gpu_products())
    with tempfile.TemporaryDirectory() as folder:
        found = measured(options.task, devices, options.minutes, options.seed, Path(folder))
    print(json.dumps(found) if options.json else ", ".join(f"{name} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
