"""The built-in suite: each task is small in text, and tells a right kernel from a trivial one."""

from __future__ import annotations

from collections import Counter

import pytest

from kernellab.bench.suites import SuiteTask, load_suite
from kernellab.task import load_task, quality

#: families of operators that the suite must have tasks of
FAMILIES = {
    "attention", "backward", "convolution", "experts", "fused", "indexing", "loss", "matmul", "movement",
    "normalisation", "order", "pointwise", "pooling", "quantisation", "reduction", "scan", "softmax",
}  # fmt: skip


#: tasks of one size, whose tables are too large to try degenerate kernels on
LARGE = {"embedding_rms_norm", "index_add"}


@pytest.mark.parametrize("task", load_suite("builtin"), ids=lambda t: f"{t.category}-{t.title}")
def test_a_wrong_kernel_fails_on_a_built_in_task(task: SuiteTask) -> None:
    loaded = load_task(task.text, task.name)
    flags = {flag.rule for flag in quality(loaded)}
    assert flags == ({"not-audited"} if task.name in LARGE else set()), quality(loaded)


def test_the_suite_is_broad_and_its_texts_are_short() -> None:
    tasks = load_suite("builtin")
    assert len(tasks) >= 220 and {t.category for t in tasks} == FAMILIES
    assert all(len(t.text.splitlines()) <= 30 for t in tasks)
    assert min(Counter(t.dynamic for t in tasks).values()) >= 80
    narrow = Counter(d for t in tasks for d in ("torch.float16", "torch.bfloat16", "torch.int8") if d in t.text)
    assert min(narrow.values()) >= 5 and len(narrow) == 3


def test_no_two_tasks_of_the_suite_have_one_name() -> None:
    named = Counter(t.key for t in load_suite("builtin"))
    assert [key for key, count in named.items() if count > 1] == []
