"""Which tasks of the built-in suite are relatives: written by hand from what they compute, before anything was run.

Each line is a group whose kernels have one structure, so that who writes one of them would look at the others first.
A task may stand in two groups; its relatives are all others of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

_KIN = """
attention: plain plain_bf16_long cross_dim_128 values_of_another_width by_hand biased masked soft_capped
attention: causal causal_f16 windowed plain
attention: decode grouped split_latent
backward: softmax log_softmax
backward: layer_norm rms_norm layer_norm_weights
backward: gelu relu silu_gate
backward: linear conv_weight attention_scores
convolution: conv2d conv_add_relu conv_bias_gelu_bf16 conv_relu_pool strided_conv dilated_conv grouped_conv
convolution: conv1d_dilated conv1d_f16 causal_conv1d_silu
convolution: conv_transpose1d conv_transpose2d conv_transpose3d_groups
convolution: depthwise_conv2d separable_conv grouped_conv
convolution: conv3d conv2d
experts: dense_mixture shared_and_routed combine own_weight
fused: matmul_scale_residual linear_gelu_linear_bf16 matmul/matmul_bias_gelu matmul/linear_relu matmul/mlp_relu
fused: linear_layer_norm normalisation/layer_norm_affine
fused: sum_then_norm normalisation/add_layer_norm normalisation/add_rms_norm
fused: modulated_norm normalisation/layer_norm normalisation/layer_norm_affine
fused: norm_rotary normalisation/rms_norm movement/rotary
fused: conv_group_norm_silu normalisation/group_norm_silu
fused: clip_by_norm normalisation/frobenius normalisation/l2_normalise
indexing: embedding take_rows paged_rows positions_added
indexing: index_add scatter_add segment_sums histogram
indexing: gather_along_rows take_columns
indexing: embedding_rms_norm embedding normalisation/rms_norm
indexing: embedding_bag embedding
loss: mse huber hinge poisson_nll gaussian_nll
loss: cross_entropy smoothed_cross_entropy
loss: binary_cross_entropy focal dice
loss: kl_div poisson_nll
loss: cosine triplet
matmul: matmul matmul_f16 matmul_int32 skinny long_sum low_rank triangular
matmul: matmul_bf16_transposed matmul_both_transposed gram
matmul: addmm linear_relu matmul_bias_gelu
matmul: batched batched_bias einsum_heads
matmul: matvec vector_matrix
matmul: mlp_relu swiglu_ffn_bf16
matmul: scale_softmax_product attention/by_hand
movement: transpose swap_heads permute_scale
movement: rotary rotary_interleaved
movement: concatenate stack_interleaved tile repeat_each
movement: pad_constant roll_pad pad_reflected
movement: flip_rows roll_pad
movement: pixel_shuffle swap_heads
normalisation: layer_norm layer_norm_affine layer_norm_bf16 add_layer_norm deep_norm
normalisation: rms_norm rms_norm_f16 add_rms_norm gated_rms_norm qk_norm
normalisation: group_norm group_norm_silu instance_norm
normalisation: batch_norm_eval batch_norm_training standardise_columns
normalisation: l2_normalise l1_mean_norm frobenius weight_norm
normalisation: min_max reduction/row_min_and_max
order: sort sort_descending sort_int median_of_rows
order: topk least_five top_mean gate_of_experts
pointwise: adam_step adamw_step_bf16 sgd_momentum
pointwise: swiglu geglu_f16 bias_gelu_residual
pointwise: gelu_bf16 gelu_by_hand error_function tanh
pointwise: silu sigmoid_f16 mish
pointwise: elu selu leaky_relu prelu squared_relu_bf16
pointwise: softplus_beta softplus_numpy log_of_one_and_more
pointwise: addcmul addcdiv lerp
pointwise: comparisons masked_fill_scale
pointwise: clamp_rows hardswish_clamped
pooling: max_pool2d max_pool3d max_pool1d_dilated
pooling: avg_pool1d avg_pool2d avg_pool3d adaptive_average lp_pool
pooling: global_average global_max_f16
quantisation: int8_rows asymmetric groups_of_128 norm_then_bytes
quantisation: int8_product weight_only four_bit_table
quantisation: int8_back fake_quantised
reduction: row_sum row_mean_f16 row_product int_sum sum_of_squares count_positive
reduction: row_max_abs absmax_bf16 row_min_and_max
reduction: row_std row_variance variance_and_mean
reduction: argmax argmin_columns
reduction: column_sum middle_mean
reduction: sum_of_all sum_of_two_axes
reduction: masked_mean weighted_mean
reduction: norm_of_order_three pairwise_distance sum_of_squares
reduction: dot_of_rows weighted_mean
reduction: entropy softmax/logsumexp
scan: cumsum cumsum_f16 cumsum_int cumsum_columns exclusive_cumsum reverse_cumsum masked_cumsum running_mean
scan: cummax cumprod
scan: linear_recurrence gated_cell selective_state
scan: logcumsumexp cumsum
softmax: softmax softmax_f16 softmax_temperature_bf16 scaled_masked_softmax alibi_softmax causal_softmax
softmax: softmax_channels softmin_columns softmax_two_axes
softmax: log_softmax softmax logsumexp
softmax: logsumexp logsumexp_pairs
"""


def kin(known: Iterable[str]) -> dict[str, set[str]]:
    """Each task (``class/name``) with its relatives among ``known``. Raises KeyError for an unknown name."""
    every = set(known)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in _KIN.strip().splitlines():
        folder, _, names = line.partition(": ")
        group = [name if "/" in name else f"{folder}/{name}" for name in names.split()]
        if missing := set(group) - every:
            raise KeyError(f"the suite has no {', '.join(sorted(missing))}")
        for name in group:
            found[name] |= set(group) - {name}
    return dict(found)
