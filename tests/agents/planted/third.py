"""Twenty wrong pieces of code of a third forty faults; the wrong sketches are files of ``sketches/third``."""

from __future__ import annotations

from tests.agents.planted.lowerings import Lowering

THIRD = (
    Lowering("slope_ten_times_too_large", "pointwise/leaky_relu", "wrong constant", "x_tile * 0.05f", "x_tile * 0.5f"),
    Lowering("size_with_its_sign", "pointwise/softsign", "missing operation", "kl::abs(x_tile) + 1.0f",
             "x_tile + 1.0f"),
    Lowering("logarithm_of_base_two", "reduction/entropy", "wrong function", "kl::log(p_tile", "kl::log2(p_tile"),
    Lowering("square_for_distance", "reduction/pairwise_distance", "missing operation",
             "kl::sqrt(row_squares + 1e-08f)", "(row_squares + 1e-08f)"),
    Lowering("zero_counted_as_positive", "reduction/count_positive", "wrong comparison", "x_tile > 0.0f",
             "x_tile >= 0.0f"),
    Lowering("place_within_the_chunk", "reduction/argmin_columns", "missing offset", "better ? j : col_at[i]",
             "better ? j - chunk * CHUNK : col_at[i]"),
    Lowering("axes_exchanged", "reduction/sum_of_two_axes", "wrong index", "x[(i * 256 + j) * 256 + k]",
             "x[(j * 256 + i) * 256 + k]"),
    Lowering("one_norm_of_two", "loss/cosine", "missing factor", "(b_tile * row_total_inverse2)", "b_tile"),
    Lowering("mean_of_all_for_the_batch", "loss/kl_div", "wrong divisor", "y[0] = row_total / float(M)",
             "y[0] = row_total / float(M * N)"),
    Lowering("upper_part_kept", "matmul/triangular", "wrong comparison", "<= INT64_C(0)) ? a_tile",
             ">= INT64_C(0)) ? a_tile"),
    Lowering("mirror_one_off", "movement/pad_reflected", "off by one", "kl::abs((j + k) + INT64_C(-2))",
             "kl::abs((j + k) + INT64_C(-1))"),
    Lowering("rounded_up_to_the_next", "movement/nearest_upsample", "off by one", "float(j + k) + 0.0f",
             "float(j + k) + 1.0f"),
    Lowering("distance_with_its_sign", "softmax/alibi_softmax", "missing operation", "float(kl::abs(l - k))",
             "float(l - k)"),
    Lowering("sum_without_sizes", "normalisation/l1_mean_norm", "missing operation", "float(kl::abs(x_tile))",
             "float(x_tile)"),
    Lowering("one_above_the_middle", "order/median_of_rows", "off by one", "* 255 + 127]", "* 255 + 128]"),
    Lowering("updates_lost", "indexing/histogram", "race",
             " reduction(+: y2[0:256])", ""),
    Lowering("halves_exchanged", "quantisation/nibbles", "wrong order", "value[k] ? shifted[i] : shifted2[i]",
             "value[k] ? shifted2[i] : shifted[i]"),
    Lowering("cut_off_by_the_cast", "quantisation/groups_of_128", "missing operation",
             "int8_t(kl::round(x_tile / ratio[i]))", "int8_t(x_tile / ratio[i])"),
    Lowering("rim_of_zeros", "pooling/max_pool1d_dilated", "wrong padding", "x_row[j] = -kl::INF", "x_row[j] = 0.0f",
             everywhere=True),
    Lowering("pointer_for_a_value", "indexing/masked_assign", "type error", "const float y_here = y[m];",
             "const float y_here = y;"),
)  # fmt: skip
