"""The table of ATen's operations that are not a single operation of a sketch: a row for each, by role.

To add an operation, name it in the line of its role, or give it a line: ``sketch`` lists the operations of a sketch
that the rules write it with (its FLOPs are theirs), ``per`` says whether for each element of the result or of the
largest operand. Rows that name several operations give all of them the same columns. ``tests/operations`` compares the
FLOPs with what the designed sketch costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernellab.operations.aten_row import AtenOp, Capture, Copies, Per, Role


def _rows(
    role: Role, names: str, sketch: str = "", *, parts: str = "", overloads: str = "", **columns: Any
) -> Iterator[AtenOp]:
    """Yield a row for each of ``names``; names in all columns are separated by spaces."""
    for name in names.split():
        yield AtenOp(
            name, role, tuple(sketch.split()), parts=tuple(parts.split()), overloads=tuple(overloads.split()),
            **{"word": name, **columns},
        )  # fmt: skip


def _views(role: Role, names: str, **columns: Any) -> Iterator[AtenOp]:
    """Yield rows of operations whose result is the operand's memory."""
    return _rows(role, names, copies=Copies.NEVER, **columns)


#: FLOPs are for each element of the largest operand
_IN = Per.OPERAND
_WHOLE, _APART = Capture.WHOLE, Capture.APART

# ruff: noqa: E501 - one line a kind reads as a table
ROWS: tuple[AtenOp, ...] = (
    # elementwise arithmetic
    *_rows(Role.ARITHMETIC, "add", "add", commutes=True),
    *_rows(Role.ARITHMETIC, "sub rsub subtract", "sub"),
    *_rows(Role.ARITHMETIC, "maximum", "max", direct=True, word="larger", commutes=True, capture=_WHOLE),
    *_rows(Role.ARITHMETIC, "minimum", "min", direct=True, word="smaller", commutes=True, capture=_WHOLE),
    *_rows(Role.ARITHMETIC, "clamp_min", "max", word="larger"),
    *_rows(Role.ARITHMETIC, "clamp_max", "min", word="smaller"),
    *_rows(Role.ARITHMETIC, "clamp clip", "max min"),
    *_rows(Role.ARITHMETIC, "masked_fill", "where"),
    *_rows(Role.ARITHMETIC, "square", "mul", word="pow"),
    *_rows(Role.ARITHMETIC, "deg2rad rad2deg", "mul"),
    *_rows(Role.ARITHMETIC, "logical_xor", "ne", commutes=True),
    *_rows(Role.ARITHMETIC, "isinf", "abs eq"),
    *_rows(Role.ARITHMETIC, "isposinf isneginf", "eq"),
    *_rows(Role.ARITHMETIC, "signbit", "copysign lt"),
    *_rows(Role.ARITHMETIC, "frac", "trunc sub"),
    *_rows(Role.ARITHMETIC, "fmax", "max isnan isnan where where"),
    *_rows(Role.ARITHMETIC, "fmin", "min isnan isnan where where"),
    *_rows(Role.ARITHMETIC, "heaviside", "isnan lt logical_or eq where where"),
    *_rows(Role.ARITHMETIC, "angle", "lt isnan where where"),
    *_rows(Role.ARITHMETIC, "nan_to_num", "isnan eq eq where where where"),
    *_rows(Role.ARITHMETIC, "addcmul", "mul mul add"),
    *_rows(Role.ARITHMETIC, "threshold", "le where"),
    *_rows(Role.ARITHMETIC, "hardshrink", "abs le where"),
    *_rows(Role.ARITHMETIC, "softshrink", "abs gt sign mul mul sub where"),
    *_rows(Role.ARITHMETIC, "isin", "eq reduce_max gt"),
    *_rows(Role.ARITHMETIC, "lerp", "abs ge where where sub sub mul add"),
    # elementwise functions
    *_rows(Role.FUNCTION, "silu", "silu", direct=True, parts="sigmoid mul", capture=_WHOLE),
    *_rows(Role.FUNCTION, "relu", "relu", direct=True, capture=_WHOLE),
    *_rows(Role.FUNCTION, "hardtanh relu6", "max min"),
    *_rows(Role.FUNCTION, "leaky_relu prelu _prelu_kernel", "gt mul where"),
    *_rows(Role.FUNCTION, "hardsigmoid", "add max min div"),
    *_rows(Role.FUNCTION, "hardswish", "add max min mul div"),
    *_rows(Role.FUNCTION, "true_divide divide", "div", word="div"),
    *_rows(Role.FUNCTION, "reciprocal", "div"),
    *_rows(Role.FUNCTION, "addcdiv", "div mul add"),
    *_rows(Role.ARITHMETIC, "fmod", "mod lt lt ne ne logical_and sub where"),
    *_rows(Role.FUNCTION, "pow float_power", "pow"),
    *_rows(Role.FUNCTION, "log10", "log2 mul"),
    *_rows(Role.FUNCTION, "ldexp", "exp2 mul"),
    *_rows(Role.FUNCTION, "frexp", number=54),
    *_rows(Role.FUNCTION, "xlogy special_xlogy", "log mul eq where isnan sub where"),
    *_rows(Role.FUNCTION, "special_xlog1py", "log1p mul eq where isnan sub where"),
    *_rows(Role.FUNCTION, "special_entr", "log mul neg eq where gt where isnan where"),
    *_rows(Role.FUNCTION, "logaddexp", number=35),
    *_rows(Role.FUNCTION, "logaddexp2", number=33),
    *_rows(Role.FUNCTION, "logit", "lt where gt where sub div log"),
    *_rows(Role.FUNCTION, "sinc special_sinc", "mul sin div eq where"),
    *_rows(Role.FUNCTION, "tanh", "tanh"),
    *_rows(Role.FUNCTION, "gelu", "gelu", capture=_WHOLE, overloads="default"),
    *_rows(Role.FUNCTION, "softplus", "softplus gt where", capture=_WHOLE, overloads="default"),
    *_rows(Role.FUNCTION, "elu selu", "expm1 mul mul mul gt where"),
    *_rows(Role.FUNCTION, "celu", "expm1 gt where"),
    *_rows(Role.FUNCTION, "mish", "exp min mul mul add add div"),
    *_rows(Role.FUNCTION, "log_sigmoid log_sigmoid_forward", "neg abs exp log1p min sub"),
    *_rows(Role.FUNCTION, "glu", "sigmoid mul"),
    *_rows(Role.FUNCTION, "special_ndtr", "erf mul add mul"),
    *_rows(Role.FUNCTION, "special_log_ndtr", number=180),
    *_rows(Role.FUNCTION, "erfinv", number=146),
    *_rows(Role.FUNCTION, "special_ndtri", number=151),
    *_rows(Role.FUNCTION, "special_erfcx", number=108),
    *_rows(Role.FUNCTION, "digamma", number=184),
    *_rows(Role.FUNCTION, "polygamma", number=101),
    *_rows(Role.FUNCTION, "mvlgamma", "lgamma add reduce_sum"),
    *_rows(Role.FUNCTION, "lcm", number=84),
    *_rows(Role.FUNCTION, "i0 special_modified_bessel_i0", number=137),
    *_rows(Role.FUNCTION, "special_i0e", number=124),
    *_rows(Role.FUNCTION, "special_i1 special_modified_bessel_i1", number=279),
    *_rows(Role.FUNCTION, "special_i1e", number=128),
    *_rows(Role.FUNCTION, "special_modified_bessel_k0", number=202),
    *_rows(Role.FUNCTION, "special_modified_bessel_k1", number=210),
    *_rows(Role.FUNCTION, "special_scaled_modified_bessel_k0", number=201),
    *_rows(Role.FUNCTION, "special_scaled_modified_bessel_k1", number=209),
    *_rows(Role.FUNCTION, "special_bessel_j0", number=190),
    *_rows(Role.FUNCTION, "special_bessel_j1", number=195),
    *_rows(Role.FUNCTION, "special_bessel_y0", number=251),
    *_rows(Role.FUNCTION, "special_bessel_y1", number=260),
    *_rows(Role.FUNCTION, "special_spherical_bessel_j0", "sin div eq where"),
    # products: torch counts their FLOPs; one that it does not count has one product and one sum for each result
    *_rows(Role.PRODUCT, "mm bmm matmul mv dot vdot linear baddbmm einsum _int_mm", word="product", structural=True, number=2),
    *_rows(Role.PRODUCT, "addmm", word="product", apart_in_backward=True, structural=True, number=2),
    *_rows(Role.PRODUCT, "addmv", word="product", capture=_APART, overloads="default", structural=True, number=2),
    *_rows(Role.PRODUCT, "addbmm _scaled_mm _addmm_activation bilinear _trilinear tensordot inner outer addr ger chain_matmul", number=2),
    *_rows(Role.PRODUCT, "linalg_matmul linalg_vecdot linalg_multi_dot _grouped_mm _scaled_grouped_mm", number=2),
    *_rows(Role.CONVOLUTION, "conv1d conv2d conv3d", word="convolution", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.CONVOLUTION, "convolution _convolution", word="convolution", structural=True),
    *_rows(Role.CONVOLUTION, "conv_transpose1d conv_transpose2d conv_transpose3d", word="transposed_convolution", structural=True),
    *_rows(Role.CONVOLUTION, "convolution_overrideable _conv_depthwise2d conv_depthwise3d conv_tbc thnn_conv2d _convolution_mode"),
    *_rows(Role.CONVOLUTION, "cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu cudnn_convolution_transpose mkldnn_convolution"),
    *_rows(Role.CONVOLUTION, "_slow_conv2d_forward slow_conv2d slow_conv3d slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d"),
    *_rows(Role.CONVOLUTION, "miopen_convolution miopen_convolution_transpose miopen_depthwise_convolution _nnpack_spatial_convolution"),
    *_rows(Role.ATTENTION, "scaled_dot_product_attention", word="attention", parts="product softmax product", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.ATTENTION, "_scaled_dot_product_flash_attention", word="attention", structural=True),
    *_rows(Role.ATTENTION, "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math"),
    *_rows(Role.ATTENTION, "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable"),
    *_rows(Role.ATTENTION, "_flash_attention_forward _efficient_attention_forward _cudnn_attention_forward _native_multi_head_attention"),
    *_rows(Role.RECURRENT, "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"),
    # softmax and norms
    *_rows(Role.SOFTMAX, "softmax", "softmax", per=_IN, along_axis=True, parts="max sub exp sum div", capture=_WHOLE, overloads="int", structural=True),
    *_rows(Role.SOFTMAX, "log_softmax", "softmax", per=_IN, along_axis=True, parts="max sub exp sum log", capture=_WHOLE, overloads="int", structural=True),
    *_rows(Role.SOFTMAX, "_softmax _safe_softmax", "softmax", per=_IN, word="softmax", along_axis=True, apart_in_backward=True, structural=True),
    *_rows(Role.SOFTMAX, "_log_softmax", "softmax", per=_IN, word="log_softmax", along_axis=True, apart_in_backward=True, structural=True),
    *_rows(Role.SOFTMAX, "special_softmax special_log_softmax _masked_softmax", "softmax", per=_IN),
    *_rows(Role.SOFTMAX, "logsumexp special_logsumexp", "reduce_max sub exp reduce_sum", per=_IN, word="logsumexp", along_axis=True, parts="max sub exp sum log", structural=True),
    *_rows(Role.NORM, "layer_norm", "reduce_sum sub mul reduce_sum mul mul add", per=_IN, parts="mean sub var rsqrt mul add", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.NORM, "native_layer_norm", "reduce_sum sub mul reduce_sum mul mul add", per=_IN, word="layer_norm", structural=True),
    *_rows(Role.NORM, "group_norm", "reduce_sum sub mul reduce_sum mul", per=_IN, parts="mean sub var rsqrt mul add", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.NORM, "native_group_norm", "reduce_sum sub mul reduce_sum mul", per=_IN, word="group_norm", structural=True),
    *_rows(Role.NORM, "instance_norm", "reduce_sum sub mul reduce_sum mul", per=_IN, parts="mean sub var rsqrt", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.NORM, "rms_norm", "mul reduce_sum mul mul", per=_IN, parts="pow mean rsqrt mul", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.NORM, "_fused_rms_norm", "mul reduce_sum mul mul", per=_IN, word="rms_norm", apart_in_backward=True, structural=True),
    *_rows(Role.NORM, "batch_norm", "mul add", per=_IN, parts="sub rsqrt mul add", capture=_WHOLE, overloads="default", structural=True),
    *_rows(Role.NORM, "native_batch_norm _native_batch_norm_legit_no_training", "mul add", per=_IN, word="batch_norm", structural=True),
    *_rows(Role.NORM, "_native_batch_norm_legit", "reduce_sum sub mul reduce_sum mul", per=_IN, word="batch_norm", capture=_APART, overloads="default no_stats", structural=True),
    *_rows(Role.NORM, "_native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_with_update_functional", "reduce_sum sub mul reduce_sum mul", per=_IN),
    *_rows(Role.NORM, "_batch_norm_no_update _batch_norm_impl_index cudnn_batch_norm miopen_batch_norm", "mul add", per=_IN),
    *_rows(Role.NORM, "renorm norm_except_dim _weight_norm", "mul reduce_sum mul", per=_IN),
    # reductions
    *_rows(Role.REDUCE, "amax", "reduce_max", per=_IN, direct=True, word="max", along_axis=True, structural=True),
    *_rows(Role.REDUCE, "amin", "reduce_min", per=_IN, direct=True, word="min", along_axis=True, structural=True),
    *_rows(Role.REDUCE, "max", "reduce_max", per=_IN, along_axis=True, structural=True),
    *_rows(Role.REDUCE, "min", "reduce_min", per=_IN, along_axis=True, structural=True),
    *_rows(Role.REDUCE, "all", "reduce_any", per=_IN, along_axis=True, structural=True),
    *_rows(Role.REDUCE, "aminmax _aminmax", "reduce_min reduce_max", per=_IN),
    *_rows(Role.REDUCE, "var var_mean", "reduce_sum sub mul reduce_sum", per=_IN, word="var", along_axis=True, parts="mean sub pow", structural=True),
    *_rows(Role.REDUCE, "std std_mean", "reduce_sum sub mul reduce_sum", per=_IN, word="std", along_axis=True, structural=True),
    *_rows(Role.REDUCE, "linalg_vector_norm", "mul reduce_sum", per=_IN, along_axis=True, parts="pow sum sqrt", structural=True),
    *_rows(Role.REDUCE, "norm", "mul reduce_sum", per=_IN, along_axis=True, structural=True),
    *_rows(Role.REDUCE, "frobenius_norm linalg_norm linalg_matrix_norm", "mul reduce_sum", per=_IN),
    *_rows(Role.REDUCE, "dist", "sub mul reduce_sum", per=_IN, capture=_APART, overloads="default"),
    *_rows(Role.REDUCE, "count_nonzero", "ne reduce_sum", per=_IN),
    *_rows(Role.REDUCE, "nansum nanmean", "isnan where reduce_sum", per=_IN),
    *_rows(Role.REDUCE, "trace"),
    # scans and order
    *_rows(Role.SCAN, "logcumsumexp _logcumsumexp", "exp cumsum", per=_IN, word="logcumsumexp", structural=True),
    *_rows(Role.SCAN, "associative_scan scan cumulative_trapezoid"),
    *_rows(Role.ORDER, "sort", "sort", per=_IN, along_axis=True, structural=True),
    *_rows(Role.ORDER, "topk", "topk", per=_IN, along_axis=True, structural=True),
    *_rows(Role.ORDER, "argsort", "sort", per=_IN, structural=True),
    *_rows(Role.ORDER, "msort", "sort", per=_IN),
    # choosing one element takes fewer comparisons than sorting: at least one for each element
    *_rows(Role.ORDER, "kthvalue median", "gt", per=_IN, structural=True),
    *_rows(Role.ORDER, "nanmedian mode quantile nanquantile", "gt", per=_IN),
    # elements by index
    *_rows(Role.GATHER, "index _unsafe_index", word="index", structural=True),
    *_rows(Role.GATHER, "gather index_select embedding take_along_dim", structural=True),
    *_rows(Role.GATHER, "take masked_select bucketize searchsorted"),
    *_rows(Role.GATHER, "embedding_bag _embedding_bag _embedding_bag_forward_only", "add"),
    *_rows(Role.SCATTER, "scatter index_put index_copy", structural=True),
    *_rows(Role.SCATTER, "_unsafe_index_put index_fill put masked_scatter diagonal_scatter _index_put_impl"),
    *_rows(Role.SCATTER, "scatter_add index_add scatter_reduce", "add", per=_IN, structural=True),
    *_rows(Role.SCATTER, "index_reduce segment_reduce", "add", per=_IN),
    # windows
    *_rows(Role.POOL, "max_pool1d max_pool1d_with_indices", "max", per=_IN, word="max_pool1d", structural=True),
    *_rows(Role.POOL, "max_pool2d max_pool2d_with_indices", "max", per=_IN, word="max_pool2d", structural=True),
    *_rows(Role.POOL, "max_pool3d max_pool3d_with_indices", "max", per=_IN, word="max_pool3d", structural=True),
    *_rows(Role.POOL, "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", "add", per=_IN, structural=True),
    *_rows(Role.POOL, "_adaptive_avg_pool3d", "add", per=_IN),
    *_rows(Role.POOL, "_adaptive_avg_pool2d", "add", per=_IN, word="adaptive_avg_pool2d", structural=True, capture=_APART, overloads="default"),
    *_rows(Role.POOL, "adaptive_max_pool1d adaptive_max_pool2d", "max", per=_IN, structural=True),
    *_rows(Role.POOL, "fractional_max_pool2d fractional_max_pool3d", "max", per=_IN),
    *_rows(Role.POOL, "adaptive_max_pool3d", "max", per=_IN, structural=True, capture=_APART, overloads="default"),
    *_rows(Role.POOL, "mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool1d quantized_max_pool2d", "max", per=_IN),
    *_rows(Role.GRADIENT, "max_pool2d_with_indices_backward max_pool3d_with_indices_backward", "add", number=4, structural=True, capture=_APART, overloads="default"),
    # losses
    *_rows(Role.LOSS, "mse_loss", "sub mul reduce_sum", per=_IN, apart_in_backward=True),
    *_rows(Role.LOSS, "l1_loss", "sub abs reduce_sum", per=_IN),
    *_rows(Role.LOSS, "smooth_l1_loss", "sub abs lt mul mul div sub where reduce_sum", per=_IN),
    *_rows(Role.LOSS, "huber_loss", "sub abs lt mul mul mul sub where reduce_sum", per=_IN),
    *_rows(Role.LOSS, "soft_margin_loss", "neg mul exp log1p reduce_sum", per=_IN),
    *_rows(Role.LOSS, "binary_cross_entropy", "log max mul neg log1p max sub mul sub reduce_sum", per=_IN),
    *_rows(Role.LOSS, "binary_cross_entropy_with_logits", "sub mul neg abs exp log1p min sub sub reduce_sum", per=_IN),
    *_rows(Role.LOSS, "nll_loss_forward", apart_in_backward=True),
    *_rows(Role.LOSS, "nll_loss nll_loss_nd nll_loss2d nll_loss2d_forward"),
    *_rows(Role.LOSS, "cross_entropy_loss kl_div poisson_nll_loss cosine_embedding_loss hinge_embedding_loss margin_ranking_loss", "sub mul reduce_sum", per=_IN),
    *_rows(Role.LOSS, "triplet_margin_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward", "sub max reduce_sum", per=_IN),
    *_rows(Role.LOSS, "ctc_loss _ctc_loss _cudnn_ctc_loss", "exp exp exp add add log", per=_IN),
    # views
    *_views(Role.RESHAPE, "view unsqueeze squeeze expand expand_as unflatten view_as _reshape_alias broadcast_to _unsafe_view atleast_1d atleast_2d atleast_3d"),
    *_rows(Role.RESHAPE, "reshape flatten", copies=Copies.MAYBE),
    *_rows(Role.RESHAPE, "reshape_as ravel", copies=Copies.MAYBE),
    *_views(Role.TURN, "transpose t permute swapaxes movedim numpy_T", word="transpose", structural=True),
    *_views(Role.TURN, "swapdims moveaxis mT mH adjoint matrix_H"),
    *_views(Role.PART, "slice select split_with_sizes", structural=True),
    *_views(Role.PART, "split unbind chunk narrow diagonal unfold as_strided tensor_split unsafe_split unsafe_chunk hsplit vsplit dsplit"),
    *_views(Role.PART, "linalg_diagonal real imag view_as_real view_as_complex"),
    *_views(Role.SAME, "alias lift_fresh lift_fresh_copy resolve_conj resolve_neg positive"),
    *_views(Role.SAME, "detach", apart_in_backward=True),
    *_rows(Role.SAME, "contiguous", copies=Copies.MAYBE),
    *_rows(Role.SAME, "clone"),
    *_rows(Role.CAST, "_to_copy to type_as"),
    # moves
    *_rows(Role.MOVE, "cat stack roll constant_pad_nd", structural=True),
    *_rows(Role.MOVE, "flip", structural=True, along_axis=True),
    *_rows(Role.MOVE, "pad concat concatenate hstack vstack dstack column_stack row_stack block_diag"),
    *_rows(Role.MOVE, "repeat repeat_interleave tile rot90 fliplr flipud pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle"),
    *_rows(Role.MOVE, "slice_scatter select_scatter as_strided_scatter tril triu diag diagflat diag_embed meshgrid cartesian_prod combinations"),
    *_rows(Role.MOVE, "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d _pad_circular _pad_enum"),
    *_rows(Role.MOVE, "copy"),
    # tensors without operands
    *_rows(Role.FILL, "full full_like scalar_tensor zeros zeros_like ones ones_like fill new_zeros new_ones new_full zero arange linspace logspace eye one_hot"),
    *_rows(Role.FILL, "tril_indices triu_indices", capture=_APART, overloads="default"),
    *_rows(Role.EMPTY, "empty empty_like empty_permuted empty_strided new_empty new_empty_strided"),
    *_rows(Role.RANDOM, "rand rand_like randn randn_like randint randint_like randperm random bernoulli multinomial normal normal_functional uniform"),
    *_rows(Role.RANDOM, "exponential cauchy geometric log_normal poisson binomial rrelu rrelu_with_noise rrelu_with_noise_functional _standard_gamma _sample_dirichlet"),
    *_rows(Role.RANDOM, "dropout alpha_dropout feature_dropout feature_alpha_dropout _fused_dropout"),
    *_rows(Role.RANDOM, "native_dropout", apart_in_backward=True),
    # operations without a tensor as result
    *_rows(Role.READ, "item _local_scalar_dense is_nonzero equal allclose"),
    *_rows(Role.QUERY, "_assert_tensor_metadata _assert_async _functional_assert_async _linalg_check_errors _assert_scalar sym_size sym_stride sym_numel sym_storage_offset sym_is_contiguous"),
    *_rows(Role.QUERY, "sym_constrain_range sym_constrain_range_for_size device size is_same_size record_stream"),
    # whole algorithms
    *_rows(Role.RESAMPLE, "upsample_nearest1d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"),
    *_rows(Role.RESAMPLE, "upsample_nearest2d", capture=_APART, overloads="vec"),
    *_rows(Role.RESAMPLE, "upsample_linear1d", number=3),
    *_rows(Role.RESAMPLE, "upsample_bilinear2d", number=7, capture=_APART, overloads="default vec"),
    *_rows(Role.RESAMPLE, "upsample_trilinear3d", number=15, capture=_APART, overloads="default"),
    *_rows(Role.RESAMPLE, "upsample_bicubic2d", number=31),
    *_rows(Role.RESAMPLE, "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa", number=7),
    *_rows(Role.RESAMPLE, "grid_sampler_2d", number=7, capture=_APART, overloads="default"),
    *_rows(Role.RESAMPLE, "grid_sampler grid_sampler_3d cudnn_grid_sampler affine_grid_generator cudnn_affine_grid_generator", number=7),
    *_rows(Role.SPECTRUM, "stft istft _fft_c2c _fft_c2r _fft_r2c fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2", number=1),
    *_rows(Role.SPECTRUM, "fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfft2 fft_ihfft2 fft_hfftn fft_ihfftn fft_fftfreq fft_rfftfreq fft_fftshift fft_ifftshift", number=1),
    *_rows(Role.LINALG, "cholesky cholesky_inverse cholesky_solve svd qr inverse det slogdet logdet pinverse lu_solve lu_unpack triangular_solve matrix_exp matrix_power", number=1),
    *_rows(Role.LINALG, "linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross linalg_det linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh", number=1),
    *_rows(Role.LINALG, "linalg_householder_product linalg_inv linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu", number=1),
    *_rows(Role.LINALG, "linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_matrix_power linalg_matrix_rank linalg_pinv linalg_qr", number=1),
    *_rows(Role.LINALG, "linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve", number=1),
    *_rows(Role.LINALG, "linalg_vander linalg__powsum _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd", number=1),
    *_rows(Role.DYNAMIC, "nonzero nonzero_numpy nonzero_static argwhere unique_dim unique_consecutive unique_dim_consecutive _unique _unique2"),
    *_rows(Role.ALGORITHM, "cdist _cdist_forward _pdist_forward pdist pairwise_distance", "sub mul add"),
    *_rows(Role.ALGORITHM, "histc histogram bincount", "add", per=_IN),
    *_rows(Role.ALGORITHM, "col2im", "add", per=_IN),
    *_rows(Role.ALGORITHM, "im2col"),
    # steps of a backward that torch decomposes into operations with a rule
    *_rows(
        Role.GRADIENT, "native_layer_norm_backward _softmax_backward_data _log_softmax_backward_data gelu_backward silu_backward sigmoid_backward "
        "tanh_backward threshold_backward nll_loss_backward _fused_rms_norm_backward native_group_norm_backward elu_backward hardtanh_backward "
        "leaky_relu_backward softplus_backward mse_loss_backward slice_backward select_backward hardswish_backward logit_backward",
        number=1, apart_in_backward=True,
    ),
)  # fmt: skip
