"""One-liners over torch's public API beyond the common operations: what else practitioners write.

    python -m tests.designer.api_cases [--only WORD] [--part I/N] [--run]

designs each by rules, runs it in the gate and lowers it, and prints one row each: ``right`` (own launches alone),
``library`` (right with a call of the framework), ``refused`` with the sentence, ``wrong`` or ``broken``. ``--run``
compiles the C++ kernel too and compares it with eager.
"""

# ruff: noqa: E501 - a table: one case a line
from __future__ import annotations

import ast
from functools import lru_cache

from kernellab.task import Task, load_task

#: what the names in an expression are
GIVEN = {
    **dict.fromkeys(("x", "y", "z"), "torch.randn(5, 9)"),
    **dict.fromkeys(("p", "p2"), "torch.rand(5, 9) + 0.1"),
    "u": "torch.rand(5, 9) * 1.8 - 0.9",
    **dict.fromkeys(("i", "j"), "torch.randint(-20, 20, (5, 9))"),
    **dict.fromkeys(("n", "m"), "torch.randint(1, 256, (5, 9), dtype=torch.int32)"),
    "i8": "torch.randint(-128, 128, (5, 9), dtype=torch.int8)",
    "u8": "torch.randint(0, 256, (5, 9), dtype=torch.uint8)",
    **dict.fromkeys(("b", "c"), "torch.randn(5, 9) > 0"),
    "h": "torch.randn(5, 9).half()",
    "g": "torch.randn(5, 9).bfloat16()",
    "d": "torch.randn(5, 9).double()",
    "v": "torch.randn(9)",
    "r": "torch.randn(5)",
    "t": "torch.randint(0, 9, (5,))",
    "at": "torch.randint(0, 9, (5, 4))",
    "rows": "torch.randint(0, 5, (7,))",
    "w": "torch.randn(7, 9)",
    "A": "torch.randn(3, 5, 7)",
    "B": "torch.randn(3, 7, 4)",
    "S": "torch.randn(3, 6, 6)",
    "q": "torch.randn(1, 4, 6, 8)",
    "k": "torch.randn(1, 4, 6, 8)",
    "one": "torch.randn(2, 4, 9)",
    "im": "torch.randn(2, 4, 8, 8)",
    "vol": "torch.randn(1, 2, 4, 6, 6)",
    "e": "torch.randn(4, 6, 8)",
}

#: group -> expressions, one a line; their names are the inputs
LINES = {
    "unary": """
        torch.special.expit(x)
        torch.normal(x, 1.0)
        torch.special.log_ndtr(x)
        torch.special.ndtr(x)
        torch.special.entr(p)
        torch.special.erfcx(x)
        torch.special.xlog1py(x, p)
        torch.special.zeta(p + 1.5, p2)
        torch.special.bessel_j0(x)
        torch.special.bessel_j1(x)
        torch.special.bessel_y0(p)
        torch.special.modified_bessel_i0(x)
        torch.special.modified_bessel_k0(p)
        torch.special.spherical_bessel_j0(x)
        torch.special.exp2(x)
        torch.special.expm1(x)
        torch.special.i0e(x)
        torch.special.i1(x)
        torch.special.logit(u.abs())
        torch.special.psi(p)
        torch.special.round(x, decimals=2)
        torch.special.sinc(x)
        torch.special.softmax(x, 0)
        torch.special.multigammaln(p + 3, 2)
        torch.polygamma(1, p)
        torch.mvlgamma(p + 3, 2)
        torch.round(x * 100, decimals=-1)
        torch.nan_to_num(x / 0, nan=1.0, posinf=9.0, neginf=-9.0)
        torch.sgn(x)
        torch.absolute(x)
        torch.negative(x)
        torch.positive(x)
        torch.exp(d)
        torch.sin(h)
        torch.rsqrt(g.abs() + 1)
        torch.log_softmax(h, -1)
        torch.isposinf(x / 0)
        torch.isneginf(x / 0)
        torch.isreal(x)
        torch.logical_not(i)
        torch.bitwise_not(b)
        torch.neg(i)
        torch.abs(i8)
        torch.sign(i)
        torch.sqrt(i.abs())
        torch.sigmoid(n)
        torch.exp(b)
        torch.reciprocal(i + 100)
        torch.frexp(x)[0]
        torch.deg2rad(i)
        torch.square(i8)
        torch.trunc(-x * 3)
        torch.fix(x * 3)
        torch.angle(x)
        torch.conj_physical(x)
        torch.clip(x, max=0.3)
        torch.clamp(x, y - 1, y + 1)
        torch.clamp_min(i, 3)
        torch.threshold(x, 0.1, -1.0)
        torch.nan_to_num(h)
        torch.erfinv(u)
        torch.logit(p / 2, eps=1e-3)
    """,
    "binary": """
        x / 3
        3 / p
        x ** 3
        2 ** x
        x.abs() ** 0.3
        i ** 2
        p ** i.float()
        x // 0.3
        x % 0.3
        -x % 1.5
        i % 7
        i // 7
        i // -7
        i / 7
        torch.remainder(i, j.abs() + 1)
        torch.remainder(x, -p)
        torch.fmod(x, p)
        torch.fmod(i, 7)
        torch.fmod(i, -(j.abs() + 1))
        torch.div(x, p, rounding_mode='trunc')
        torch.div(i, 4, rounding_mode='floor')
        torch.div(i, 4, rounding_mode='trunc')
        torch.true_divide(i, j.abs() + 1)
        torch.sub(x, y, alpha=2.5)
        torch.rsub(x, y)
        torch.add(i, j, alpha=3)
        torch.float_power(p, y)
        torch.ldexp(x, i.clamp(-4, 4))
        torch.logaddexp2(x, y)
        torch.lcm(n, m)
        torch.gcd(i, j)
        torch.nextafter(x, y)
        torch.xlogy(i.abs().float(), p)
        torch.maximum(i, j)
        torch.fmin(h, h * 2)
        torch.minimum(h, h.flip(1))
        torch.isclose(x, x + 1e-9)
        torch.ne(x, 0)
        torch.greater(x, i)
        torch.logical_xor(b, c)
        torch.where(b, x, 0.0)
        torch.where(b, i, x)
        torch.dist(x, y)
        torch.hypot(x, y)
        torch.atan2(x, i)
        torch.copysign(x, -1.0)
        torch.heaviside(x, v)
        torch.addcdiv(x, y, p, value=0.3)
        torch.lerp(x, y, p)
        torch.complex(x, y).abs()
        torch.polar(p, x).real
        torch.bitwise_left_shift(n, 3)
        torch.bitwise_right_shift(i, 2)
        h * x
        h + g
        x + d
        i8 + 100
        u8 * 2
        u8 + i8
        u8 - 200
        b + c
        b * x
        b & ~c
        b ^ c
        i & 0xF
        (u8 >> 4).to(torch.int8) - 8
        i8.float() * 0.03
        (x * 20).to(torch.int8)
        (p * 300).clamp(0, 255).to(torch.uint8)
        x.to(torch.float16).float() - x
        x.bfloat16() * 2
        x.long() + 1
        x.to(torch.float8_e4m3fn).float()
        x.type_as(h)
        x.bool()
        x * i
    """,
    "reduction": """
        x.sum(dtype=torch.float64)
        i.sum(1)
        b.sum(0)
        x.mean((0, 1), keepdim=True)
        h.mean(-1)
        i.prod(1).clamp(-100, 100)
        i8.amax(0)
        x.min(0).values
        x.max()
        x.min(1)
        torch.var_mean(x, 1)
        torch.std_mean(x, 0)
        x.var(1, correction=0)
        x.std(unbiased=False)
        x.norm()
        x.norm(1, dim=0)
        x.norm(float('inf'), dim=1)
        x.norm(3, 1)
        torch.linalg.norm(x)
        torch.linalg.vector_norm(x, 4, dim=0)
        torch.linalg.matrix_norm(S)
        torch.nanmedian(x, 1).values
        x.median()
        torch.mode(i % 3, 1).values
        torch.quantile(x, torch.tensor([0.25, 0.5]), dim=1)
        torch.nanquantile(x, 0.5, dim=1)
        torch.logsumexp(A, (1, 2))
        torch.softmax(A, 1)
        F.softmin(x, 1)
        F.normalize(x, dim=1)
        F.normalize(x, p=1, dim=0)
        F.log_softmax(x / 0.7, 1)
        torch.argmax(x)
        torch.argmin(i, 1, keepdim=True)
        b.any()
        b.all(1, keepdim=True)
        torch.count_nonzero(i)
        torch.aminmax(x)
        torch.cov(x)
        torch.corrcoef(x)
        torch.trace(S[0])
        torch.bincount(t, minlength=9)
        torch.bincount(t, weights=r, minlength=9)
        torch.diff(x, n=2, dim=1)
        torch.cumulative_trapezoid(x, dim=1)
        x.cumsum(0)
        i.cumsum(1)
        x.flip(1).cumsum(1).flip(1)
        x.cumprod(1)
        x.cummin(1)
        torch.logcumsumexp(x, 0)
        torch.renorm(x, 2, 0, 1.0)
        torch.nansum(torch.where(b, x, torch.nan), 1)
        torch.gradient(x, dim=1)[0]
        x.square().sum(-1, keepdim=True).sqrt()
    """,
    "order": """
        x.sort(0).values
        x.sort(1, descending=True).values
        i.sort(1).values
        x.argsort(stable=True, dim=0)
        x.topk(2, 0).values
        x.topk(3, 1, largest=False).values
        x.kthvalue(2, 0).values
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))
        torch.searchsorted(v.sort().values, x)
        torch.isin(i, torch.tensor([1, 3, 5]))
        torch.msort(x)
        x.sort(1).indices.sort(1).indices
    """,
    "movement": """
        x.T.contiguous()
        x.mT
        A.swapaxes(0, 2)
        A.movedim(0, -1)
        A.permute(2, 0, 1).reshape(7, -1)
        A.reshape(15, 7).T
        A.flatten(1)
        A.ravel()
        x.unsqueeze(1).expand(5, 3, 9)
        x.expand(2, -1, -1).sum(0)
        x.repeat(2, 3)
        x.repeat_interleave(2, 0)
        x.repeat_interleave(2)
        torch.tile(v, (3, 1))
        torch.broadcast_to(v, (4, 9)) + 1
        x[1:4, ::2]
        x[:, -3:]
        x[..., None] * v
        x[::2] + x[1::2].mean(0)
        x[:, [0, 3, 5]]
        x[t % 5]
        x[torch.arange(5), t]
        x[:, t]
        x[(x > 0).long()]
        x[-1]
        torch.chunk(x, 3, 1)[1]
        torch.split(x, [2, 3], 0)[1]
        torch.tensor_split(x, 4, 1)[2]
        x.unbind(0)[2]
        torch.hsplit(A, [2])[0]
        torch.cat((x, y, x), 0)
        torch.cat((x, i), 1)
        torch.cat((h, h * 2), 1)
        torch.stack((x, y), -1).flatten(1)
        torch.hstack((x, y))
        torch.vstack((v, v * 2))
        torch.dstack((x, y))
        torch.column_stack((x, r))
        torch.roll(x, 3)
        torch.roll(x, -1, 0)
        torch.rot90(A, 1, (1, 2))
        torch.fliplr(x)
        torch.flipud(x)
        torch.tril(S, -1)
        torch.triu(S, 2)
        torch.diag(v)
        torch.diagonal(S, 1, 1, 2)
        torch.diag_embed(v.expand(2, 9), 1)
        torch.block_diag(x, v)
        torch.cartesian_prod(v, r)
        torch.combinations(v)
        torch.meshgrid(v, r, indexing='xy')[0]
        torch.take_along_dim(x, at, 1)
        torch.gather(x, 1, at)
        torch.index_select(x, 0, rows)
        torch.index_add(x, 0, rows, w)
        torch.index_copy(x, 0, torch.tensor([2, 0]), w[:2])
        torch.index_fill(x, 1, torch.tensor([1, 4]), -1.0)
        x.index_put((rows,), w, accumulate=True)
        x.scatter(1, t.unsqueeze(1), 7.0)
        x.scatter_add(1, at, torch.ones_like(at, dtype=x.dtype))
        x.scatter_reduce(1, at, w[:5, :4], 'amin', include_self=False)
        x.scatter_reduce(1, at, w[:5, :4], 'prod')
        torch.select_scatter(x, v, 0, 2)
        torch.slice_scatter(x, y[:2], 0, 1, 3)
        torch.diagonal_scatter(S[0], v[:6])
        torch.masked_fill(x, b, float('-inf'))
        torch.where(torch.ones_like(x).tril().bool(), x, -1e9)
        torch.masked_scatter(x, b, y)
        torch.put(x, rows, v[:7], accumulate=True)
        x.unfold(1, 3, 2)
        x.as_strided((3, 3), (9, 1), 4)
        x.view(torch.int32)
        h.view(torch.int16)
        n.view(torch.float32)
        F.one_hot(t, 9)
        F.pad(x, (1, 2, 3, 0))
        F.pad(x, (-1, -2))
        F.pad(one, (3, 2), mode='reflect')
        F.pad(im, (1, 2, 2, 1), mode='reflect')
        F.pad(vol, (1, 1, 1, 1, 1, 1), mode='replicate')
        F.pad(im, (1, 1), value=float('-inf'))
        torch.narrow(x, 1, 2, 4)
        torch.unflatten(x, 1, (3, 3)).transpose(1, 2).reshape(5, 9)
        torch.arange(9) * x
        torch.linspace(0, 1, 9) * x
        torch.logspace(0, 1, 9) * x
        torch.eye(5, 9) * x
        torch.full_like(x, 2.5) - x
        torch.zeros(5, 9).copy_(x)
        torch.tril_indices(5, 5).sum() + x
        torch.vander(v, 3)
        torch.atleast_3d(x) * 2
        x.new_ones(5, 1) + x
    """,
    "product": """
        x @ w.T
        v @ w.T
        w @ v
        v.dot(v * 2)
        torch.inner(x, w)
        torch.outer(v, r)
        torch.matmul(A, B)
        torch.matmul(A, B[0])
        torch.matmul(A[0], B)
        torch.einsum('bij,bjk->bik', A, B)
        torch.einsum('bij,bjk->ik', A, B)
        torch.einsum('bii->b', S)
        torch.einsum('bij,bij->b', S, S)
        torch.einsum('i,j,k->ijk', v, r, r)
        torch.einsum('bhqd,bhkd->bhqk', q, k)
        torch.tensordot(A, B, dims=([0, 2], [0, 1]))
        torch.chain_matmul(x, w.T, w)
        torch.linalg.multi_dot((x, w.T, w))
        torch.linalg.matrix_power(S, 3)
        torch.addbmm(x[:, :4], A, B)
        torch.addr(x, r, v)
        torch.addmm(x[:, :7], x, w.T, beta=0.5, alpha=2.0)
        torch.kron(v, r)
        torch.linalg.cross(S[0, :, :3], S[1, :, :3])
        torch.linalg.vecdot(x, y)
        torch.vdot(v, v)
        torch.cdist(x, w)
        torch.cdist(x, w, p=1.0)
        F.pairwise_distance(x, y)
        F.pdist(x)
        F.linear(h, h[:3])
        F.linear(g, g[:3], g[:3, 0])
        F.bilinear(x, y, torch.ones(2, 9, 9))
        x @ x.T / 3 + torch.eye(5)
        F.scaled_dot_product_attention(q, k, q)
        F.scaled_dot_product_attention(q, k, q, attn_mask=torch.ones(6, 6).tril().bool())
        F.scaled_dot_product_attention(q, k[:, :2], q[:, :2], enable_gqa=True)
        F.scaled_dot_product_attention(q, k, q, is_causal=True, scale=0.2)
        (i8.int() @ i8.int().T).float()
        torch.baddbmm(S, S, S, beta=0.0)
    """,
    "activation": """
        F.gelu(x, approximate='tanh')
        F.silu(h)
        F.elu(x, 0.5)
        F.celu(x, 1.5)
        F.selu(g)
        F.softplus(x, beta=2.0, threshold=5.0)
        F.hardtanh(x, -0.3, 0.4)
        F.hardtanh(x * 2, 0.0, 1.0)
        F.relu6(x * 10)
        F.rrelu(x)
        F.rrelu(x, training=True)
        F.leaky_relu(x, 0.2)
        F.prelu(x, v)
        F.hardshrink(x, 0.3)
        F.softshrink(x, 0.3)
        F.logsigmoid(x)
        F.glu(e, 1)
        F.mish(h)
        F.tanhshrink(x)
        F.silu(x) * y
        F.gelu(x[:, :4]) * x[:, 4:8]
        F.relu(x).square()
        F.dropout(x, 0.5, training=False)
        F.alpha_dropout(x, 0.5, training=False)
    """,
    "norm_pool": """
        F.layer_norm(x, (9,))
        F.layer_norm(A, (5, 7))
        F.rms_norm(h, (9,))
        F.group_norm(im, 2)
        F.group_norm(one, 4)
        F.instance_norm(one)
        F.batch_norm(im, torch.zeros(4), torch.ones(4))
        F.batch_norm(x, v, v.abs() + 1)
        F.batch_norm(x, None, None, training=True)
        F.local_response_norm(im, 2)
        F.max_pool1d(one, 3, 2)
        F.max_pool2d(im, 3, 2, 1, dilation=1, ceil_mode=True)
        F.max_pool2d(im, 2, dilation=2)
        F.max_pool3d(vol, 2)
        F.max_pool1d(one, 3, return_indices=True)
        F.max_pool3d(vol, 2, return_indices=True)
        F.avg_pool1d(one, 3, 2, 1)
        F.avg_pool2d(im, 3, 1, 1, count_include_pad=False)
        F.avg_pool2d(im, 3, 2, ceil_mode=True)
        F.avg_pool3d(vol, 2, divisor_override=3)
        F.lp_pool1d(one, 2, 3)
        F.adaptive_avg_pool1d(one, 4)
        F.adaptive_avg_pool2d(im, (1, 1))
        F.adaptive_avg_pool2d(im, (3, None))
        F.adaptive_avg_pool3d(vol, 2)
        F.adaptive_avg_pool3d(vol, (3, 4, 4))
        F.adaptive_max_pool1d(one, 4)
        F.adaptive_max_pool2d(im, 4, return_indices=True)
        F.adaptive_max_pool3d(vol, 2)
        F.max_unpool2d(*F.max_pool2d(im, 2, return_indices=True), 2)
        F.interpolate(im, 5)
        F.interpolate(one, 4, mode='linear', align_corners=True)
        F.interpolate(im, scale_factor=1.5, mode='bilinear')
        F.interpolate(im, (5, 6), mode='bicubic')
        F.interpolate(im, (3, 5), mode='area')
        F.interpolate(im, 13, mode='nearest-exact')
        F.interpolate(im, 4, mode='bilinear', antialias=True)
        F.interpolate(vol, scale_factor=2, mode='trilinear')
        F.interpolate(vol, 3)
        F.grid_sample(im, torch.stack((x, y), -1)[None, :, :, :].expand(2, 5, 9, 2), align_corners=True)
        F.grid_sample(im, torch.stack((x, y), -1)[None].expand(2, 5, 9, 2), mode='nearest', padding_mode='border')
        F.grid_sample(im, torch.stack((x, y), -1)[None].expand(2, 5, 9, 2), padding_mode='reflection')
        F.affine_grid(S[:, :2, :3], (3, 1, 4, 5))
        F.pixel_shuffle(im, 2)
        F.pixel_unshuffle(im, 4)
        F.channel_shuffle(im, 2)
        F.unfold(im, (2, 3), dilation=2, padding=1, stride=2)
        F.fold(F.unfold(im, 2), 8, 2)
        F.conv1d(one, torch.ones(2, 4, 3), stride=2)
        F.conv2d(im, torch.ones(4, 1, 3, 3), groups=4)
        F.conv2d(im, torch.ones(3, 4, 3, 3), padding='same')
        F.conv2d(im, torch.ones(3, 4, 3, 3), dilation=2)
        F.conv_transpose1d(one, torch.ones(4, 2, 3), stride=2, output_padding=1)
        F.conv_transpose3d(vol, torch.ones(2, 2, 2, 2, 2))
    """,
    "loss": """
        F.cross_entropy(x, t, label_smoothing=0.1)
        F.cross_entropy(x, t, ignore_index=3)
        F.cross_entropy(x, t, weight=v.abs(), reduction='sum')
        F.cross_entropy(x, y.softmax(1))
        F.cross_entropy(x, t, reduction='none')
        F.cross_entropy(one.transpose(1, 2).reshape(18, 4)[:5], t % 4)
        F.cross_entropy(one, torch.zeros(2, 9, dtype=torch.int64))
        F.nll_loss(x.log_softmax(1), t)
        F.nll_loss(x.log_softmax(1), t, reduction='none')
        F.binary_cross_entropy(u.abs(), b.float(), weight=p)
        F.binary_cross_entropy_with_logits(x, b.float(), pos_weight=v.abs(), reduction='none')
        F.mse_loss(x, y, reduction='none').mean(1)
        F.l1_loss(x, y)
        F.smooth_l1_loss(x, y, beta=0.5)
        F.huber_loss(x, y, delta=2.0, reduction='sum')
        F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True, reduction='sum')
        F.hinge_embedding_loss(x, torch.where(b, 1.0, -1.0))
        F.soft_margin_loss(x, torch.where(b, 1.0, -1.0))
        F.multi_margin_loss(x, t)
        F.multilabel_margin_loss(x, torch.arange(4, -5, -1).clamp_min(-1).expand(5, 9))
        F.multilabel_soft_margin_loss(x, b.float())
        F.cosine_embedding_loss(x, y, r.sign())
        F.cosine_similarity(x, y, dim=0)
        F.triplet_margin_loss(x, y, z, margin=0.5, swap=True)
        F.triplet_margin_with_distance_loss(x, y, z)
        F.margin_ranking_loss(x, y, z.sign(), margin=0.2)
        F.gaussian_nll_loss(x, y, p, full=True)
        F.poisson_nll_loss(x, p, log_input=False, full=True)
        F.ctc_loss(e.transpose(0, 1).log_softmax(-1), torch.ones(4, 3, dtype=torch.int64), torch.full((4,), 6), torch.full((4,), 3))
    """,
}
#: modules and their input, in training mode where that is not random
MODULES = """
    nn.Linear(9, 4) | x
    nn.Bilinear(9, 9, 3) | x, y
    nn.Conv2d(4, 6, 3, padding=1, padding_mode='reflect') | im
    nn.Conv2d(4, 8, 3, groups=2, bias=False) | im
    nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1) | im
    nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()) | im
    nn.BatchNorm1d(9) | x
    nn.BatchNorm1d(9, track_running_stats=False) | x
    nn.BatchNorm2d(4).eval() | im
    nn.BatchNorm3d(2) | vol
    nn.InstanceNorm2d(4, affine=True) | im
    nn.GroupNorm(2, 4) | im
    nn.LayerNorm(8) | e
    nn.LayerNorm((6, 8), elementwise_affine=False) | e
    nn.RMSNorm(8) | e
    nn.Embedding(9, 3, padding_idx=0) | t
    nn.EmbeddingBag(9, 3, mode='max') | at
    nn.MultiheadAttention(8, 2, batch_first=True) | e, e, e
    nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) | e
    nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True) | e, e
    nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True), 2) | e
    nn.RNN(8, 5) | e
    nn.LSTM(8, 5, batch_first=True) | e
    nn.LSTM(8, 5, 2, bidirectional=True) | e
    nn.GRU(8, 5, batch_first=True) | e
    nn.RNNCell(9, 4) | x
    nn.LSTMCell(9, 4) | x
    nn.GRUCell(9, 4) | x
    nn.PReLU(4) | im
    nn.Softmax2d() | im
    nn.AdaptiveLogSoftmaxWithLoss(9, 20, [5, 10]) | x, t
    nn.CosineSimilarity(1) | x, y
    nn.PairwiseDistance(keepdim=True) | x, y
    nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True) | im
    nn.ZeroPad2d((1, 0, 2, 1)) | im
    nn.ReflectionPad1d(2) | one
    nn.ReplicationPad3d(1) | vol
    nn.CircularPad2d(1) | im
    nn.Unfold(2, stride=2) | im
    nn.Fold(4, 2) | torch.randn(2, 8, 9)
    nn.MaxUnpool2d(2) | im[:, :, :4, :4], torch.arange(0, 64, 4).reshape(4, 4).expand(2, 4, 4, 4)
    nn.utils.parametrizations.weight_norm(nn.Linear(9, 4)) | x
    nn.utils.parametrizations.spectral_norm(nn.Linear(9, 4)).eval() | x
    nn.CrossEntropyLoss(label_smoothing=0.2) | x, t
    nn.BCEWithLogitsLoss() | x, u.abs()
    nn.SmoothL1Loss() | x, y
    nn.LocalResponseNorm(2) | im
    nn.FractionalMaxPool2d(2, output_size=3) | im
    nn.Flatten() | im
    nn.Hardswish() | x
"""


#: right with a call of the framework between own launches
LIBRARY = frozenset((
    "unary/torch.special.zeta(p + 1.5, p2)", "reduction/torch.mode(i % 3, 1).values", "spectrogram",
))  # fmt: skip
#: refused, and words of the sentence that says why
REFUSED = {
    "activation/F.rrelu(x, training=True)": "draws random numbers",
    "unary/torch.normal(x, 1.0)": "draws random numbers",
    "module/nn.FractionalMaxPool2d(2, output_size=3)": "draws random numbers",
    "module/nn.AdaptiveLogSoftmaxWithLoss(9, 20, [5, 10])": "decides by a tensor's values",
}


@lru_cache(maxsize=1)
def cases() -> dict[str, str]:
    """``group/expression`` -> the source of its task."""
    found = {f"{group}/{line}": _function(line) for group, text in LINES.items() for line in _lines(text)}
    return found | {f"module/{line.split(' | ')[0]}": _module(*line.split(" | ")) for line in _lines(MODULES)}


def task_of(name: str) -> Task:
    return load_task(cases()[name], "one_liner")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _names(expression: str) -> list[str]:
    named = (n.id for n in ast.walk(ast.parse(expression, mode="eval")) if isinstance(n, ast.Name))
    return sorted(n for n in set(named) if n in GIVEN)


def _function(line: str) -> str:
    names = _names(line)
    return (
        "import torch\nimport torch.nn.functional as F\n\n"
        f"def reference({', '.join(names)}):\n    return {line}\n\n"
        f"def inputs():\n    return ({', '.join(GIVEN[n] for n in names)},)\n"
    )


def _module(made: str, given: str) -> str:
    lines = "".join(f"    {n} = {GIVEN[n]}\n" for n in _names(given))
    return (
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        self.inner = {made}\n\n    def forward(self, *given):\n"
        f"        return self.inner(*given)\n\ndef get_init_inputs():\n    return []\n\ndef get_inputs():\n{lines}"
        f"    return [{given}]\n"
    )


if __name__ == "__main__":
    from tests.designer.practice import main

    main(cases(), __doc__)
