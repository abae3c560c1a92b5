"""Make a library of kernels for the memory: tuned and verified here, over all classes of operators.

``python tools/make_library.py --work FOLDER`` tunes each task of ``TASKS`` (of the built-in suite) with the rules'
designs, verifies the fastest, and keeps what it measured in ``FOLDER/DSL.CLASS.NAME.json``; the same call continues
where it stopped, and ``--seconds`` ends it early. ``--write`` then puts all that was verified, for whatever DSL and on
whatever machine, into ``kernellab/memory/library.jsonl``; what failed leaves it, and what the folder says nothing of
stays as it is. No LanceDB is needed: a work folder can be made on a machine with a GPU (``--dsl triton``) and be
written on another.

``--again`` tunes nothing: it lowers and verifies the library's own kernels again, which a change of the Verifier's
numbers asks for before a release (until then each is labelled stale).
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import load_suite
from kernellab.capture import capture
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError
from kernellab.lowering.headers import without_headers
from kernellab.memory.features import features
from kernellab.memory.library import decoded, encoded, shipped, write
from kernellab.memory.records import Kernel, Provenance
from kernellab.memory.store import Row
from kernellab.session.memory_export import Machine, is_worth, kernel_of
from kernellab.task import load_task
from kernellab.tuning import WorkerMeasure, tune
from kernellab.tuning.space import Point, Space
from kernellab.verifier import Verifier, VerifyOptions

#: small ones, one of each class first, so that a run that is cut off has something of every class
TASKS = """
matmul/matmul normalisation/rms_norm softmax/softmax attention/plain convolution/conv2d scan/cumsum
reduction/row_sum pointwise/swiglu pooling/adaptive_average indexing/gather_along_rows movement/swap_heads
loss/binary_cross_entropy order/top_mean
matmul/einsum_heads normalisation/group_norm_silu softmax/alibi_softmax attention/causal convolution/conv_add_relu
reduction/row_product pointwise/prelu pooling/avg_pool1d indexing/take_columns movement/pixel_shuffle
scan/cumsum_columns softmax/softmin_columns matmul/triangular attention/masked convolution/strided_conv
normalisation/min_max reduction/argmin_columns loss/focal matmul/low_rank attention/soft_capped
convolution/grouped_conv reduction/entropy fused/modulated_norm pooling/max_pool3d attention/grouped
softmax/causal_softmax scan/logcumsumexp order/median_of_rows movement/rotary_interleaved
"""
#: points measured of each task
TRIALS = 8
#: before a task's name, where a kernel is from
_SUITE = "builtin/"


def make(folder: Path, key: str, dsl: str, judge: Verifier) -> str:
    """Tune, verify and keep one task; what came of it, in a sentence. Raises KernellabError: it cannot be tried."""
    (suite_task,) = load_suite("builtin", f"^{key}$")
    task, target = load_task(suite_task.text, suite_task.name), detect_target(dsl)
    began = time.time()
    replies = RulesDesigner().designs(DesignBrief(task, target))
    designs = [r.sketch for r in replies]
    measure = WorkerMeasure(judge, task, target, {})
    tuned = tune(designs, Space(task, target), measure, TRIALS)
    found: dict[str, object] = {
        "key": key, "dsl": dsl, "designs": designs, "whys": [r.rationale for r in replies],
        "measured": [
            {"design": designs.index(m.point.sketch), "values": dict(m.point.values),
             "ms": m.time.median_ms if m.time else None, "why": m.reason}
            for m in tuned.measured
        ],
    }  # fmt: skip
    said = next((f"nothing ran: {m.reason}" for m in tuned.measured if m.reason), "nothing ran")
    if tuned.best is not None:
        why = next(r.rationale for r in replies if r.sketch == tuned.best.sketch)
        said, kept = judged(key, measure, tuned.best, why, judge)
        found |= kept
    _file(folder, dsl, key).write_text(json.dumps(found))
    return f"{said} ({time.time() - began:.0f} s, {len(tuned.measured)} points)"


def again(folder: Path, kernel: Kernel, judge: Verifier) -> str:
    """Verify a kernel of the library again, as its sketch is lowered today; what came of it, in a sentence.

    Raises:
        KernellabError: its task or its sketch cannot be used any more.
    """
    key = key_of(kernel)
    (suite_task,) = load_suite("builtin", f"^{key}$")
    task, target = load_task(suite_task.text, suite_task.name), detect_target(kernel.dsl)
    began = time.time()
    point = Point.of(kernel.sketch or "", kernel.constexpr)
    said, kept = judged(key, WorkerMeasure(judge, task, target, {}), point, kernel.rationale, judge)
    _file(folder, kernel.dsl, key).write_text(json.dumps({"key": key, "dsl": kernel.dsl, **kept}))
    return f"{said} ({time.time() - began:.0f} s, {kernel.measured.speedup or 0:.2f}x before)"


def judged(key: str, measure: WorkerMeasure, point: Point, why: str, judge: Verifier) -> tuple[str, dict[str, Any]]:
    """The verdict of a point in a sentence, and its record with both vectors where the memory may keep it."""
    task, target, source = measure.task, measure.target, measure.source(point)
    verdict = judge.verify(task, source, target, options=VerifyOptions(baselines=("eager",)))
    said = f"{verdict.reason} {verdict.text}"
    if not is_worth(verdict):
        return said, {}
    graph = capture(task)
    made = Provenance(origin="library", author="rules", licence="Apache-2.0", place=f"{_SUITE}{key}")
    kernel = kernel_of(task, graph, without_headers(source), Machine.of(target), verdict, made)
    values = {"sketch": point.sketch, "constexpr": dict(point.values), "rationale": why}
    seen = features(task, graph)
    return said, {
        "kernel": kernel.model_copy(update=values).model_dump(mode="json"),
        "logic": encoded(seen.logic), "shape": encoded(seen.shape), "share": verdict.bound_share,
    }  # fmt: skip


def found_in(folder: Path) -> list[dict[str, Any]]:
    """What a work folder holds: of each task its designs and the points that were measured, in their order."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def merged(folder: Path, library: Iterable[Row]) -> list[Row]:
    """The verified kernels of a work folder, and those of ``library`` that it says nothing of."""
    told = {(found["dsl"], found["key"]) for found in found_in(folder)}
    return [*rows(folder), *(row for row in library if (row.kernel.dsl, key_of(row.kernel)) not in told)]


def key_of(kernel: Kernel) -> str:
    """The name in the built-in suite of a library's kernel."""
    return kernel.provenance.place.removeprefix(_SUITE)


def rows(folder: Path) -> list[Row]:
    """The verified kernels of a work folder."""
    return [
        Row(Kernel.model_validate(found["kernel"]), decoded(found["logic"]), decoded(found["shape"]))
        for found in found_in(folder) if "kernel" in found
    ]  # fmt: skip


def _file(folder: Path, dsl: str, key: str) -> Path:
    return folder / f"{dsl}.{key.replace('/', '.')}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--dsl", default="cpp")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no task after so many seconds")
    parser.add_argument("--again", action="store_true", help="verify the library's kernels again, tune nothing")
    parser.add_argument("--only", default="", help="a regular expression of tasks' names")
    parser.add_argument("--part", default="1/1", help="of K processes side by side the N-th: N/K")
    parser.add_argument("--write", action="store_true", help="write the library, measure nothing")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if given.write:
        print(f"{write(merged(given.work, shipped()))} kernels written")
        return
    until = time.monotonic() + given.seconds
    held = {key_of(row.kernel): row.kernel for row in shipped() if row.kernel.dsl == given.dsl} if given.again else {}
    part, parts = map(int, given.part.split("/"))
    wanted = [key for key in held or TASKS.split() if re.search(given.only, key)][part - 1 :: parts]
    with Verifier() as judge:
        for key in wanted:
            if time.monotonic() > until:
                break
            if _file(given.work, given.dsl, key).exists():
                continue
            try:
                made = again(given.work, held[key], judge) if held else make(given.work, key, given.dsl, judge)
                print(f"{key}: {made}", flush=True)
            except KernellabError as error:
                print(f"{key}: {error.message}", flush=True)


if __name__ == "__main__":
    main()
