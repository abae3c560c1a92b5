"""Which part of the broad tests `make test` takes: the same sample at every commit. ``make prove`` takes all of them.

Broad tests repeat one behaviour over a large table (every exhibit of the zoo, every operator in every DSL). The sample
does not depend on the commit, so that a failure belongs to the change that made it. ``python -m tests.breadth`` names
the tests that only ``make prove`` runs; ``KERNELLAB_SEED=WORD`` draws another sample.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

#: file of tests -> `make test` takes one in so many of its parametrised tests
SHARES = {
    "zoo/test_zoo.py": 10,
    "verifier/test_faults.py": 3,
    "verifier/test_faults_session.py": 3,
    "lowering/test_cuda_c.py": 6,
    "verifier/test_drawn.py": 2,
    "verifier/test_verdicts.py": 3,
    "agents/test_planted.py": 3,
    "models/test_faults.py": 4,
    "operations/test_aten.py": 6,
    "lowering/test_gluon.py": 3,
    "lowering/test_sort.py": 4,
    "lowering/test_attention.py": 3,
    "lowering/test_chains.py": 3,
    "lowering/test_chips.py": 70,
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
    "designer/test_attention.py": 4,
    "designer/test_gather.py": 4,
    "designer/test_library.py": 3,
    "designer/test_split_precision.py": 3,
    "designer/test_aten.py": 20,
    "designer/test_practice.py": 60,
    "practice/test_kinds.py": 4,
    "practice/test_operators.py": 10,
    "bench/test_bench_memory.py": 4,
    "bench/test_builtin.py": 14,
    "model_integration/test_gradient.py": 3,
    "bench/test_scale.py": 7,
    "dsls/test_by_documents.py": 4,
    "teach/test_answers.py": 8,
    "teach/test_wrong_answers.py": 4,
}
#: tests without parameters that take long and guard what seldom changes: `make prove` alone runs them
PROVE_ONLY = frozenset(
    {
        "bench/test_suites.py::test_a_worker_that_has_grown_is_replaced_before_the_next_problem",
        "designer/test_breadth.py::test_a_deep_network_is_designed_a_launch_at_a_time",
        "dsls/test_model_new.py::test_an_error_that_torch_s_loader_finds_is_at_the_string_s_line",
        "knowledge/test_draft.py::test_an_import_fills_a_draft_and_leaves_what_somebody_wrote",
        "knowledge/test_new_dsl.py::test_a_workspaces_dsl_is_built_by_its_command",
        "lowering/test_same_text.py::test_the_text_does_not_hang_on_the_order_of_sets",
        "memory/test_canonical.py::test_a_graph_of_many_nodes_needs_no_recursion",
        "session/test_session.py::test_a_finished_kernel_is_compared_with_torch_compile",
        "tools/test_agent_role.py::test_a_budget_that_the_agent_does_not_report_is_refused_at_the_start",
        "tools/test_agent_role.py::test_a_person_who_takes_their_time_costs_the_agent_none",
        "tools/test_agent_role.py::test_a_process_that_the_agent_leaves_behind_takes_it_not_along",
        "tools/test_agent_role.py::test_an_agents_turn_is_replayed_and_exported_with_its_calls",
        "tools/test_agent_role.py::test_never_refuses_and_nothing_is_asked_where_a_session_asks_for_nothing",
        "tools/test_agent_role.py::test_the_last_message_answers_where_nothing_is_submitted",
        "tools/test_agent_role.py::test_what_an_unconfined_agent_detached_ends_with_it",
        "tools/test_agent_role.py::test_what_is_asked_at_once_is_asked_one_after_the_other",
        "tools/test_jupyter.py::test_the_extra_resolves_together_with_jupyter_ai",
        "verifier/test_rivals.py::test_max_autotune_is_a_baseline_of_its_own",
    }
)
#: the notebooks that `make test` executes: three tutorials and a lesson
NOTEBOOKS = frozenset({"01_quickstart", "03_sketches_and_pins", "05_softmax", "06_evolve"})


def everything() -> bool:
    """Is this the run that takes all?"""
    return os.environ.get("KERNELLAB_PROVE") == "1"


def seed() -> str:
    """``KERNELLAB_SEED``, else the same word at every commit."""
    return os.environ.get("KERNELLAB_SEED") or "sample"


def chosen(name: str, parts: int, seed: str) -> bool:
    """Is ``name`` in the share of ``parts`` that ``seed`` says?"""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest()
    return int(digest[:8], 16) % parts == 0


def share(names: Iterable[str], seed: str, parts: int) -> list[str]:
    """The names of one share."""
    return [name for name in names if chosen(name, parts, seed)]


def prove_only() -> list[str]:
    """The tests that ``make prove`` runs and `make test` does not, as pytest names them."""
    collected = {}
    for prove in ("1", ""):
        environment = {**os.environ, "KERNELLAB_PROVE": prove}
        # pyproject's addopts hold one -q, which prints a line a test; two would print a count a file
        command = [sys.executable, "-m", "pytest", "tests", "--collect-only", "-p", "no:cacheprovider"]
        run = subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True)
        collected[prove] = [line for line in run.stdout.splitlines() if "::" in line]
    in_test = set(collected[""])
    return [name for name in collected["1"] if name not in in_test]


if __name__ == "__main__":
    print("\n".join(prove_only()))
