"""Three whole models on this machine's device: profile, kernels by rules put in, prediction beside measurement.

    python tests/gpu/whole_models_gpu.py [--only NAME] [--seconds 40] [--most 5] [--device cuda] [--dsl triton]

For each model: the head of its profile, a line for each row that was tried, and a summary: coverage, the model's time
before and after (CUDA graph and clock), what the profile predicted before anything was put in, and the error of that.
Ends within three times --seconds and a little; a model that fails is told, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

MODELS = ROOT / "tests" / "model_integration" / "models"


def one(name: str, seconds: float, most: int, device: str, dsl: str, place: Path) -> dict[str, Any]:
    from kernellab.model_integration import go_down, profile, uninstall
    from kernellab.model_integration.display import table
    from kernellab.model_integration.swap.install import installed

    begin = time.monotonic()
    found = profile(MODELS / f"{name}.py", device=device)
    print(f"\n== {table(found, 10)}\n-- profiled in {time.monotonic() - begin:.1f} s", flush=True)
    left = seconds - (time.monotonic() - begin)
    steps = go_down(
        found, minutes=left / 60, most=most, dsl=dsl, workspace=place, tell=lambda s: print(s.text, flush=True)
    )
    swaps = installed(found)
    last = swaps[-1] if swaps else None
    timed = last.time if last else None
    result = {
        "model": name, "coverage": round(found.coverage, 4), "step_ms": found.step_ms,
        "device_ms": found.measured.device_ms, "kernels": len(swaps), "tried": len(steps),
        "predicted": last.predicted if last else None, "measured": last.measured if last else None,
        "low": timed.low if timed else None, "high": timed.high if timed else None, "how": timed.how if timed else "",
        "clock": [timed.clock_before_ms, timed.clock_after_ms] if timed else [], "seconds": time.monotonic() - begin,
        "steps": [[s.row.name, s.row.where, len(s.row.places), s.outcome, s.factor, s.predicted, s.measured, s.reason]
                  for s in steps],
    }  # fmt: skip
    if timed is not None and last is not None and last.measured is not None:
        gain, wanted = 1 - 1 / last.measured, 1 - 1 / last.predicted
        print(
            f"-- {name}: {len(swaps)} kernels, {timed.how}: {timed.text}; predicted {last.predicted:.3f}x; it gains "
            f"{100 * gain:.1f} % of the step, {100 * wanted:.1f} % was predicted; by the clock "
            f"{timed.clock_before_ms:.2f} to {timed.clock_after_ms:.2f} ms; {result['seconds']:.0f} s",
            flush=True,
        )
    uninstall(found)
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dsl", default="triton")
    given = parser.parse_args()
    place = Path(mkdtemp(prefix="kernellab-whole-"))
    (place / "kernellab.toml").touch()
    results = []
    for name in ("gpt", "unet", "convnet"):
        if given.only in name:
            try:
                results.append(one(name, given.seconds, given.most, given.device, given.dsl, place))
            except Exception:
                traceback.print_exc()
                results.append({"model": name, "failed": True})
    out = os.environ.get("OUT")
    if out:
        Path(out, "whole_models.json").write_text(json.dumps(results, indent=1, default=str))
    print(json.dumps([{k: v for k, v in r.items() if k != "steps"} for r in results], default=str))
    # sessions' threads and judges must not keep a finished run waiting
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
