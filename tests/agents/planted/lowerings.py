"""Twenty wrong pieces of code: what the rules lower from a right sketch, with one fault put in by a small edit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lowering:
    """``old`` becomes ``new`` in ``file`` of the code lowered for ``task``: where it stands first, or everywhere."""

    name: str
    task: str
    fault: str
    old: str
    new: str
    file: str = "kernel.cpp"
    everywhere: bool = False


LOWERINGS = (
    Lowering("mean_not_divided", "normalisation/rms_norm", "missing scale", "row_squares / float(N)", "row_squares"),
    Lowering("weight_of_the_first_column", "normalisation/rms_norm", "wrong broadcast", "= w[i]", "= w[0]"),
    Lowering("bias_is_the_weight", "normalisation/layer_norm", "wrong operand", "= bias[i]", "= weight[i]"),
    Lowering("not_normalised", "softmax/softmax", "wrong epilogue", "exps[i] * y_inverse", "exps[i]"),
    Lowering("rows_read_as_columns", "softmax/softmax", "wrong index", "= x[m * N + i]", "= x[i * M + m]",
             everywhere=True),
    Lowering("tail_written_past_the_end", "reduction/column_sum", "missing mask",
             "i_end2 = kl::inside(N, n, COLS)", "i_end2 = COLS"),
    Lowering("accumulator_starts_at_one", "reduction/column_sum", "wrong initial value",
             "col_total[i] = 0.0f", "col_total[i] = 1.0f"),
    Lowering("accumulator_shared_by_threads", "reduction/middle_mean", "race",
             "alignas(64) float col_total", "alignas(64) static float col_total"),
    Lowering("last_element_left_out", "reduction/row_sum", "off by one", "0, N, [&]", "0, N - 1, [&]"),
    Lowering("first_element_left_out", "reduction/argmax", "off by one", "0, 2048, 0, [&]", "1, 2048, 0, [&]"),
    Lowering("maximum_not_added_back", "softmax/logsumexp", "missing term", "kl::log(row_total) + chosen",
             "kl::log(row_total)"),
    Lowering("bias_after_relu", "matmul/linear_relu", "wrong epilogue",
             "kl::relu(acc[l * BN + a] + linear_bias_tile[a])", "kl::relu(acc[l * BN + a]) + linear_bias_tile[a]"),
    Lowering("strides_exchanged", "matmul/batched", "wrong strides", "(j * 128 + k), 128, 1", "(j * 128 + k), 1, 128"),
    Lowering("one_matrix_for_all", "matmul/batched", "wrong index", "b + i * 32768", "b + 0 * 32768"),
    Lowering("ragged_k_not_cut", "matmul/matmul_bias_gelu", "missing mask", "kl::inside(K, k, BK)", "BK",
             everywhere=True),
    Lowering("scan_shifted", "scan/cumsum", "off by one", "x + m * N,", "x + m * N - (m > 0),"),
    Lowering("scan_from_the_wrong_end", "scan/reverse_cumsum", "wrong direction", "kl::Add, true", "kl::Add, false"),
    Lowering("outputs_exchanged", "normalisation/add_rms_norm", "wrong output", "return (y0, y1)", "return (y1, y0)",
             "kernel.py"),
    Lowering("unknown_function", "pointwise/swiglu", "wrong API", "kl::silu(", "kl::swish("),
    Lowering("missing_semicolon", "pointwise/bias_gelu_residual", "syntax", "= bias[i];", "= bias[i]"),
)  # fmt: skip
