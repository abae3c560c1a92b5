"""Operators of 2025 and 2026 that people write: routers, states, optimisers, samplers, recommenders, sound, physics."""

from __future__ import annotations

from tests.practice.cases import task

#: language models of 2026, their routers, states and optimisers
RECENT_LANGUAGE = {
    "embeddings_of_hashed_ngrams": task(
        "B 1 8 2, T 4 128 40",
        """
def reference(tokens, table):
    # hashed n-gram embeddings: the last one, two and three tokens
    padded = F.pad(tokens, (2, 0))
    one, two, three = padded[:, 2:], padded[:, 1:-1], padded[:, :-2]
    pair = (one * 31337 + two * 7919) % table.shape[0]
    triple = (one * 31337 + two * 7919 + three * 104729) % table.shape[0]
    return (table[one % table.shape[0]] + table[pair] + table[triple]) / 3 ** 0.5
""",
        "torch.randint(0, 30000, (B, T)), torch.randn(512, 32)",
    ),
    "an_update_made_orthogonal": task(
        "M 8 128 48, N 8 128 40",
        """
def reference(g):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x * max(1, g.shape[0] / g.shape[1]) ** 0.5
""",
        "torch.randn(M, N)",
    ),
    "four_streams_mixed_by_a_balanced_matrix": task(
        "T 1 256 40, D 16 512 64",
        """
def reference(streams, pre, post, mix, w):
    # four residual streams: width connections read, depth connections write
    x = torch.einsum("ntd,tn->td", streams, torch.sigmoid(pre))
    y = F.silu(F.linear(F.rms_norm(x, (x.shape[-1],)), w))
    m = torch.softmax(mix, -1)
    for _ in range(3):
        m = m / m.sum(-2, keepdim=True)
        m = m / m.sum(-1, keepdim=True)
    return torch.einsum("tnm,mtd->ntd", m, streams) + 2 * torch.sigmoid(post).t()[:, :, None] * y
""",
        "torch.randn(4, T, D), torch.randn(T, 4), torch.randn(T, 4), torch.randn(T, 4, 4), torch.randn(D, D) * 0.1",
    ),
    "attention_within_chunks_scaled_by_place": task(
        "B 1 3 2, S 8 256 64",
        """
def reference(q, k, v, pos):
    scale = torch.log1p(torch.floor((pos + 1) / 16.0)) * 0.1 + 1
    q = q * scale[:, None]
    gate = torch.sigmoid(q.mean(-1, keepdim=True))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    i = torch.arange(q.shape[-2])
    chunked = (i[:, None] // 8 == i // 8) & (i[:, None] >= i)
    return gate * (s.masked_fill(~chunked, float("-inf")).softmax(-1) @ v)
""",
        "torch.randn(B, 2, S, 32), torch.randn(B, 2, S, 32), torch.randn(B, 2, S, 32), torch.arange(S)",
    ),
    "latent_attention_of_one_token": task(
        "B 1 8 4, L 8 1024 100",
        """
def reference(q_nope, q_rope, kv, k_rope, w_uk, w_uv, lengths):
    q = torch.einsum("bhd,hdc->bhc", q_nope, w_uk)
    s = torch.einsum("bhc,blc->bhl", q, kv) + torch.einsum("bhr,blr->bhl", q_rope, k_rope)
    s = s * (48 ** -0.5)
    keep = torch.arange(kv.shape[1]) < lengths[:, None]
    p = torch.softmax(s.masked_fill(~keep[:, None], -1e30), -1)
    return torch.einsum("bhc,hcd->bhd", torch.einsum("bhl,blc->bhc", p, kv), w_uv)
""",
        "torch.randn(B, 4, 32), torch.randn(B, 4, 16), torch.randn(B, L, 64), torch.randn(B, L, 16), "
        "torch.randn(4, 32, 64) * .1, torch.randn(4, 64, 32) * .1, torch.randint(1, L + 1, (B,))",
    ),
    "experts_of_the_best_groups": task(
        "T 1 512 64",
        """
def reference(logits, bias):
    s = torch.sigmoid(logits)
    biased = s + bias
    groups = biased.view(-1, 4, 8)
    best = groups.topk(2, -1).values.sum(-1)
    chosen = best.topk(2, -1).indices
    mask = torch.zeros_like(best).scatter(1, chosen, 1.0)
    allowed = biased.masked_fill(~mask.bool().repeat_interleave(8, -1), float("-inf"))
    ids = allowed.topk(6, -1).indices
    w = s.gather(1, ids)
    return w / w.sum(-1, keepdim=True) * 2.5, ids
""",
        "torch.randn(T, 32), torch.randn(32) * 0.1",
    ),
    "slots_written_and_read_by_softmax": task(
        "B 1 4 2, T 1 48 20",
        """
def reference(q, k, v, s, g):
    # slots written by a softmax, decayed by g
    b, t, d = q.shape
    hk, hv, out = torch.zeros(b, d, s.shape[-1]), torch.zeros(b, s.shape[-1], d), []
    for i in range(t):
        decay = torch.exp(g[:, i])
        w = s[:, i] * (1 - decay)
        hk = hk * decay[:, None, :] + k[:, i, :, None] * w[:, None, :]
        hv = hv * decay[:, :, None] + w[:, :, None] * v[:, i, None, :]
        p = torch.softmax((q[:, i, None, :] @ hk)[:, 0], -1)
        out.append((p[:, None] @ hv)[:, 0])
    return torch.stack(out, 1)
""",
        "torch.randn(B, T, 16), torch.randn(B, T, 16), torch.randn(B, T, 16), torch.randn(B, T, 8), "
        "-torch.rand(B, T, 8)",
    ),
    "a_state_of_rank_one_replaced": task(
        "B 1 8 4, H 1 8 4",
        """
def reference(state, r, w, k, v, a, b):
    decay = torch.exp(-0.606531 * torch.sigmoid(w))
    sa = (state * a[:, :, None, :]).sum(-1)
    state = state * decay[:, :, None, :] + sa[..., None] * b[:, :, None, :] + v[..., None] * k[:, :, None, :]
    return (state * r[:, :, None, :]).sum(-1), state
""",
        "torch.randn(B, H, 32, 32), *(torch.randn(B, H, 32) for _ in range(6))",
    ),
    "scores_weighted_by_level": task(
        "B 1 4 2, T 2 128 32",
        """
def reference(q, k, v, lam):
    # each query reads every key with a weight by the level of a Fenwick tree
    t = q.shape[1]
    i = torch.arange(t)
    apart = (i[:, None] ^ i[None]).clamp(min=1)
    level = torch.floor(torch.log2(apart.double())).long().clamp(max=lam.shape[-1] - 1)
    w = lam.gather(-1, level[None].expand(lam.shape[0], -1, -1))
    s = (q @ k.transpose(-1, -2)) * w
    return s.tril() @ v
""",
        "torch.randn(B, T, 16), torch.randn(B, T, 16), torch.randn(B, T, 16), torch.rand(B, T, 8)",
    ),
    "a_step_of_rows_and_columns": task(
        "M 2 128 40, N 2 128 33",
        """
def reference(p, g, row, col, step: float = 10.0):
    beta = 1 - step ** -0.8
    g2 = g * g + 1e-30
    row = beta * row + (1 - beta) * g2.mean(-1)
    col = beta * col + (1 - beta) * g2.mean(-2)
    u = g / (row / row.mean())[:, None].sqrt() / col[None].sqrt()
    u = u / (u.pow(2).mean().sqrt()).clamp(min=1.0)
    return p - 0.01 * u, row, col
""",
        "torch.randn(M, N), torch.randn(M, N), torch.rand(M), torch.rand(N)",
    ),
    "four_bit_floats_in_blocks_of_32": task(
        "N 1 256 48, K 1 16 4",
        """
def reference(packed, scale, x, table):
    low, high = packed & 15, packed >> 4
    w = table[torch.stack((low, high), -1).flatten(-2).long()]
    w = w.view(w.shape[0], -1, 32) * torch.exp2(scale.float() - 127.0)[..., None]
    return w.flatten(1) @ x
""",
        "torch.randint(0, 256, (N, 16 * K), dtype=torch.uint8), torch.randint(120, 132, (N, K), "
        "dtype=torch.uint8), torch.randn(32 * K), torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, "
        "-1.5, -2, -3, -4, -6])",
    ),
    "rotated_and_packed_in_four_bits": task(
        "T 1 128 32",
        """
def reference(x):
    h = x
    for k in range(6):
        a = h.view(h.shape[0], -1, 2, 2 ** k)
        h = torch.stack((a[:, :, 0] + a[:, :, 1], a[:, :, 0] - a[:, :, 1]), 2).view_as(x)
    h = h / 8
    s = h.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 7
    q = (h / s).round().clamp(-8, 7).to(torch.int8)
    return (q[:, ::2] & 15) | (q[:, 1::2] << 4), s
""",
        "torch.randn(T, 64)",
    ),
    "a_ratio_of_whole_sequences_clipped_twice": task(
        "B 1 16 6, T 2 128 40",
        """
def reference(logp, old, mask, adv):
    length = mask.sum(-1).clamp(min=1)
    ratio = torch.exp(((logp - old) * mask).sum(-1) / length)
    capped = torch.minimum(ratio * adv, ratio.clamp(1 - 3e-4, 1 + 4e-4) * adv)
    capped = torch.where(adv < 0, torch.maximum(capped, 3 * adv), capped)
    entropy = -(logp * mask).sum() / mask.sum().clamp(min=1)
    clipped = ((ratio - 1).abs() > 3e-4).float().mean()
    return -capped.mean(), entropy, clipped
""",
        "-torch.rand(B, T), -torch.rand(B, T), (torch.rand(B, T) > 0.2).float(), torch.randn(B)",
    ),
    "a_value_distribution_projected": task(
        "B 1 128 40",
        """
def reference(probs, reward, done):
    z = torch.linspace(-10, 10, 51)
    t = (reward[:, None] + 0.99 * (1 - done[:, None]) * z).clamp(-10, 10)
    b = (t + 10) / 0.4
    low, high = b.floor().clamp(0, 50), b.ceil().clamp(0, 50)
    same = (low == high).float()
    m = torch.zeros_like(probs)
    m = m.scatter_add(1, low.long(), probs * (high - b + same))
    return m.scatter_add(1, high.long(), probs * (b - low))
""",
        "torch.rand(B, 51).softmax(-1), torch.randn(B), (torch.rand(B) > 0.7).float()",
    ),
    "drawn_above_a_share_of_the_best": task(
        "B 1 16 4, V 8 4000 700",
        """
def reference(logits, u):
    p = torch.softmax(logits / 0.8, -1)
    p = torch.where(p >= 0.05 * p.amax(-1, keepdim=True), p, 0.0)
    p = p / p.sum(-1, keepdim=True)
    c = p.cumsum(-1)
    return torch.searchsorted(c, u[:, None] * c[:, -1:]).squeeze(-1).clamp(max=logits.shape[-1] - 1), p
""",
        "torch.randn(B, V) * 3, torch.rand(B)",
    ),
    "repetitions_penalised": task(
        "B 1 6 3, T 2 60 24",
        """
def reference(logits, tokens):
    last = tokens[:, -1:]
    same = tokens[:, :-1] == last
    nxt = tokens[:, 1:]
    count = torch.zeros_like(logits).scatter_add(1, nxt, same.float())
    seen = torch.zeros_like(logits).scatter(1, tokens, 1.0)
    y = torch.where(seen > 0, torch.where(logits > 0, logits / 1.2, logits * 1.2), logits)
    return y - 0.8 * 1.75 ** (count - 1).clamp(min=0) * (count > 0)
""",
        "torch.randn(B, 200), torch.randint(0, 200, (B, T))",
    ),
}

#: diffusion, recommendation, sound, images and physics
RECENT_FIELDS = {
    "a_noisy_step_with_its_likelihood": task(
        "B 1 8 3",
        """
def reference(x, v, sigma, nxt, noise, eta: float = 0.3):
    s, n = sigma.view(-1, 1, 1, 1), nxt.view(-1, 1, 1, 1)
    x0, x1 = x - s * v, x + (1 - s) * v
    std = eta * torch.sqrt(s / (1 - s + 1e-3))
    mean = (1 - n) * x0 + n * x1 - std ** 2 * (s - n) * x1 / (2 * s)
    out = mean + std * torch.sqrt(s - n) * noise
    logp = -((out - mean) ** 2 / (2 * std ** 2 * (s - n))).mean(dim=(1, 2, 3))
    return out, logp
""",
        "torch.randn(B, 4, 16, 16), torch.randn(B, 4, 16, 16), torch.rand(B) * 0.4 + 0.5, "
        "torch.rand(B) * 0.4, torch.randn(B, 4, 16, 16)",
    ),
    "a_rotation_by_frame_row_and_column": task(
        "F_ 1 6 3, H 1 12 5, W 1 12 6",
        """
def reference(x, freqs):
    f, h, w, n, d = x.shape
    half = d // 2
    a, b = half - 2 * (half // 3), half // 3
    t = torch.cat((
        (torch.arange(f)[:, None] * freqs[:a]).view(f, 1, 1, a).expand(f, h, w, a),
        (torch.arange(h)[:, None] * freqs[a : a + b]).view(1, h, 1, b).expand(f, h, w, b),
        (torch.arange(w)[:, None] * freqs[a + b :]).view(1, 1, w, b).expand(f, h, w, b),
    ), -1)[:, :, :, None]
    pairs = x.unflatten(-1, (-1, 2))
    re, im = pairs[..., 0], pairs[..., 1]
    return torch.stack((re * t.cos() - im * t.sin(), re * t.sin() + im * t.cos()), -1).flatten(-2)
""",
        "torch.randn(F_, H, W, 2, 24), torch.rand(12)",
    ),
    "blocks_of_a_video_as_channels": task(
        "F_ 1 6 2, H 1 10 4",
        """
def reference(x, w):
    b, c, f, h, ww = x.shape
    y = x.view(b, c, f // 2, 2, h // 2, 2, ww // 2, 2).permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(1, 4)
    short = y.view(b, w.shape[0], -1, f // 2, h // 2, ww // 2).mean(2)
    return torch.einsum("bcfhw,oc->bofhw", y, w) + short
""",
        "torch.randn(2, 4, 2 * F_, 2 * H, 2 * H), torch.randn(16, 32) * .1",
    ),
    "products_of_all_pairs_of_features": task(
        "B 1 256 64",
        """
def reference(dense, sparse):
    z = torch.cat((dense[:, None], sparse), 1)
    p = z @ z.transpose(1, 2)
    i, j = torch.tril_indices(z.shape[1], z.shape[1], -1)
    return torch.cat((dense, p[:, i, j]), -1)
""",
        "torch.randn(B, 16), torch.randn(B, 8, 16)",
    ),
    "attention_without_softmax_by_time": task(
        "B 1 4 2, N 4 128 33",
        """
def reference(q, k, v, u, ts, table):
    apart = (ts[:, :, None] - ts[:, None, :]).abs().clamp(min=1)
    bucket = (torch.log(apart.float()) / 0.301).long().clamp(0, table.shape[0] - 1)
    n = q.shape[1]
    s = F.silu(torch.einsum("bnhd,bmhd->bhnm", q, k) + table[bucket][:, None]) / n
    mask = torch.tril(torch.ones(n, n))
    y = torch.einsum("bhnm,bmhd->bnhd", s * mask, v)
    return F.layer_norm(y.flatten(2), (y.shape[2] * y.shape[3],)) * u
""",
        "torch.randn(B, N, 2, 16), torch.randn(B, N, 2, 16), torch.randn(B, N, 2, 16), torch.randn(B, N, "
        "32), torch.randint(0, 100000, (B, N)).sort(-1).values, torch.randn(32)",
    ),
    "other_rows_of_a_batch_as_negatives": task(
        "B 2 256 96",
        """
def reference(user, item, ids, popularity):
    u, v = F.normalize(user, dim=-1), F.normalize(item, dim=-1)
    s = u @ v.t() / 0.07 - torch.log(popularity)[None]
    same = ids[:, None] == ids[None]
    s = s.masked_fill(same & ~torch.eye(len(ids), dtype=torch.bool), float("-inf"))
    return F.cross_entropy(s, torch.arange(len(ids)))
""",
        "torch.randn(B, 32), torch.randn(B, 32), torch.randint(0, 50, (B,)), torch.rand(B) + 0.01",
    ),
    "a_masked_depthwise_convolution_block": task(
        "B 1 4 2, T 8 200 60",
        """
def reference(x, w1, dw, gamma, beta, mean, var, w2, keep):
    y = F.glu(F.linear(F.layer_norm(x, (x.shape[-1],)), w1), -1)
    y = y.masked_fill(~keep[..., None], 0.0).transpose(1, 2)
    y = F.conv1d(y, dw, padding=7, groups=y.shape[1])
    y = F.silu(F.batch_norm(y, mean, var, gamma, beta)).transpose(1, 2)
    return x + F.linear(y, w2)
""",
        "torch.randn(B, T, 32), torch.randn(64, 32) * .2, torch.randn(32, 1, 15) * .2, torch.rand(32), "
        "torch.randn(32), torch.randn(32), torch.rand(32) + .5, torch.randn(32, 32) * .2, torch.rand(B, "
        "T) > 0.2",
    ),
    "a_sine_at_twice_the_rate": task(
        "B 1 4 2, T 8 400 90",
        """
def reference(x, alpha, filt):
    c = x.shape[1]
    up = 2 * F.conv_transpose1d(F.pad(x, (5, 5), mode="replicate"), filt.expand(c, -1, -1), stride=2, groups=c)
    up = up[..., 15:-15]
    up = up + torch.sin(up * alpha) ** 2 / (alpha + 1e-9)
    return F.conv1d(F.pad(up, (5, 6), mode="replicate"), filt.expand(c, -1, -1), stride=2, groups=c)
""",
        "torch.randn(B, 8, T), torch.rand(8, 1) + 0.5, torch.hann_window(12).view(1, 1, 12) / 6",
    ),
    "samples_at_learned_places": task(
        "B 1 3 2, Q 1 100 30, H 4 32 12",
        """
def reference(value, loc, weight):
    b, s, heads, d = value.shape
    h = math.isqrt(s)
    grid = (2 * loc - 1).transpose(1, 2).flatten(0, 1)
    v = value.flatten(2).transpose(1, 2).reshape(b * heads, d, h, h)
    got = F.grid_sample(v, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    w = weight.transpose(1, 2).reshape(b * heads, 1, loc.shape[1], -1)
    return (got * w).sum(-1).view(b, heads * d, -1).transpose(1, 2)
""",
        "torch.randn(B, H * H, 2, 8), torch.rand(B, Q, 2, 4, 2), torch.rand(B, Q, 2, 4).softmax(-1)",
    ),
    "blended_gaussians": task(
        "P 1 400 100, G 1 64 24",
        """
def reference(xy, mean, conic, opacity, color):
    d = xy[:, None] - mean[None]
    power = -0.5 * (conic[:, 0] * d[..., 0] ** 2 + conic[:, 2] * d[..., 1] ** 2) - conic[:, 1] * d[..., 0] * d[..., 1]
    alpha = (opacity * torch.exp(power)).clamp(max=0.99)
    alpha = torch.where((power <= 0) & (alpha >= 1 / 255), alpha, 0.0)
    left = torch.cumprod(1 - alpha, 1)
    before = torch.cat((torch.ones_like(left[:, :1]), left[:, :-1]), 1)
    return (alpha * before) @ color + left[:, -1:] * 0.5
""",
        "torch.rand(P, 2), torch.rand(G, 2), torch.rand(G, 3) * torch.tensor([10., 1., 10.]), torch.rand(G), "
        "torch.rand(G, 3)",
    ),
    "forces_within_a_distance": task(
        "N 2 128 48",
        """
def reference(pos, box: float = 6.0):
    d = pos[:, None] - pos[None]
    d = d - box * torch.round(d / box)
    r2 = (d * d).sum(-1) + torch.eye(pos.shape[0]) * 1e6
    inv6 = torch.where(r2 < 6.25, 1 / r2 ** 3, 0.0).clamp(max=1e3)
    force = (24 * (2 * inv6 * inv6 - inv6) / r2)[..., None] * d
    return force.sum(1), 2 * (inv6 * inv6 - inv6).sum()
""",
        "torch.rand(N, 3) * 6",
    ),
    "a_weighted_stencil_of_fifth_order": task(
        "N 8 4000 500",
        """
def reference(u):
    v = F.pad(u[None], (3, 3), mode="circular")[0]
    n = u.shape[0]
    a, b, c, d, e = (v[k : k + n] for k in range(1, 6))
    b0 = 13 / 12 * (a - 2 * b + c) ** 2 + 0.25 * (a - 4 * b + 3 * c) ** 2
    b1 = 13 / 12 * (b - 2 * c + d) ** 2 + 0.25 * (b - d) ** 2
    b2 = 13 / 12 * (c - 2 * d + e) ** 2 + 0.25 * (3 * c - 4 * d + e) ** 2
    w0, w1, w2 = 0.1 / (1e-6 + b0) ** 2, 0.6 / (1e-6 + b1) ** 2, 0.3 / (1e-6 + b2) ** 2
    p = (w0 * (2 * a - 7 * b + 11 * c) + w1 * (-b + 5 * c + 2 * d) + w2 * (2 * c + 5 * d - e)) / (6 * (w0 + w1 + w2))
    return u - 0.1 * (p - p.roll(1))
""",
        "torch.randn(N)",
    ),
    "means_and_maxima_of_ragged_rows": task(
        "TOTAL 1 2000 150, NSEQ 1 64 9",
        """
def reference(values, lengths):
    n = lengths.shape[0]
    seg = torch.bucketize(torch.arange(values.shape[0]), lengths.cumsum(0), right=True).clamp(max=n - 1)
    total = torch.zeros(n, values.shape[1]).index_add(0, seg, values)
    count = torch.zeros(n).index_add(0, seg, torch.ones(values.shape[0]))
    top = torch.full((n, values.shape[1]), -1e4).index_reduce(0, seg, values, "amax")
    return total / count.clamp(min=1)[:, None], top
""",
        "torch.randn(TOTAL, 8), torch.full((NSEQ,), TOTAL // NSEQ)",
    ),
}

RECENT = {**RECENT_LANGUAGE, **RECENT_FIELDS}
