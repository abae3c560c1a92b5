"""Make a library of kernels for the memory: tuned and verified here, over all classes of operators.

``python tools/make_library.py --work FOLDER`` tunes each task of ``TASKS`` (of the built-in suite) with the rules'
designs, verifies the fastest, and keeps what it measured in ``FOLDER/CLASS.NAME.json``; the same call goes on where it
stopped. ``--write`` then puts all that was verified into ``kernellab/memory/library.jsonl``.
"""

from __future__ import annotations

import argparse
import base64
import json
import time
from pathlib import Path

import numpy as np

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.capture import capture
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.lowering.headers import without_headers
from kernellab.memory.features import features
from kernellab.memory.library import write
from kernellab.memory.records import Kernel, Provenance
from kernellab.memory.store import Row
from kernellab.session.offer import is_worth, kernel_of
from kernellab.task import load_task
from kernellab.tuning import WorkerMeasure, tune
from kernellab.tuning.space import Space
from kernellab.verifier import Verifier, VerifyOptions

#: one line a round, so that a run that is cut off has something of every class
TASKS = """
matmul/matmul normalisation/rms_norm softmax/softmax attention/plain convolution/conv2d scan/cumsum
reduction/row_sum pointwise/swiglu pooling/max_pool2d indexing/embedding movement/transpose loss/cross_entropy
order/topk
matmul/batched normalisation/layer_norm softmax/log_softmax attention/causal convolution/conv1d_dilated
scan/cumsum_columns reduction/column_sum pointwise/gelu_by_hand pooling/avg_pool2d
indexing/gather_along_rows movement/swap_heads loss/mse
matmul/linear_relu normalisation/add_rms_norm softmax/logsumexp attention/windowed convolution/depthwise_conv2d
reduction/row_std pooling/max_pool1d_dilated matmul/skinny normalisation/group_norm softmax/softmax_channels
matmul/mlp_relu reduction/sum_of_squares scan/cummax matmul/gram
"""
TRIALS = 16


def make(folder: Path, key: str, judge: Verifier) -> str:
    """Tune, verify and keep one task; what came of it, in a sentence."""
    (suite_task,) = load_suite("builtin", f"^{key}$")
    task, target = load_task(suite_task.text, suite_task.name), detect_target("cpp")
    began = time.time()
    replies = RulesDesigner().designs(DesignBrief(task, target))
    measure = WorkerMeasure(judge, task, target, {})
    tuned = tune([r.sketch for r in replies], Space(task, target), measure, TRIALS)
    found: dict[str, object] = {
        "key": key, "designs": [r.sketch for r in replies], "whys": [r.rationale for r in replies],
        "measured": [
            {"design": [r.sketch for r in replies].index(m.point.sketch), "values": dict(m.point.values),
             "ms": m.time.median_ms if m.time else None}
            for m in tuned.measured
        ],
    }  # fmt: skip
    said = next((f"nothing ran: {m.reason}" for m in tuned.measured if m.reason), "nothing ran")
    if tuned.best is not None:
        source = measure.source(tuned.best)
        verdict = judge.verify(task, source, target, options=VerifyOptions(baselines=("eager",)))
        said = f"{verdict.reason} {verdict.text}"
        if is_worth(verdict):
            graph = capture(task)
            made = Provenance(origin="library", author="rules", licence="Apache-2.0", place=f"builtin/{key}")
            where = target.backend.value, target.chip.name
            kernel = kernel_of(task, graph, without_headers(source), where, verdict, made)
            why = next(r.rationale for r in replies if r.sketch == tuned.best.sketch)
            values = {"sketch": tuned.best.sketch, "constexpr": dict(tuned.best.values), "rationale": why}
            seen = features(task, graph)
            found |= {
                "kernel": kernel.model_copy(update=values).model_dump(mode="json"),
                "logic": _text(seen.logic), "shape": _text(seen.shape),
            }  # fmt: skip
    if tuned.best is None:
        return said  # nothing is kept, so that the next run tries again
    (folder / f"{key.replace('/', '.')}.json").write_text(json.dumps(found))
    return f"{key}: {said} ({time.time() - began:.0f} s, {len(tuned.measured)} points)"


def rows(folder: Path) -> list[Row]:
    """The verified kernels of a work folder."""
    made = []
    for file in sorted(folder.glob("*.json")):
        found = json.loads(file.read_text())
        if "kernel" in found:
            made.append(Row(Kernel.model_validate(found["kernel"]), _vector(found["logic"]), _vector(found["shape"])))
    return made


def _text(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype(np.float16).tobytes()).decode()


def _vector(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=np.float16).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help="write the library, measure nothing")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.write:
        print(f"{write(rows(given.work))} kernels written")
        return
    with Verifier() as judge:
        for key in TASKS.split():
            if (given.work / f"{key.replace('/', '.')}.json").exists():
                continue
            try:
                print(make(given.work, key, judge), flush=True)
            except KernellabError as error:
                print(f"{key}: {error.message}", flush=True)


if __name__ == "__main__":
    main()
