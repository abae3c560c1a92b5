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

import pytest

#: file of tests -> `make test` takes one in so many of its parametrised tests
SHARES = {
    "teach/test_exam.py": 8,
    "agents/test_journal_size.py": 2,
    "evolve/test_agents.py": 2,
    "verifier/test_indistinguishable.py": 8,
    "knowledge/test_new_dsl.py": 4,
    "tools/test_tools.py": 8,
    "tools/test_agent_role.py": 4,
    "verifier/test_results.py": 3,
    "verifier/test_faults.py": 5,
    "verifier/test_faults_session.py": 3,
    "verifier/test_verdicts.py": 10,
    "agents/test_planted.py": 3,
    "lowering/test_gluon.py": 10,
    "lowering/test_attention.py": 10,
    "lowering/test_chains.py": 10,
    "lowering/test_chips.py": 300,
    "lowering/test_windows.py": 10,
    "lowering/test_descriptors.py": 3,
    "sketch/rewrite/test_rewrites.py": 4,
    "designer/test_sharing.py": 6,
    "lowering/test_triton.py": 3,
    "lowering/test_lift.py": 4,
    "lowering/test_lift_edits.py": 6,
    "lowering/test_lift_moves.py": 10,
    "lowering/test_triton_compiles.py": 3,
    "designer/test_split_precision.py": 3,
    "designer/test_aten.py": 20,
    "designer/test_practice.py": 60,
    "bench/test_bench_memory.py": 4,
    "bench/test_builtin.py": 14,
    "model_integration/test_gradient.py": 3,
    "bench/test_scale.py": 7,
    "dsls/test_by_documents.py": 4,
    "verifier/test_static_bounded.py": 4,
    "verifier/test_cheats.py": 4,
    "verifier/test_ghost.py": 8,
    "teach/test_attack.py": 8,
    "verifier/test_families.py": 2,
    "lens/test_hot_lines.py": 2,
    "bench/test_suites.py": 3,
}
#: file of tests, or one test of it -> `make test` takes so many rows of each parametrised test, so that each has one
ROWS = {
    "agents/test_long_replies.py": 6,
    "browser/test_axe.py": 2,
    "browser/test_widths.py": 1,
    "capture/test_capture.py": 1,
    "capture/test_family.py": 1,
    "ci/test_check.py": 2,
    "designer/test_attention.py": 1,
    "designer/test_breadth.py": 2,
    "designer/test_channels_last.py": 1,
    "designer/test_cuts.py": 3,
    "designer/test_designer.py": 2,
    "designer/test_factors.py": 1,
    "designer/test_fallback.py": 1,
    "designer/test_gather.py": 1,
    "designer/test_library.py": 1,
    "designer/test_long_rows.py": 1,
    "designer/test_narrow_factors.py": 1,
    "designer/test_odd_rows.py": 3,
    "designer/test_online.py": 1,
    "designer/test_pooling.py": 3,
    "designer/test_recurrent.py": 1,
    "designer/test_routed.py": 1,
    "designer/test_slices.py": 3,
    "designer/test_stacks.py": 1,
    "designer/test_thin_tiles.py": 4,
    "designer/test_threads.py": 2,
    "designer/test_window_deep.py": 2,
    "designer/test_window_halves.py": 1,
    "designer/test_windows.py": 1,
    "dsls/test_cuda_c.py": 1,
    "evolve/test_cluster.py": 1,
    "evolve/test_judges.py": 2,
    "knowledge/test_lint.py": 2,
    "lowering/test_bits.py": 1,
    "lowering/test_cpp.py": 1,
    "lowering/test_cpp_random.py": 1,
    "lowering/test_cuda_c.py": 1,
    "lowering/test_gather.py": 2,
    "lowering/test_rows.py": 1,
    "lowering/test_sort.py": 1,
    "lowering/test_triton_random.py": 1,
    "lowering/test_unseen.py": 1,
    "models/test_faults.py": 4,
    "notebook/test_magics.py": 8,
    "notebook/test_monitor.py": 2,
    "operations/test_aten.py": 4,
    "practice/test_kinds.py": 1,
    "practice/test_operators.py": 1,
    "session/test_model_roles.py": 1,
    "sketch/rewrite/test_moves.py": 1,
    "sketch/rewrite/test_moves.py::test_a_row_of_another_iteration_keeps_launches_apart": 3,
    "sketch/rewrite/test_moves.py::test_a_scale_of_rows_leaves_a_product_where_it_is_the_same_in_all_of_it": 4,
    "sketch/test_confined.py": 5,
    "sketch/test_confined.py::test_a_worker_may_not": 15,
    "sketch/test_confined.py::test_no_operation_of_a_sketch_runs_in_this_process": 11,
    "sketch/test_gate.py": 1,
    "sketch/test_library.py": 8,
    "sketch/test_library.py::test_a_call_of_aten_that_cannot_stand_is_refused": 21,
    "sketch/test_library.py::test_a_wrong_call_is_refused_with_a_sentence_and_a_remedy": 25,
    "teach/test_answers.py": 1,
    "teach/test_grading.py": 1,
    "teach/test_hostile.py": 2,
    "teach/test_watched.py": 1,
    "teach/test_wrong_answers.py": 2,
    "test_recipes.py": 1,
    "tools/test_acp_wire.py": 2,
    "tools/test_agent_attacks.py": 1,
    "tools/test_mcp.py": 1,
    "tools/test_skill.py": 1,
    "verifier/test_arguments.py": 1,
    "verifier/test_attempts.py": 3,
    "verifier/test_caller.py": 1,
    "verifier/test_caller.py::test_a_slow_leak_is_seen_between_the_steps_of_an_allocator": 7,
    "verifier/test_caller.py::test_a_variable_of_torchs_that_a_user_has_set_is_to_be_left": 2,
    "verifier/test_caller.py::test_an_update_that_two_threads_may_lose_is_refused_however_short_its_window": 2,
    "verifier/test_caller.py::test_memory_that_each_call_leaves_behind_is_told": 2,
    "verifier/test_caller.py::test_one_tensor_for_a_read_and_a_written_argument_is_tried": 3,
    "verifier/test_caller.py::test_outputs_may_lie_in_one_memory_but_no_element_of_two": 3,
    "verifier/test_caller.py::test_two_first_calls_that_end_the_process_are_told": 2,
    "verifier/test_caller.py::test_views_of_conjugates_that_are_misread_are_told": 2,
    "verifier/test_combined.py": 2,
    "verifier/test_compare_unchanged.py": 2,
    "verifier/test_contents.py": 2,
    "verifier/test_drawn.py": 1,
    "verifier/test_drawn.py::test_a_limit_of_many_digits_is_the_declared_dtype_s": 2,
    "verifier/test_drawn.py::test_a_number_that_is_wrong_at_zero_with_any_argument_is_told_without_one": 2,
    "verifier/test_drawn.py::test_narrow_sums_that_only_two_arguments_at_their_ends_exceed_are_told": 2,
    "verifier/test_drawn.py::test_numbers_that_are_never_negative_meet_no_negative_one": 2,
    "verifier/test_drawn.py::test_a_kernel_without_a_parameter_for_a_default_number_is_held_at_that": 2,
    "verifier/test_drawn.py::test_a_number_that_a_table_takes_for_an_empty_place_is_drawn_among_others": 0,
    "verifier/test_drawn.py::test_what_the_reference_is_there_for_is_refused": 2,
    "verifier/test_drawn.py::test_what_fails_beyond_the_own_inputs_is_a_condition": 2,
    "verifier/test_drawn.py::test_the_honest_neighbour_passes": 2,
    "verifier/test_edges.py": 2,
    "verifier/test_effects.py": 2,
    "verifier/test_go.py": 2,
    "verifier/test_interpreter.py": 1,
    "verifier/test_kinds.py": 2,
    "verifier/test_kinds.py::test_an_argument_that_is_written_into_is_as_after_one_call": 6,
    "verifier/test_own.py": 2,
    "verifier/test_precision.py": 1,
    "verifier/test_precision.py::test_the_gaps_between_the_classes": 8,
    "verifier/test_precision.py::test_a_verdict_tells_of_results_that_are_cut_off": 2,
    "verifier/test_properties.py": 1,
    "verifier/test_rehearsal.py": 1,
    "verifier/test_seal_native.py": 1,
    "verifier/test_seal_native.py::test_what_is_no_object_is_refused": 4,
    "zoo/test_zoo.py": 2,
}
#: tests that take long and guard what seldom changes: `make prove` alone runs them, with all their rows
PROVE_ONLY = frozenset(
    {
        "agents/test_journal_size.py::test_five_thousand_candidates_of_six_exchanges_stay_under_200_mb",
        "agents/test_trial.py::test_a_session_is_played_by_files_alone_and_says_what_came_of_it",
        "bench/test_bench_memory.py::test_a_run_is_told_of_relatives_alone_and_leaves_the_memory_as_it_was",
        "bench/test_suites.py::test_a_problem_that_must_wait_for_its_device_is_done_last_and_waiting_is_none_of_its_time",
        "bench/test_suites.py::test_a_session_is_stopped_at_its_deadline_and_what_it_has_by_then_counts",
        "bench/test_suites.py::test_a_worker_that_has_grown_is_replaced_before_the_next_problem",
        "bench/test_suites.py::test_few_workers_do_what_was_put_off",
        "bench/test_throughput.py::test_one_pair_and_one_judge_for_real",
        "browser/test_model_at_work.py::test_asked_after_two_replies_of_no_use_and_a_stopped_one_is_kept",
        "browser/test_model_at_work.py::test_waiting_writing_and_an_edit_by_hunks",
        "browser/test_places.py::test_two_notebooks_two_browsers_dark_and_narrow",
        "browser/test_search.py::test_watch_pause_inject_protect_resume_and_stop",
        "browser/test_two_tabs.py::test_a_kernel_that_was_killed_is_told_without_a_click",
        "browser/test_two_tabs.py::test_a_page_whose_kernel_has_ended_shows_what_was_recorded",
        "browser/test_two_tabs.py::test_a_page_whose_subshell_has_ended_still_takes_decisions_and_save",
        "ci/test_check.py::test_a_kernel_is_a_test_of_a_persons_own_suite",
        "cli/test_cli.py::test_lab_hands_options_that_it_does_not_know_on_to_jupyterlab",
        "designer/test_breadth.py::test_a_deep_network_is_designed_a_launch_at_a_time",
        "designer/test_library.py::test_a_session_measures_which_is_faster",
        "designer/test_library.py::test_a_verdict_names_the_library_and_its_share",
        "dsls/test_model_new.py::test_a_model_that_torch_s_loader_builds_passes_with_the_reference_s_parameters",
        "dsls/test_model_new.py::test_an_error_that_torch_s_loader_finds_is_at_the_string_s_line",
        "evolve/test_agents.py::test_a_direction_that_a_person_edits_reaches_an_agent_that_works",
        "evolve/test_agents.py::test_a_pin_of_a_given_sketch_holds_in_each_answer_of_an_agent",
        "evolve/test_agents.py::test_the_monitor_shows_what_an_agent_does_while_it_works",
        "evolve/test_cluster.py::test_a_worker_that_is_killed_before_it_has_started_ends_nothing",
        "evolve/test_cluster.py::test_two_workers_one_of_which_is_killed_evaluate_what_this_process_does",
        "evolve/test_judges.py::test_real_judges_rank_side_by_side",
        "evolve/test_judges.py::test_the_time_ends_a_search_whose_judge_hangs",
        "evolve/test_run.py::test_cheats_are_never_elites_and_what_is_called_the_best_is_verified",
        "evolve/test_run.py::test_the_same_seed_makes_the_same_run",
        "export/test_compiled.py::test_programs_of_cuda_core_take_the_cubin_of_their_text",
        "export/test_compiled.py::test_triton_finds_its_cubins_and_says_where_they_are_for_another_chip",
        "export/test_takehome.py::test_kernels_are_verified_as_one_on_both_sides_of_each_switch",
        "knowledge/test_documents.py::test_every_block_that_can_run_here_passes",
        "knowledge/test_draft.py::test_an_import_fills_a_draft_and_leaves_what_somebody_wrote",
        "knowledge/test_lint.py::test_a_record_of_one_folder_leaves_those_of_the_others",
        "knowledge/test_new_dsl.py::test_a_workspaces_dsl_is_built_by_its_command",
        "knowledge/test_new_dsl.py::test_its_compilers_error_is_a_line_of_the_source",
        "knowledge/test_new_dsl.py::test_its_kernels_are_verified",
        "lowering/test_lift_moves.py::test_a_kernel_that_moved_is_passed_by_the_verifier",
        "lowering/test_same_text.py::test_the_text_does_not_hang_on_the_order_of_sets",
        "memory/test_canonical.py::test_a_graph_of_many_nodes_needs_no_recursion",
        "memory/test_layers.py::test_a_task_that_was_captured_once_is_searched_for_without_torch",
        "memory/test_memory.py::test_an_imported_kernel_is_verified_first_and_an_import_goes_on_where_it_stopped",
        "model_integration/test_gradient.py::test_a_recurrent_layers_gradient_takes_all_its_steps",
        "model_integration/test_gradient.py::test_a_task_that_asks_for_gradients_gets_both_kernels",
        "notebook/test_learn_magics.py::test_attempts_on_the_toy_judge_add_up_and_get_hints",
        "session/test_by_hand.py::test_two_candidates_side_by_side",
        "session/test_compare.py::test_figures_of_a_comparison_are_added_to_those_of_the_verdict_alone",
        "session/test_compare.py::test_the_best_kernel_is_timed_over_the_range_of_a_dim_and_the_worst_size_is_named",
        "session/test_compare.py::test_torch_compile_is_compared_after_the_session_has_finished",
        "session/test_model_roles.py::test_a_model_goes_on_after_a_pass_while_rules_finish",
        "session/test_model_roles.py::test_after_a_kill_no_answered_request_is_asked_again",
        "session/test_one_press.py::test_a_session_stopped_in_a_verification_goes_on_with_a_new_judge",
        "session/test_session.py::test_a_finished_kernel_is_compared_with_torch_compile",
        "session/test_session.py::test_an_edited_tile_is_designed_coded_and_verified_anew",
        "task/test_without_memory.py::test_a_lessons_task_loads_no_compiler",
        "teach/test_answers.py::test_an_answer_that_is_off_by_little_once_is_drawn_again",
        "teach/test_answers.py::test_what_only_triton_s_interpreter_runs_is_no_kernel",
        "teach/test_attack.py::test_holes_that_are_only_enough_together_are_named_as_a_pair",
        "teach/test_class.py::test_a_class_of_forty_has_its_points_and_no_trick_has_any",
        "teach/test_class.py::test_no_cell_of_a_lesson_answers_an_exercise_of_it",
        "test_recipes.py::test_the_same_entry_is_an_operation_of_cuda_c",
        "tools/test_agent_role.py::test_a_budget_that_the_agent_does_not_report_is_refused_at_the_start",
        "tools/test_agent_role.py::test_a_killed_notebook_takes_the_agent_along_and_the_session_says_what_became_of_it",
        "tools/test_agent_role.py::test_a_note_reaches_the_agent_with_the_next_result",
        "tools/test_agent_role.py::test_a_person_sees_what_an_edit_would_change",
        "tools/test_agent_role.py::test_a_person_who_takes_their_time_costs_the_agent_none",
        "tools/test_agent_role.py::test_a_pin_holds_against_an_agents_answer_which_is_told_the_line",
        "tools/test_agent_role.py::test_a_process_ends_while_an_agent_waits_for_a_persons_answer",
        "tools/test_agent_role.py::test_a_process_that_the_agent_leaves_behind_takes_it_not_along",
        "tools/test_agent_role.py::test_a_shell_without_a_terminal_prints_what_was_asked_and_refused",
        "tools/test_agent_role.py::test_a_thousand_verifies_in_a_turn_are_no_oracle",
        "tools/test_agent_role.py::test_a_workspaces_first_agent_says_what_an_agent_may_read_and_later_ones_do_not",
        "tools/test_agent_role.py::test_an_agent_that_dies_while_it_asks_leaves_no_question",
        "tools/test_agent_role.py::test_an_agent_that_ends_by_itself_says_what_it_wrote",
        "tools/test_agent_role.py::test_an_agent_that_takes_too_long_is_ended",
        "tools/test_agent_role.py::test_an_agents_turn_is_replayed_and_exported_with_its_calls",
        "tools/test_agent_role.py::test_calls_beyond_the_limit_are_refused_and_the_answer_is_not",
        "tools/test_agent_role.py::test_folders_that_the_settings_name_are_made_and_are_the_only_ones",
        "tools/test_agent_role.py::test_never_refuses",
        "tools/test_agent_role.py::test_the_last_message_answers_where_nothing_is_submitted",
        "tools/test_agent_role.py::test_what_an_agent_keeps_lies_in_the_workspace_unless_the_home_has_it",
        "tools/test_agent_role.py::test_what_an_unconfined_agent_detached_ends_with_it",
        "tools/test_agent_role.py::test_what_is_asked_at_once_is_asked_one_after_the_other",
        "tools/test_jupyter.py::test_the_extra_resolves_together_with_jupyter_ai",
        "tools/test_mcp.py::test_progress_is_sent_and_a_sessions_brief_is_a_prompt",
        "tools/test_real_agent.py::test_a_coding_agent_designs_as_a_role_and_its_turn_is_on_the_record",
        "tools/test_real_agent.py::test_a_coding_agent_verifies_a_kernel_by_the_server_alone",
        "tools/test_tools.py::test_a_fork_sets_the_head_back_pauses_and_keeps_what_came_after",
        "tools/test_tools.py::test_a_model_is_profiled_by_a_file_of_the_workspace_alone",
        "tools/test_tools.py::test_a_pin_holds_against_a_sketch_that_an_agent_submits",
        "tools/test_tools.py::test_an_agents_sketch_is_a_candidate_of_a_search_and_is_told_as_the_agents",
        "tools/test_tools.py::test_of_two_agents_each_is_told_of_its_own_turn",
        "tools/test_tools.py::test_the_tools_load_neither_sdk",
        "verifier/test_drawn.py::test_a_long_row_of_a_mask_that_is_true_throughout_is_met",
        "verifier/test_drawn.py::test_a_maximum_that_begins_from_a_number_that_is_not_low_enough_is_told",
        "verifier/test_drawn.py::test_a_nan_that_alone_decides_is_given_to_any",
        "verifier/test_drawn.py::test_nearly_equal_arguments_tell_a_sum_that_loses_all_digits",
        "verifier/test_drawn.py::test_places_that_come_twice_are_given_for_a_permutation",
        "verifier/test_drawn.py::test_the_first_survey_of_a_process_has_as_many_cases_as_the_next",
        "verifier/test_drawn.py::test_the_one_dim_of_a_task_is_long_as_two_of_others_are",
        "verifier/test_drawn.py::test_zeros_of_either_sign_are_equal_where_a_place_is_told",
        "verifier/test_families.py::test_one_pass_variance_cancels_and_is_refused",
        "verifier/test_remote.py::test_a_connection_that_is_cut_in_the_middle_is_made_again",
        "verifier/test_remote.py::test_a_search_measures_at_another_machine_and_is_left_as_it_was_where_that_is_gone",
        "verifier/test_remote.py::test_a_worker_of_a_cluster_that_dies_in_the_middle_is_followed_by_another",
        "verifier/test_rivals.py::test_max_autotune_is_a_baseline_of_its_own",
        "verifier/test_verdicts.py::test_repeated_timing_counts_the_calls_of_all_runs",
    }
)
#: seconds of a verdict's timed calls in tests that are not about times: nothing else is judged on the machine meanwhile
BRIEFLY = 0.2
#: the notebooks that `make test` executes: a tutorial and a lesson
NOTEBOOKS = frozenset({"11_agents", "05_softmax"})


def everything() -> bool:
    """Is this the run that takes all?"""
    return os.environ.get("KERNELLAB_PROVE") == "1"


def seed() -> str:
    """``KERNELLAB_SEED``, else the same word at every commit."""
    return os.environ.get("KERNELLAB_SEED") or "sample"


def chosen(name: str, parts: int, seed: str) -> bool:
    """Is ``name`` in the share of ``parts`` that ``seed`` says?"""
    return int(_digest(name, seed)[:8], 16) % parts == 0


def _digest(name: str, seed: str) -> str:
    return hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest()


def rows(names: Iterable[str], seed: str, most: int) -> set[str]:
    """``most`` of the rows of each parametrised test, as pytest names them; all where it has no more."""
    by_test: dict[str, list[str]] = {}
    for name in names:
        by_test.setdefault(name.partition("[")[0], []).append(name)
    drawn = (sorted(of_test, key=lambda name: _digest(name, seed))[:most] for of_test in by_test.values())
    return {name for of_test in drawn for name in of_test}


def share(names: Iterable[str], seed: str, parts: int) -> list[str]:
    """The names of one share."""
    return [name for name in names if chosen(name, parts, seed)]


def share_of_rows(names: Iterable[str], seed: str, parts: int) -> list[str]:
    """The rows of one share, as pytest names them, and of a parametrised test that has none in it one."""
    by_test: dict[str, list[str]] = {}
    for name in names:
        by_test.setdefault(name.partition("[")[0], []).append(name)
    kept = []
    for of_test in by_test.values():
        kept += share(of_test, seed, parts) or sorted(rows(of_test, seed, 1))
    return kept


def asked(request: pytest.FixtureRequest, parameter: str) -> set[str]:
    """The values of ``parameter`` in those tests of this file and run that use the fixture: it need not make the
    others'."""
    return {
        item.callspec.params[parameter]
        for item in request.session.items
        if request.fixturename in getattr(item, "fixturenames", ())
        and hasattr(item, "callspec")
        and item.path == request.path
    }


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
