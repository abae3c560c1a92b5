"""Operators of language models, state spaces, detection, audio, geometry and reinforcement learning, cut small.

As the libraries write them: caches and positions, routing, packed weights, sampling, cells, boxes, losses, optimisers.
"""

# ruff: noqa: E501 - a table: arguments, body, inputs
from __future__ import annotations

from tests.designer.practice_cases import _op

MODELS: dict[str, str] = {
    # attention, caches
    "paged_gqa_decode": _op(
        "q, kc, vc, table, lens", "k = kc[table].flatten(1, 2) ; v = vc[table].flatten(1, 2) ; qg = q.view(2, 2, 3, 8) ; s = torch.einsum('bgnd,btgd->bgnt', qg, k) * 8 ** -0.5 ; s = s.masked_fill(torch.arange(12)[None, None, None] >= lens[:, None, None, None], float('-inf')) ; torch.einsum('bgnt,btgd->bgnd', s.softmax(-1), v).reshape(2, 6, 8)",
        "torch.randn(2, 6, 8), torch.randn(9, 4, 2, 8), torch.randn(9, 4, 2, 8), torch.randint(0, 9, (2, 3)), torch.tensor([5, 11])"),
    "sliding_window_sinks": _op(
        "q, k, v, sink", "at = torch.arange(10) ; d = at[:, None] - at[None] ; s = (q @ k.transpose(-1, -2)) * 0.35 ; s = s.masked_fill((d < 0) | (d >= 4), float('-inf')) ; s = torch.cat((s, sink[None, :, None, None].expand(2, 3, 10, 1)), -1) ; s.softmax(-1)[..., :-1] @ v",
        "torch.randn(2, 3, 10, 8), torch.randn(2, 3, 10, 8), torch.randn(2, 3, 10, 8), torch.randn(3)"),
    "streaming_mask": _op(
        "q, k, v", "at = torch.arange(12) ; d = at[:, None] - at[None] ; keep = (d >= 0) & ((d < 4) | (at[None] < 2)) ; F.scaled_dot_product_attention(q, k, v, attn_mask=keep)",
        "torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 8)"),
    "t5_bias": _op(
        "q, k, table", "at = torch.arange(8) ; r = at[None] - at[:, None] ; n = -r.clamp(max=0) ; large = 4 + (torch.log(n.float().clamp(min=1) / 4) / math.log(16 / 4) * 4).long() ; b = torch.where(n < 4, n, large.clamp(max=7)) ; (q @ k.transpose(-1, -2) + table[b].permute(2, 0, 1)).softmax(-1)",
        "torch.randn(2, 3, 8, 4), torch.randn(2, 3, 8, 4), torch.randn(8, 3)"),
    "rope_2d": _op(
        "x", "at = torch.arange(4).float() ; f = 1.0 / (100 ** (torch.arange(0, 4, 2).float() / 4)) ; y, z = torch.meshgrid(at, at, indexing='ij') ; a = torch.cat((y.reshape(-1, 1) * f, z.reshape(-1, 1) * f), -1) ; c, s = a.cos().repeat_interleave(2, -1), a.sin().repeat_interleave(2, -1) ; r = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) ; x * c + r * s",
        "torch.randn(2, 3, 16, 8)"),
    "mrope": _op(
        "q, cos, sin", "c = torch.cat([m[i] for i, m in enumerate(cos.split([1, 1, 2], -1))], -1) ; s = torch.cat([m[i] for i, m in enumerate(sin.split([1, 1, 2], -1))], -1) ; c, s = torch.cat((c, c), -1).unsqueeze(1), torch.cat((s, s), -1).unsqueeze(1) ; a, b = q.chunk(2, -1) ; q * c + torch.cat((-b, a), -1) * s",
        "torch.randn(2, 3, 5, 8), torch.randn(3, 2, 5, 4), torch.randn(3, 2, 5, 4)"),
    "yarn_table": _op(
        "at", "f = 1.0 / (10000 ** (torch.arange(0, 16, 2).float() / 16)) ; r = ((torch.arange(8).float() - 2) / 4).clamp(0, 1) ; f = f / 4 * r + f * (1 - r) ; e = at[:, None].float() * f ; torch.cat((e, e), -1).cos() * 1.1386",
        "torch.randint(0, 100, (5,))"),
    "rope_into_cache": _op(
        "cache, k, cos, sin, slots", "a, b = k.chunk(2, -1) ; r = torch.cat((a * cos - b * sin, b * cos + a * sin), -1) ; cache.index_copy_(0, slots, r) ; r",
        "torch.zeros(24, 2, 8), torch.randn(5, 2, 8), torch.randn(5, 1, 4), torch.randn(5, 1, 4), torch.randperm(24)[:5]"),
    "int8_kv_attention": _op(
        "q, k, ks, v, vs", "kf = k.float() * ks ; vf = v.float() * vs ; ((q @ kf.transpose(-1, -2)) * 0.35).softmax(-1) @ vf",
        "torch.randn(2, 3, 5, 8), torch.randint(-127, 127, (2, 3, 7, 8), dtype=torch.int8), torch.rand(2, 3, 7, 1), torch.randint(-127, 127, (2, 3, 7, 8), dtype=torch.int8), torch.rand(2, 3, 7, 1)"),
    "tree_mask_decode": _op(
        "q, k, v, tree", "m = torch.cat((torch.ones(5, 6, dtype=torch.bool), tree), 1) ; F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        "torch.randn(1, 2, 5, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 8), torch.ones(5, 5).tril().bool()"),
    "block_topk_gather": _op(
        "q, k, v", "kb = k.view(2, 4, 4, 8).mean(2) ; i = torch.einsum('bd,bnd->bn', q, kb).topk(2, -1).indices ; ks = k.view(2, 4, 4, 8).gather(1, i[..., None, None].expand(-1, -1, 4, 8)).flatten(1, 2) ; vs = v.view(2, 4, 4, 8).gather(1, i[..., None, None].expand(-1, -1, 4, 8)).flatten(1, 2) ; torch.einsum('bt,btd->bd', torch.einsum('bd,btd->bt', q, ks).softmax(-1), vs)",
        "torch.randn(2, 8), torch.randn(2, 16, 8), torch.randn(2, 16, 8)"),
    "lse_merge": _op(
        "o1, l1, o2, l2", "m = torch.maximum(l1, l2) ; a, b = torch.exp(l1 - m), torch.exp(l2 - m) ; ((o1 * a[..., None] + o2 * b[..., None]) / (a + b)[..., None], m + torch.log(a + b))",
        "torch.randn(5, 3, 8), torch.randn(5, 3), torch.randn(5, 3, 8), torch.randn(5, 3)"),
    "heavy_hitters": _op(
        "a, k", "score = a.sum((0, 1)) ; keep = score.topk(5).indices.sort().values ; k[:, keep]",
        "torch.rand(2, 4, 12), torch.randn(2, 12, 8)"),
    # MoE, LoRA
    "moe_sort_permute": _op(
        "x, ids", "flat = ids.flatten() ; order = flat.argsort(stable=True) ; (x[order // 2], order, torch.bincount(flat, minlength=4).cumsum(0))",
        "torch.randn(6, 8), torch.randint(0, 4, (6, 2))"),
    "moe_unpermute": _op(
        "y, order, w", "z = torch.zeros_like(y).index_copy(0, order, y) ; (z.view(6, 2, 8) * w[..., None]).sum(1)",
        "torch.randn(12, 8), torch.randperm(12), torch.rand(6, 2)"),
    "expert_choice": _op(
        "x, g", "s = (x @ g).softmax(-1).t() ; w, i = s.topk(3, -1) ; y = x[i] * w[..., None] ; torch.zeros_like(x).index_add(0, i.flatten(), y.flatten(0, 1))",
        "torch.randn(8, 6), torch.randn(6, 4)"),
    "lora_by_adapter": _op(
        "x, a, b, ids, base", "base + torch.einsum('tr,tro->to', torch.einsum('ti,tir->tr', x, a[ids]), b[ids]) * 0.5",
        "torch.randn(6, 8), torch.randn(3, 8, 2), torch.randn(3, 2, 10), torch.randint(0, 3, (6,)), torch.randn(6, 10)"),
    # quantisation
    "awq_gemv": _op(
        "x, w, s, z", "sh = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], dtype=torch.int32) ; q = ((w[:, :, None] >> sh) & 15).reshape(16, 16).float() ; zz = ((z[:, :, None] >> sh) & 15).reshape(2, 16).float() ; d = (q.view(2, 8, 16) - zz[:, None]) * s[:, None] ; x @ d.reshape(16, 16)",
        "torch.randn(1, 16), torch.randint(-2**31, 2**31 - 1, (16, 2), dtype=torch.int32), torch.rand(2, 16), torch.randint(-2**31, 2**31 - 1, (2, 2), dtype=torch.int32)"),
    "fp8_block_gemm": _op(
        "a, sa, b, sb", "af = a.float().view(4, 2, 8) * sa[..., None] ; bf = b.float().view(2, 3, 2, 8) * sb[:, None, :, None] ; af.view(4, 16) @ bf.view(6, 16).T",
        "torch.randn(4, 16).to(torch.float8_e4m3fn), torch.rand(4, 2), torch.randn(6, 16).to(torch.float8_e4m3fn), torch.rand(2, 2)"),
    "ternary_linear": _op(
        "x, w", "s = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5) ; xq = (x * s).round().clamp(-128, 127) / s ; g = w.abs().mean().clamp(min=1e-5) ; wq = (w / g).round().clamp(-1, 1) * g ; F.linear(xq, wq)",
        "torch.randn(4, 16), torch.randn(6, 16)"),
    "hadamard": _op(
        "x", "y = x.view(-1, 8, 2) ; y = torch.stack((y[..., 0] + y[..., 1], y[..., 0] - y[..., 1]), 1).reshape(-1, 2, 4, 2) ; y = torch.stack((y[..., 0] + y[..., 1], y[..., 0] - y[..., 1]), 1).reshape(-1, 4, 2, 2) ; y = torch.stack((y[..., 0] + y[..., 1], y[..., 0] - y[..., 1]), 1).reshape(-1, 16) ; y / 4",
        "torch.randn(5, 16)"),
    "mx_fp4_round": _op(
        "x", "g = x.view(5, 2, 8) ; e = torch.floor(torch.log2(g.abs().amax(-1, keepdim=True).clamp(min=1e-30))) - 2 ; y = g / torch.exp2(e) ; t = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]) ; i = (y.abs()[..., None] - t).abs().argmin(-1) ; (torch.sign(y) * t[i] * torch.exp2(e)).view(5, 16)",
        "torch.randn(5, 16)"),
    # sampling
    "typical_sampling": _op(
        "x", "p = x.log_softmax(-1) ; h = -(p.exp() * p).sum(-1, keepdim=True) ; d = (-p - h).abs() ; s, i = d.sort(-1) ; c = p.gather(-1, i).exp().cumsum(-1) ; drop = (c - p.gather(-1, i).exp()) > 0.9 ; x.masked_fill(torch.zeros_like(drop).scatter(-1, i, drop), float('-inf'))",
        "torch.randn(3, 12)"),
    "top_k_mask": _op(
        "x", "x.masked_fill(x < x.topk(4, -1).values[..., -1:], float('-inf')).softmax(-1)",
        "torch.randn(3, 12)"),
    "gumbel_pick": _op(
        "x, u", "(x / 0.8 - torch.log(-torch.log(u))).argmax(-1)",
        "torch.randn(3, 12), torch.rand(3, 12) * 0.98 + 0.01"),
    "speculative_accept": _op(
        "p, q, ids, u", "pd, qd = p.gather(-1, ids[..., None])[..., 0], q.gather(-1, ids[..., None])[..., 0] ; ok = (u < (pd / qd).clamp(max=1)).to(torch.int64) ; n = ok.cumprod(-1).sum(-1) ; r = (p - q).clamp(min=0) ; (n, r / r.sum(-1, keepdim=True).clamp(min=1e-9))",
        "torch.rand(2, 4, 9).softmax(-1), torch.rand(2, 4, 9).softmax(-1), torch.randint(0, 9, (2, 4)), torch.rand(2, 4)"),
    "frequency_presence": _op(
        "x, ids", "n = torch.zeros_like(x).scatter_add(1, ids, torch.ones_like(ids, dtype=x.dtype)) ; x - 0.3 * n - 0.5 * (n > 0).float()",
        "torch.randn(3, 12), torch.randint(0, 12, (3, 7))"),
    # SSM, recurrences
    "conv_update": _op(
        "state, x, w, b", "state.copy_(torch.roll(state, -1, -1)) ; state[:, :, -1] = x ; F.silu((state * w).sum(-1) + b)",
        "torch.randn(2, 6, 4), torch.randn(2, 6), torch.randn(6, 4), torch.randn(6)"),
    "ssd_chunks": _op(
        "x, a, b, c", "ac = a.view(2, 3, 4).cumsum(-1) ; L = torch.exp((ac[..., :, None] - ac[..., None, :])).tril() ; xc, bc, cc = x.view(2, 3, 4, 5), b.view(2, 3, 4, 6), c.view(2, 3, 4, 6) ; inner = torch.einsum('bcln,bcsn,bcls,bcsp->bclp', cc, bc, L, xc) ; st = torch.einsum('bcln,bcl,bclp->bcpn', bc, torch.exp(ac[..., -1:] - ac), xc) ; h = torch.zeros(2, 5, 6) ; out = [] ; for k in range(3): ;     out.append(torch.einsum('bln,bpn,bl->blp', cc[:, k], h, torch.exp(ac[:, k]))) ;     h = h * torch.exp(ac[:, k, -1])[:, None, None] + st[:, k] ; (inner + torch.stack(out, 1)).reshape(2, 12, 5)",
        "torch.randn(2, 12, 5), -torch.rand(2, 12), torch.randn(2, 12, 6), torch.randn(2, 12, 6)"),
    "ssm_step": _op(
        "h, x, dt, A, B, C, D", "dt = F.softplus(dt) ; h.copy_(h * torch.exp(dt[..., None] * A) + dt[..., None] * B[:, None] * x[..., None]) ; (h * C[:, None]).sum(-1) + D * x",
        "torch.randn(2, 6, 4), torch.randn(2, 6), torch.randn(2, 6), -torch.rand(6, 4), torch.randn(2, 4), torch.randn(2, 4), torch.randn(6)"),
    "retention": _op(
        "q, k, v", "g = 1 - 2.0 ** (-5 - torch.arange(3).float()) ; at = torch.arange(9) ; d = (at[:, None] - at[None]).clamp(min=0).float() ; D = (g[:, None, None] ** d).tril() ; y = ((q @ k.transpose(-1, -2)) * D) @ v ; F.group_norm(y.transpose(1, 2).reshape(18, 12), 3).view(2, 9, 12)",
        "torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4)"),
    "gated_linear_steps": _op(
        "q, k, v, g", "S = torch.zeros(2, 4, 5) ; out = [] ; for t in range(6): ;     S = S * torch.sigmoid(g[:, t, :, None]) + k[:, t, :, None] * v[:, t, None] ;     out.append((q[:, t, :, None] * S).sum(1)) ; torch.stack(out, 1)",
        "torch.randn(2, 6, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 5), torch.randn(2, 6, 4)"),
    "minGRU_log": _op(
        "z, h", "lz, lc = -F.softplus(-z), -F.softplus(z) ; lh = torch.where(h >= 0, torch.log(F.relu(h) + 0.5), -F.softplus(-h)) ; a = lc.cumsum(1) ; torch.exp(a + torch.logcumsumexp(lz + lh - a, 1))",
        "torch.randn(2, 7, 5), torch.randn(2, 7, 5)"),
    # diffusion, vision
    "layer_scale_residual": _op(
        "x, y, g, m", "x + g * y * (m[:, None, None] / 0.9)",
        "torch.randn(4, 5, 8), torch.randn(4, 5, 8), torch.randn(8), (torch.rand(4) > 0.1).float()"),
    "ada_single": _op(
        "x, t, table", "s, b, g, s2, b2, g2 = (table[None] + t.view(2, 6, 8)).chunk(6, 1) ; h = F.layer_norm(x, (8,), eps=1e-6) * (1 + b) + s ; x + g * h.relu() + g2 * (s2 + b2)",
        "torch.randn(2, 5, 8), torch.randn(2, 48), torch.randn(6, 8)"),
    "cfg_rescale": _op(
        "c, u", "y = u + 7.5 * (c - u) ; s = c.std((1, 2, 3), keepdim=True) / y.std((1, 2, 3), keepdim=True) ; 0.7 * y * s + 0.3 * y",
        "torch.randn(2, 4, 5, 5), torch.randn(2, 4, 5, 5)"),
    "euler_v_step": _op(
        "x, v, sigma, nxt", "c = sigma ** 2 + 1 ; d = v * (-sigma / c ** 0.5) + x / c ; x + (x - d) / sigma * (nxt - sigma)",
        "torch.randn(2, 4, 5, 5), torch.randn(2, 4, 5, 5), torch.tensor(3.0), torch.tensor(2.5)"),
    "group_norm_conv": _op(
        "x, w, b, k", "F.conv2d(F.silu(F.group_norm(x, 2, w, b)), k, padding=1) + x",
        "torch.randn(2, 4, 6, 6), torch.randn(4), torch.randn(4), torch.randn(4, 4, 3, 3)"),
    "giou": _op(
        "a, b", "lt, rb = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:]) ; i = (rb - lt).clamp(min=0).prod(1) ; u = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - i ; c = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1) ; 1 - i / u + (c - u) / c",
        "torch.rand(6, 4) + torch.tensor([0., 0., 1., 1.]), torch.rand(6, 4) + torch.tensor([0., 0., 1., 1.])"),
    "ciou": _op(
        "a, b", "w1, h1, w2, h2 = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1], b[:, 2] - b[:, 0], b[:, 3] - b[:, 1] ; iw = (torch.minimum(a[:, 2], b[:, 2]) - torch.maximum(a[:, 0], b[:, 0])).clamp(min=0) ; ih = (torch.minimum(a[:, 3], b[:, 3]) - torch.maximum(a[:, 1], b[:, 1])).clamp(min=0) ; iou = iw * ih / (w1 * h1 + w2 * h2 - iw * ih) ; v = 4 / math.pi ** 2 * (torch.atan(w2 / h2) - torch.atan(w1 / h1)) ** 2 ; iou - v * v / (1 - iou + v + 1e-7)",
        "torch.rand(6, 4) + torch.tensor([0., 0., 1., 1.]), torch.rand(6, 4) + torch.tensor([0., 0., 1., 1.])"),
    "fast_nms": _op(
        "box, score", "i = score.argsort(descending=True, stable=True) ; b = box[i] ; wh = (torch.minimum(b[:, None, 2:], b[None, :, 2:]) - torch.maximum(b[:, None, :2], b[None, :, :2])).clamp(min=0) ; n = wh[..., 0] * wh[..., 1] ; a = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) ; iou = (n / (a[:, None] + a[None] - n)).triu(1) ; (iou.amax(0) <= 0.5, i)",
        "torch.rand(9, 4) + torch.tensor([0., 0., 1., 1.]), torch.rand(9)"),
    "ssim": _op(
        "x, y", "mx, my = F.avg_pool2d(x, 3, 1), F.avg_pool2d(y, 3, 1) ; vx, vy, c = F.avg_pool2d(x * x, 3, 1) - mx * mx, F.avg_pool2d(y * y, 3, 1) - my * my, F.avg_pool2d(x * y, 3, 1) - mx * my ; ((2 * mx * my + 1e-4) * (2 * c + 9e-4) / ((mx ** 2 + my ** 2 + 1e-4) * (vx + vy + 9e-4))).mean()",
        "torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)"),
    "image_normalise": _op(
        "x, m, s", "(x.permute(0, 3, 1, 2).float() / 255 - m.view(1, 3, 1, 1)) / s.view(1, 3, 1, 1)",
        "torch.randint(0, 256, (2, 6, 6, 3), dtype=torch.uint8), torch.rand(3), torch.rand(3) + 0.1"),
    "deformable_sample": _op(
        "v, loc, w", "g = 2 * loc - 1 ; s = F.grid_sample(v, g, align_corners=False) ; (s * w[:, None]).sum(-1)",
        "torch.randn(4, 5, 6, 6), torch.rand(4, 7, 3, 2), torch.rand(4, 7, 3)"),
    "total_variation": _op(
        "x", "(x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()",
        "torch.randn(2, 3, 6, 6)"),
    "gaussian_blur": _op(
        "x", "k = torch.exp(-((torch.arange(5).float() - 2) ** 2) / 2) ; k = k / k.sum() ; p = F.pad(x, (2, 2, 2, 2), mode='reflect') ; w = k.expand(3, 1, 1, 5) ; F.conv2d(F.conv2d(p, w, groups=3), w.transpose(2, 3), groups=3)",
        "torch.randn(2, 3, 8, 8)"),
    # losses and optimisers
    "siglip": _op(
        "a, b, t, bias", "s = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T * t.exp() + bias ; l = 2 * torch.eye(6) - 1 ; -F.logsigmoid(l * s).sum() / 6",
        "torch.randn(6, 8), torch.randn(6, 8), torch.tensor(1.0), torch.tensor(-3.0)"),
    "sup_con": _op(
        "x, y", "z = F.normalize(x, dim=1) ; s = z @ z.T / 0.1 ; m = (y[:, None] == y[None]).float() ; off = 1 - torch.eye(8) ; s = s - s.amax(1, keepdim=True).detach() ; lp = s - torch.log((torch.exp(s) * off).sum(1, keepdim=True)) ; -((m * off * lp).sum(1) / (m * off).sum(1).clamp(min=1)).mean()",
        "torch.randn(8, 6), torch.randint(0, 3, (8,))"),
    "batch_hard_triplet": _op(
        "x, y", "d = torch.cdist(x, x) ; same = y[:, None] == y[None] ; F.relu(d.masked_fill(~same, 0).amax(1) - d.masked_fill(same, float('inf')).amin(1) + 0.3).mean()",
        "torch.randn(8, 6), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])"),
    "barlow": _op(
        "a, b", "za, zb = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0) ; c = za.T @ zb / 12 ; on = (torch.diagonal(c) - 1).square().sum() ; on + 0.005 * (c.square().sum() - torch.diagonal(c).square().sum())",
        "torch.randn(12, 6), torch.randn(12, 6)"),
    "ppo": _op(
        "lp, old, adv, v, ret", "r = torch.exp(lp - old) ; pg = -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean() ; (pg + 0.5 * (v - ret).square().mean(), ((r - 1).abs() > 0.2).float().mean(), (old - lp).mean())",
        "torch.randn(16), torch.randn(16), torch.randn(16), torch.randn(16), torch.randn(16)"),
    "gae": _op(
        "r, v, done", "adv = torch.zeros(3) ; out = [] ; for t in reversed(range(6)): ;     delta = r[:, t] + 0.99 * v[:, t + 1] * (1 - done[:, t]) - v[:, t] ;     adv = delta + 0.99 * 0.95 * (1 - done[:, t]) * adv ;     out.append(adv) ; torch.stack(out[::-1], 1)",
        "torch.randn(3, 6), torch.randn(3, 7), (torch.rand(3, 6) > 0.8).float()"),
    "grpo_advantage": _op(
        "r, lp, ref, mask", "g = r.view(3, 4) ; a = ((g - g.mean(1, keepdim=True)) / (g.std(1, keepdim=True) + 1e-4)).view(12, 1) ; k = torch.exp(ref - lp) - (ref - lp) - 1 ; -((torch.exp(lp - lp.detach()) * a - 0.04 * k) * mask).sum(1).div(mask.sum(1).clamp(min=1)).mean()",
        "torch.randn(12), torch.randn(12, 5), torch.randn(12, 5), (torch.rand(12, 5) > 0.3).float()"),
    "lion": _op(
        "p, g, m", "u = torch.sign(m * 0.9 + g * 0.1) ; p.mul_(1 - 1e-4).add_(u, alpha=-1e-3) ; m.mul_(0.99).add_(g, alpha=0.01) ; p.norm()",
        "torch.randn(5, 9), torch.randn(5, 9), torch.randn(5, 9)"),
    "newton_schulz": _op(
        "g", "x = g / (g.norm() + 1e-7) ; for _ in range(3): ;     a = x @ x.T ;     b = -4.775 * a + 2.0315 * a @ a ;     x = 3.4445 * x + b @ x ; x",
        "torch.randn(6, 9)"),
    "adafactor": _op(
        "g, r, c", "u = g.square() + 1e-30 ; r = 0.9 * r + 0.1 * u.mean(-1) ; c = 0.9 * c + 0.1 * u.mean(-2) ; v = (r / r.mean(-1, keepdim=True))[..., None].rsqrt() * c[..., None, :].rsqrt() * g ; (v / (v.square().mean().sqrt() / 1.0).clamp(min=1), r, c)",
        "torch.randn(5, 9), torch.rand(5), torch.rand(9)"),
    "clip_norm_of_list": _op(
        "a, b, c", "n = torch.stack([t.norm() for t in (a, b, c)]).norm() ; s = (1.0 / (n + 1e-6)).clamp(max=1.0) ; (a * s, b * s, c * s, n)",
        "torch.randn(5, 9), torch.randn(7), torch.randn(3, 4, 2)"),
    # sequences, audio, graphs, geometry
    "crf_forward": _op(
        "e, t", "a = e[:, 0] ; for k in range(1, 6): ;     a = torch.logsumexp(a[:, :, None] + t[None], 1) + e[:, k] ; torch.logsumexp(a, 1)",
        "torch.randn(3, 6, 5), torch.randn(5, 5)"),
    "viterbi": _op(
        "e, t", "a = e[:, 0] ; back = [] ; for k in range(1, 5): ;     m, i = (a[:, :, None] + t[None]).max(1) ;     back.append(i) ;     a = m + e[:, k] ; (a.amax(1), torch.stack(back, 1))",
        "torch.randn(3, 5, 4), torch.randn(4, 4)"),
    "mu_law": _op(
        "x", "y = torch.sign(x) * torch.log1p(255 * x.abs()) / math.log(256.0) ; ((y + 1) / 2 * 255 + 0.5).to(torch.int64)",
        "torch.rand(3, 20) * 2 - 1"),
    "si_snr": _op(
        "x, s", "x, s = x - x.mean(-1, keepdim=True), s - s.mean(-1, keepdim=True) ; p = (x * s).sum(-1, keepdim=True) / (s.square().sum(-1, keepdim=True) + 1e-8) * s ; 10 * torch.log10(p.square().sum(-1) / ((x - p).square().sum(-1) + 1e-8) + 1e-8)",
        "torch.randn(3, 40), torch.randn(3, 40)"),
    "knn_edges": _op(
        "x", "d = torch.cdist(x, x) ; v, i = d.topk(4, -1, largest=False) ; n = x[i] ; torch.cat((n - x[:, None], x[:, None].expand_as(n)), -1)",
        "torch.randn(9, 3)"),
    "chamfer": _op(
        "a, b", "d = (a[:, :, None] - b[:, None]).square().sum(-1) ; d.amin(2).mean() + d.amin(1).mean()",
        "torch.randn(2, 7, 3), torch.randn(2, 9, 3)"),
    "farthest_points": _op(
        "x", "d = torch.full((2, 12), 1e10) ; at = torch.zeros(2, dtype=torch.int64) ; out = [] ; for _ in range(4): ;     out.append(at) ;     c = x.gather(1, at[:, None, None].expand(-1, 1, 3)) ;     d = torch.minimum(d, (x - c).square().sum(-1)) ;     at = d.argmax(-1) ; torch.stack(out, 1)",
        "torch.randn(2, 12, 3)"),
    "quaternion_matrix": _op(
        "q", "w, x, y, z = F.normalize(q, dim=-1).unbind(-1) ; torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w), 2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w), 2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)), -1).view(-1, 3, 3)",
        "torch.randn(7, 4)"),
    "rotation_6d": _op(
        "x", "a, b = x[..., :3], x[..., 3:] ; u = F.normalize(a, dim=-1) ; v = F.normalize(b - (u * b).sum(-1, keepdim=True) * u, dim=-1) ; torch.stack((u, v, torch.linalg.cross(u, v)), -2)",
        "torch.randn(7, 6)"),
    "laplacian_step": _op(
        "u", "u + 0.1 * (torch.roll(u, 1, 0) + torch.roll(u, -1, 0) + torch.roll(u, 1, 1) + torch.roll(u, -1, 1) - 4 * u)",
        "torch.randn(12, 12)"),
    "gcn_dense": _op(
        "a, x, w", "h = a + torch.eye(7) ; d = h.sum(1).rsqrt() ; F.relu((d[:, None] * h * d[None]) @ x @ w)",
        "(torch.rand(7, 7) > 0.6).float(), torch.randn(7, 5), torch.randn(5, 4)"),
    "sage_max": _op(
        "x, src, dst", "m = torch.full((6, 5), float('-inf')).scatter_reduce(0, dst[:, None].expand(-1, 5), x[src], 'amax') ; torch.cat((x, torch.where(m.isinf(), 0.0, m)), 1)",
        "torch.randn(6, 5), torch.randint(0, 6, (12,)), torch.randint(0, 6, (12,))"),
    "vq_nearest": _op(
        "x, e", "d = x.square().sum(1, keepdim=True) - 2 * x @ e.T + e.square().sum(1) ; i = d.argmin(1) ; q = e[i] ; (x + (q - x).detach(), i, (q - x).square().mean())",
        "torch.randn(10, 6), torch.randn(8, 6)"),
    "fsq": _op(
        "x", "l = torch.tensor([8.0, 5.0, 5.0]) ; h = (l - 1) * 0.999 / 2 ; o = torch.where(l % 2 == 0, 0.5, 0.0) ; z = torch.round(torch.tanh(x + torch.atanh(o / h)) * h - o) ; b = torch.tensor([1, 8, 40]) ; ((z + l // 2).to(torch.int64) * b).sum(-1)",
        "torch.randn(10, 3)"),
    "sinkhorn": _op(
        "s", "p = s / 0.1 ; for _ in range(3): ;     p = p - p.logsumexp(1, keepdim=True) ;     p = p - p.logsumexp(0, keepdim=True) ; p.exp()",
        "torch.randn(6, 5)"),
    "hyper_connections": _op(
        "h, a, b, y", "m = torch.einsum('tnd,nk->tkd', h, a) ; m + y[:, None] * b[None, :, None]",
        "torch.randn(5, 4, 8), torch.randn(4, 4), torch.randn(4), torch.randn(5, 8)"),
    "rms_backward": _op(
        "x, w, g", "r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) ; n = x * r ; gw = g * w ; (r * (gw - n * (gw * n).mean(-1, keepdim=True)), (g * n).sum(0))",
        "torch.randn(6, 16), torch.randn(16), torch.randn(6, 16)"),
    "swiglu_backward": _op(
        "g, u, dy", "s = torch.sigmoid(g) ; (dy * u * s * (1 + g * (1 - s)), dy * g * s)",
        "torch.randn(6, 16), torch.randn(6, 16), torch.randn(6, 16)"),
    "attention_backward": _op(
        "q, k, v, do", "p = (q @ k.mT * 0.35).softmax(-1) ; dv = p.mT @ do ; dp = do @ v.mT ; ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * 0.35 ; (ds @ k, ds.mT @ q, dv)",
        "torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)"),
    "ce_backward": _op(
        "x, t", "p = x.softmax(-1) ; keep = (t != -100) ; p = p - F.one_hot(t.clamp(min=0), 11).float() ; p * (keep.float() / keep.sum())[:, None]",
        "torch.randn(6, 11), torch.tensor([3, -100, 0, 10, -100, 2])"),
    "varlen_positions": _op(
        "cu", "at = torch.arange(10) ; seg = torch.searchsorted(cu, at, right=True) - 1 ; at - cu[seg]",
        "torch.tensor([0, 3, 4, 10])"),
    "padded_pool": _op(
        "x, lens", "m = (torch.arange(7)[None] < lens[:, None]).float()[..., None] ; F.normalize((x * m).sum(1) / m.sum(1).clamp(min=1e-9), dim=-1)",
        "torch.randn(3, 7, 8), torch.tensor([2, 7, 4])"),
    "last_token": _op(
        "x, mask", "i = mask.sum(1) - 1 ; x[torch.arange(3), i]",
        "torch.randn(3, 7, 8), torch.tensor([[1, 1, 0, 0, 0, 0, 0], [1] * 7, [1, 1, 1, 1, 0, 0, 0]])"),
    "hash_embedding": _op(
        "ids, t", "h = (ids * 2654435761) % 16 ; t[h].mean(1)",
        "torch.randint(0, 1000, (5, 4)), torch.randn(16, 6)"),
    "interpolate_pos": _op(
        "p", "g = p[:, 1:].view(1, 4, 4, 6).permute(0, 3, 1, 2) ; g = F.interpolate(g, (6, 6), mode='bicubic', align_corners=False) ; torch.cat((p[:, :1], g.flatten(2).transpose(1, 2)), 1)",
        "torch.randn(1, 17, 6)"),
    "pixel_norm_modulated_conv": _op(
        "x, w, s", "ww = w[None] * s[:, None, :, None, None] ; d = torch.rsqrt(ww.square().sum((2, 3, 4), keepdim=True) + 1e-8) ; ww = (ww * d).reshape(8, 3, 3, 3) ; F.conv2d(x.reshape(1, 6, 6, 6), ww, padding=1, groups=2).view(2, 4, 6, 6)",
        "torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(2, 3)"),
    "z_loss_ce": _op(
        "x, t", "z = x.logsumexp(-1) ; l = z - x.gather(-1, t[:, None]).squeeze(-1) ; s = z - x.mean(-1) ; (0.9 * l + 0.1 * s + 1e-4 * z.square()).mean()",
        "torch.randn(6, 11), torch.randint(0, 11, (6,))"),
    "multi_token_embedding": _op(
        "ids, t, w", "(t[ids] * w.unsqueeze(-1)).sum(-2) * 8 ** 0.5",
        "torch.randint(0, 11, (2, 5, 3)), torch.randn(11, 8), torch.rand(2, 5, 3)"),
}  # fmt: skip
