"""A second forty faults, written before anybody looked how the rules route them: each is one small edit.

Twenty are edits of the sketch that the rules design for a task, twenty of the code that they lower from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.agents.planted.lowerings import Lowering


@dataclass(frozen=True)
class Sketching:
    """``old`` becomes ``new``, once, in the sketch that the rules design for ``task``."""

    name: str
    task: str
    fault: str
    old: str
    new: str


SKETCHINGS = (
    Sketching("norm_without_root", "normalisation/l2_normalise", "missing operation", "= sqrt(row_squares)",
              "= row_squares"),
    Sketching("mean_over_one_channel", "normalisation/group_norm", "wrong divisor", "row_total / 73728.0",
              "row_total / 9216.0"),
    Sketching("low_not_taken_off", "normalisation/min_max", "missing term", "(x_tile - row_min) / added",
              "x_tile / added"),
    Sketching("total_before_the_shift", "softmax/log_softmax", "wrong operand", "reduce_sum(exp(shifted), axis=0)",
              "reduce_sum(exp(x_tile), axis=0)"),
    Sketching("diagonal_masked", "softmax/causal_softmax", "wrong comparison", "arange(256) - j <= 0",
              "arange(256) - j < 0"),
    Sketching("mask_scaled_too", "softmax/scaled_masked_softmax", "wrong order", "x_tile * 0.125 + mask_tile",
              "(x_tile + mask_tile) * 0.125"),
    Sketching("variance_of_all", "reduction/row_variance", "wrong divisor", "row_squares / (N - 1)", "row_squares / N"),
    Sketching("weights_not_normalised", "reduction/weighted_mean", "wrong divisor", "row_total / row_total2",
              "row_total / 1024.0"),
    Sketching("largest_not_absolute", "reduction/absmax_bf16", "missing operation", "reduce_max(abs(x_tile), axis=0)",
              "reduce_max(x_tile, axis=0)"),
    Sketching("knee_not_joined", "loss/huber", "missing term", "size - 0.5", "size"),
    Sketching("ends_exchanged", "pointwise/lerp", "wrong operand", "where(value, y_tile, x_tile) ->",
              "where(value, x_tile, y_tile) ->"),
    Sketching("one_for_two", "pointwise/mish", "wrong constant", "exps * (exps + 2.0)", "exps * (exps + 1.0)"),
    Sketching("alpha_on_everything", "matmul/addmm", "wrong order", "acc * 2.0 + c_tile * 0.5",
              "(acc + c_tile * 0.5) * 2.0"),
    Sketching("half_taken_twice", "matmul/low_rank", "wrong scale", "store(mm_all_tile + acc ->",
              "store(mm_all_tile + acc * 0.5 ->"),
    Sketching("both_factors_of_the_rows", "matmul/gram", "wrong index", "load(a[m2:m2+BN, j:j+BK]",
              "load(a[m:m+BN, j:j+BK]"),
    Sketching("sum_for_product", "scan/cumprod", "wrong operation", "cumprod(x_tile", "cumsum(x_tile"),
    Sketching("count_from_two", "scan/running_mean", "off by one", "arange(1024) + 1", "arange(1024) + 2"),
    Sketching("last_tap_first", "convolution/causal_conv1d_silu", "wrong index", "load(w[g, 0] ->",
              "load(w[g, 3] ->"),
    Sketching("padding_counted", "pooling/avg_pool2d", "wrong divisor",
              "converted * cast(min(min(shifted2 + 3, 225), 224) - max(shifted2, 0), f32)", "converted * 3.0"),
    Sketching("scores_not_scaled", "attention/causal", "missing scale", "scores * 0.125", "scores"),
)  # fmt: skip

SECOND = (
    Lowering("root_left_out", "normalisation/l2_normalise", "missing operation", "= kl::sqrt(row_squares)",
             "= row_squares"),
    Lowering("weight_of_the_first_group", "normalisation/group_norm", "wrong index", "gn_weight[j * 8 + k]",
             "gn_weight[k]"),
    Lowering("variance_about_zero", "normalisation/group_norm", "missing term", "shifted = x_tile - mean;",
             "shifted = x_tile;"),
    Lowering("least_starts_at_zero", "normalisation/min_max", "wrong initial value", "row_min = kl::INF;",
             "row_min = 0.0f;"),
    Lowering("shift_taken_twice", "softmax/log_softmax", "extra term", "shifted2[i] - logs",
             "shifted2[i] - logs - row_max"),
    Lowering("next_one_seen", "softmax/causal_softmax", "off by one", "(k - j) <= INT64_C(0)",
             "(k - j) <= INT64_C(1)"),
    Lowering("mask_by_row", "softmax/scaled_masked_softmax", "wrong index", "= mask[i];", "= mask[m % N];"),
    Lowering("one_more_for_one_less", "reduction/row_variance", "wrong divisor", "float(N - 1)", "float(N + 1)"),
    Lowering("weights_of_the_first_row", "reduction/weighted_mean", "wrong broadcast", "= w[m * 1024 + i]", "= w[i]"),
    Lowering("first_row_for_all", "pointwise/lerp", "wrong index", "x_tile = x[m * N + i]", "x_tile = x[i]"),
    Lowering("cut_at_two", "pointwise/mish", "wrong constant", "20.0f", "2.0f"),
    Lowering("every_other_block", "pointwise/mish", "elements unset", "i += BLOCK", "i += 2 * BLOCK"),
    Lowering("alpha_forgotten", "matmul/addmm", "missing scale", "acc[i * BN + l] * 2.0f", "acc[i * BN + l]"),
    Lowering("first_step_skipped", "matmul/addmm", "off by one", "int64_t j = 0; j < 768", "int64_t j = BK; j < 768"),
    Lowering("factor_not_turned", "matmul/gram", "wrong strides", "a + m2 * 512 + j, 1, 512",
             "a + m2 * 512 + j, 512, 1"),
    Lowering("divided_by_place", "scan/running_mean", "off by one", "float(i + INT64_C(1))", "float(i)"),
    Lowering("tap_repeated", "convolution/causal_conv1d_silu", "wrong index", "w[g * 4 + 3]", "w[g * 4 + 2]"),
    Lowering("row_far_outside", "indexing/take_rows", "crash", "x[x_picked_part * 512 + i]",
             "x[x_picked_part * 51200000 + i]"),
    Lowering("parenthesis_not_closed", "quantisation/int8_rows", "syntax", "int8_t(kl::min(", "int8_t((kl::min("),
    Lowering("helper_that_is_none", "movement/rotary", "wrong API", "kl::imin(", "kl::minimum_of("),
)  # fmt: skip
