"""One evaluation in a separate process, as the field's harnesses do it: the yardstick of ``tests.bench.throughput``.

``python fresh_process.py REQUEST.json`` prints one JSON line. KernelBench's own ``eval_kernel_against_ref`` does the
work where its checkout is named and there is a CUDA device, which its clock needs. Else the same is done here in that
manner: import torch, build, compare five times on new inputs with allclose, time a hundred calls. Nothing is
isolated, and only this file and the candidate are loaded.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TRIALS, TIMINGS, WARM, TOLERANCE = 5, 100, 3, 1e-4


def main(request: dict[str, Any]) -> dict[str, Any]:
    """``request``: task and candidate as text, ``kernelbench`` (a checkout or ""), ``backend`` (its word for a DSL)."""
    import torch

    if request.get("kernelbench") and torch.cuda.is_available():
        return _theirs(request)
    return _in_that_manner(request)


def _theirs(request: dict[str, Any]) -> dict[str, Any]:
    """KernelBench's own evaluation; raises ImportError where its dependencies are not installed."""
    import torch

    sys.path.insert(0, str(Path(request["kernelbench"]) / "src"))
    from kernelbench.eval import eval_kernel_against_ref  # type: ignore[import-not-found,unused-ignore]

    found = eval_kernel_against_ref(
        request["task"],
        request["candidate"],
        num_correct_trials=TRIALS,
        num_perf_trials=TIMINGS,
        measure_performance=True,
        build_dir=tempfile.mkdtemp(),
        device=torch.device("cuda:0"),
        backend=request["backend"],
    )
    if found is None:
        return {"passed": False, "how": "KernelBench", "reason": "it gave no result"}
    passed = bool(found.compiled and found.correctness)
    return {
        "passed": passed,
        "how": "KernelBench",
        "ms": found.runtime,
        "reason": "" if passed else str(found.metadata),
    }


def _in_that_manner(request: dict[str, Any]) -> dict[str, Any]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    task, candidate = _module("task", request["task"]), _module("candidate", request["candidate"])
    given = task.get_init_inputs() if hasattr(task, "get_init_inputs") else []
    torch.manual_seed(42)
    reference = task.Model(*given).to(device)
    torch.manual_seed(42)
    model = candidate.ModelNew(*given).to(device)

    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [x.to(device) if isinstance(x, torch.Tensor) else x for x in task.get_inputs()]

    with torch.no_grad():
        for trial in range(TRIALS):
            args = inputs(trial)
            want, got = reference(*args), model(*args)
            if got.shape != want.shape or not torch.allclose(got, want, atol=TOLERANCE, rtol=TOLERANCE):
                return {"passed": False, "how": "in KernelBench's manner", "reason": f"wrong in trial {trial}"}
        times = _times(model, inputs(42), device)
    return {"passed": True, "how": "in KernelBench's manner", "ms": statistics.mean(times)}


def _times(model: Any, args: list[Any], device: str) -> list[float]:
    """Milliseconds of calls on the same inputs; on a GPU by events, with the L2 cache written over before each."""
    import torch

    event: Any = torch.cuda.Event
    for _ in range(WARM):
        model(*args)
    times = []
    for _ in range(TIMINGS):
        if device == "cuda":
            torch.empty(256 << 20, dtype=torch.int8, device=device).fill_(42)
            torch.cuda.synchronize()
            began, ended = event(enable_timing=True), event(enable_timing=True)
            began.record()
            model(*args)
            ended.record()
            torch.cuda.synchronize()
            times.append(float(began.elapsed_time(ended)))
        else:
            start = time.perf_counter()
            model(*args)
            times.append(1e3 * (time.perf_counter() - start))
    return times


def _module(name: str, text: str) -> Any:
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    try:
        answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except Exception as error:
        answer = {"passed": False, "how": "not run", "reason": f"{type(error).__name__}: {error}"}
    print("\n" + json.dumps(answer, default=str), flush=True)
