"""Which part of the broad tests a run takes: a share that rotates with the commit, or all with ``KERNELLAB_PROVE=1``.

Broad tests repeat one behaviour over a large table (every exhibit of the zoo, every operator in every DSL). A commit's
run takes a share of each table, so that all of it is met over a few commits; ``make prove`` takes all of it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

#: file of tests -> one of how many shares of its parametrised tests a commit's run takes
SHARES = {
    "zoo/test_zoo.py": 10,
    "verifier/test_faults.py": 3,
    "verifier/test_faults_session.py": 3,
    "lowering/test_cuda_c.py": 6,
    "lowering/test_attention.py": 3,
    "lowering/test_windows.py": 3,
    "lowering/test_descriptors.py": 3,
    "sketch/rewrite/test_rewrites.py": 4,
    "designer/test_breadth.py": 4,
    "designer/test_sharing.py": 3,
    "lowering/test_cpp.py": 3,
    "lowering/test_triton.py": 3,
    "lowering/test_lift.py": 4,
    "lowering/test_lift_edits.py": 6,
    "lowering/test_lift_moves.py": 6,
    "lowering/test_triton_compiles.py": 3,
    "designer/test_designer.py": 3,
    "designer/test_aten.py": 20,
    "designer/test_practice.py": 60,
    "bench/test_bench_memory.py": 4,
    "bench/test_builtin.py": 14,
    "model_integration/test_gradient.py": 3,
    "bench/test_scale.py": 7,
    "dsls/test_by_documents.py": 4,
    "teach/test_answers.py": 4,
    "teach/test_wrong_answers.py": 4,
}
#: test without parameters that takes long and guards what seldom changes -> one of how many commits' runs takes it
SOME_RUNS = {
    "bench/test_suites.py::test_a_worker_that_has_grown_is_replaced_before_the_next_problem": 3,
    "designer/test_breadth.py::test_a_deep_network_is_designed_a_launch_at_a_time": 3,
    "dsls/test_model_new.py::test_an_error_that_torch_s_loader_finds_is_at_the_string_s_line": 3,
    "knowledge/test_draft.py::test_an_import_fills_a_draft_and_leaves_what_somebody_wrote": 3,
    "knowledge/test_new_dsl.py::test_a_workspaces_dsl_is_built_by_its_command": 3,
    "lowering/test_same_text.py::test_the_text_does_not_hang_on_the_order_of_sets": 3,
    "memory/test_canonical.py::test_a_graph_of_many_nodes_needs_no_recursion": 3,
    "session/test_session.py::test_a_finished_kernel_is_compared_with_torch_compile": 3,
    "verifier/test_rivals.py::test_max_autotune_is_a_baseline_of_its_own": 3,
}
#: a commit's run executes the first tutorial and one of so many parts of the other notebooks: under four minutes
NOTEBOOKS = 6
FIRST_NOTEBOOK = "01_quickstart"


def everything() -> bool:
    """Is this the run that takes all?"""
    return os.environ.get("KERNELLAB_PROVE") == "1"


@lru_cache(maxsize=1)
def seed() -> str:
    """``KERNELLAB_SEED``, else the commit; "" outside of a checkout."""
    chosen = os.environ.get("KERNELLAB_SEED")
    if chosen is not None:
        return chosen
    try:
        command = ["git", "rev-parse", "HEAD"]
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def chosen(name: str, parts: int, seed: str) -> bool:
    """Is ``name`` in the share of ``parts`` that ``seed`` says?"""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest()
    return int(digest[:8], 16) % parts == 0


def share(names: Iterable[str], seed: str, parts: int) -> list[str]:
    """The names of one share."""
    return [name for name in names if chosen(name, parts, seed)]


def notebooks(names: Iterable[str], seed: str) -> list[str]:
    """The notebooks that a run executes: parts of one size, since each of them takes about as long."""
    others = sorted(name for name in names if name != FIRST_NOTEBOOK)
    part = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) % NOTEBOOKS
    return [FIRST_NOTEBOOK, *others[part::NOTEBOOKS]]
