"""References of language, pictures, sound and recommenders as people write them in 2026."""

from __future__ import annotations

from tests.practice.cases import task

#: language
CURRENT_LANGUAGE = {
    "one_of_two_rotary_tables": task(
        "B 1 4 2, S 4 200 40",
        """
def reference(q, k, v, freq_local, freq_global, is_local: int = 1):
    # one of two rotary tables, chosen by a flag
    freq = torch.where(torch.tensor(is_local > 0), freq_local, freq_global)
    angle = torch.arange(q.shape[2])[:, None] * freq
    cos, sin = angle.cos(), angle.sin()
    def turn(x):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    q, k = turn(q), turn(k)
    s = q @ k.mT * 0.25
    i = torch.arange(q.shape[2])
    near = (i[:, None] >= i) & (i[:, None] - i < 16)
    return s.masked_fill(~near, -1e9).softmax(-1) @ v
""",
        "torch.randn(B, 2, S, 16), torch.randn(B, 2, S, 16), torch.randn(B, 2, S, 16), torch.rand(8), torch.rand(8)",
    ),
    "a_convolution_state_moved_on": task(
        "B 1 64 9, D 4 200 48",
        """
def reference(state, x, w, b):
    state = torch.cat((state[:, :, 1:], x[:, :, None]), 2)
    return F.silu((state * w).sum(-1) + b), state
""",
        "torch.randn(B, D, 4), torch.randn(B, D), torch.randn(D, 4), torch.randn(D)",
    ),
    "states_at_the_begin_of_chunks": task(
        "B 1 3 2, N 1 6 3",
        """
def reference(k, v, g):
    # states at chunk ends, 16 steps a chunk
    b, t, dk = k.shape
    k, v, g = k.view(b, -1, 16, dk), v.view(b, -1, 16, v.shape[-1]), g.view(b, -1, 16, dk)
    total = g.cumsum(2)
    last = total[:, :, -1:]
    part = (k * (last - total).exp()).mT @ v
    h = torch.zeros(b, dk, v.shape[-1])
    out = []
    for i in range(part.shape[1]):
        out.append(h)
        h = h * last[:, i, 0, :, None].exp() + part[:, i]
    return torch.stack(out, 1), h
""",
        "torch.randn(B, 16 * N, 8), torch.randn(B, 16 * N, 12), -torch.rand(B, 16 * N, 8)",
    ),
    "a_short_convolution_added": task(
        "B 1 4 2, T 1 300 50",
        """
def reference(x, w):
    y = F.conv1d(F.pad(x.mT, (3, 0)), w, groups=w.shape[0]).mT
    return x + y
""",
        "torch.randn(B, T, 24), torch.randn(24, 1, 4)",
    ),
    "losses_of_several_heads_ahead": task(
        "T 4 200 40, V 10 300 77",
        """
def reference(h, w, y):
    loss = 0.0
    for k in range(3):
        logits = h[: h.shape[0] - k] @ w[k]
        loss = loss + F.cross_entropy(logits, y[k:], label_smoothing=0.05, ignore_index=-100) * 0.5 ** k
    return loss
""",
        "torch.randn(T, 16), torch.randn(3, 16, V) * 0.2, torch.randint(0, V, (T,))",
    ),
    "heads_scaled_under_a_limit": task(
        "H 1 16 8, D 8 64 24",
        """
def reference(wq, wk, top, limit: float = 100.0):
    # MuonClip's rescale of the heads whose largest logit is above a limit
    scale = (limit / top.clamp(min=limit)).sqrt()
    return wq * scale[:, None, None], wk * scale[:, None, None]
""",
        "torch.randn(H, D, 40), torch.randn(H, D, 40), torch.rand(H) * 200",
    ),
}


#: pictures
CURRENT_PICTURES = {
    "a_step_shifted_by_the_number_of_tokens": task(
        "B 1 8 2, S 4 512 64",
        """
def reference(x, v, t):
    # flow matching, shifted by the number of tokens
    mu = 0.5 + (1.15 - 0.5) * (x.shape[1] - 256) / (4096 - 256)
    shift = math.exp(mu)
    now = shift * t / (1 + (shift - 1) * t)
    then = shift * (t - 0.05).clamp(min=0) / (1 + (shift - 1) * (t - 0.05).clamp(min=0))
    return x + (then - now)[:, None, None] * v
""",
        "torch.randn(B, S, 16), torch.randn(B, S, 16), torch.rand(B)",
    ),
    "guidance_across_and_along": task(
        "B 1 4 2, H 4 32 12, W 4 32 9",
        """
def reference(c, u, scale: float = 7.5, eta: float = 0.2):
    d = c - u
    n = d.norm(p=2, dim=(1, 2, 3), keepdim=True)
    d = d * torch.minimum(torch.ones_like(n), 15.0 / n)
    v = F.normalize(c, dim=(1, 2, 3))
    along = (d * v).sum((1, 2, 3), keepdim=True) * v
    return c + (scale - 1) * (d - along + eta * along)
""",
        "torch.randn(B, 4, H, W), torch.randn(B, 4, H, W)",
    ),
    "channels_averaged_past_a_convolution": task(
        "B 1 3 2, H 2 20 8, W 2 20 7",
        """
def reference(x, w):
    # deep compression autoencoder's downsample: convolution and averaged unshuffled channels
    y = F.pixel_unshuffle(F.conv2d(x, w, padding=1), 2)
    s = F.pixel_unshuffle(x, 2).unflatten(1, (16, -1)).mean(2)
    return y + s
""",
        "torch.randn(B, 8, 2 * H, 2 * W), torch.randn(4, 8, 3, 3) * 0.2",
    ),
    "patches_kept_and_averaged": task(
        "B 1 8 3, N 4 256 40",
        """
def reference(tokens, keep):
    cls, reg, patch = tokens[:, 0], tokens[:, 1:5], tokens[:, 5:]
    m = keep.to(patch.dtype)[..., None]
    mean = (patch * m).sum(1) / m.sum(1).clamp(min=1)
    return torch.cat((cls, reg.flatten(1), mean), -1)
""",
        "torch.randn(B, N + 5, 12), torch.rand(B, N) > 0.3",
    ),
    "overlap_and_focal_loss_of_masks": task(
        "B 1 6 3, H 4 40 16, W 4 40 13",
        """
def reference(x, y):
    p = x.sigmoid().flatten(1)
    t = y.flatten(1)
    ce = F.binary_cross_entropy_with_logits(x.flatten(1), t, reduction="none")
    pt = p * t + (1 - p) * (1 - t)
    focal = ((0.25 * t + 0.75 * (1 - t)) * ce * (1 - pt) ** 2).mean(1)
    dice = 1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)
    return focal.mean(), dice.mean()
""",
        "torch.randn(B, H, W), (torch.rand(B, H, W) > 0.6).float()",
    ),
    "a_level_of_a_hashed_grid": task(
        "N 1 500 120",
        """
def reference(p, table):
    # one level of a hash grid of 2^12 entries: eight corners, trilinear
    x = p * 31.0
    f = x.floor()
    w = x - f
    i = f.long()
    out = 0.0
    for c in range(8):
        o = torch.tensor([c & 1, (c >> 1) & 1, (c >> 2) & 1])
        j = i + o
        h = (j[:, 0] ^ (j[:, 1] * 2654435761) ^ (j[:, 2] * 805459861)) & 4095
        k = torch.where(o.bool(), w, 1 - w).prod(-1, keepdim=True)
        out = out + table[h] * k
    return out
""",
        "torch.rand(N, 3), torch.randn(4096, 2)",
    ),
    "edges_thinned_along_their_direction": task(
        "H 5 40 16, W 5 40 13",
        """
def reference(x):
    g = F.pad(x, (1, 1, 1, 1), mode="replicate")
    dx = g[:, :, 1:-1, 2:] - g[:, :, 1:-1, :-2]
    dy = g[:, :, 2:, 1:-1] - g[:, :, :-2, 1:-1]
    m = torch.hypot(dx, dy)
    q = torch.round(torch.atan2(dy, dx) * 4 / math.pi).long() % 4
    pm = F.pad(m, (1, 1, 1, 1))
    h, w = x.shape[-2:]
    keep = torch.zeros_like(m, dtype=torch.bool)
    for k, (a, b) in enumerate(((0, 1), (1, 1), (1, 0), (1, -1))):
        one = pm[:, :, 1 + a:1 + a + h, 1 + b:1 + b + w]
        two = pm[:, :, 1 - a:1 - a + h, 1 - b:1 - b + w]
        keep = keep | ((q == k) & (m >= one) & (m >= two))
    return torch.where(keep, m, 0.0)
""",
        "torch.randn(1, 2, H, W)",
    ),
}


#: sound and rows
CURRENT_SOUND = {
    "frames_of_the_shortest_signal": task(
        "N 400 4000 1700",
        """
def reference(x):
    y = torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1)
    f = y.unfold(1, 400, 160)
    f = f - f.mean(-1, keepdim=True)
    return torch.log(f.square().sum(-1).clamp(min=1e-10)), (f[..., 1:] * f[..., :-1] < 0).float().mean(-1)
""",
        "torch.randn(2, N)",
    ),
    "scores_by_relative_places_and_two_biases": task(
        "B 1 4 2, T 2 60 20",
        """
def reference(q, k, r, u, v):
    a = (q + u) @ k.mT
    b = (q + v) @ r.mT
    n, h, t, m = b.shape
    b = F.pad(b, (1, 0)).view(n, h, m + 1, t)[:, :, 1:].reshape(n, h, t, m)[..., : t]
    return ((a + b) * 0.25).softmax(-1)
""",
        "torch.randn(B, 2, T, 16), torch.randn(B, 2, T, 16), torch.randn(2 * T - 1, 16), torch.randn(16), "
        "torch.randn(16)",
    ),
    "codes_of_what_is_left": task(
        "N 1 300 60",
        """
def reference(x, books):
    # four code books one after the other, nearest by squared distance
    rest, codes, total = x, [], torch.zeros_like(x)
    for q in range(4):
        d = rest.square().sum(-1, keepdim=True) - 2 * rest @ books[q].T + books[q].square().sum(-1)
        i = d.argmin(-1)
        codes.append(i)
        rest, total = rest - books[q][i], total + books[q][i]
    return total, torch.stack(codes, -1)
""",
        "torch.randn(N, 8), torch.randn(4, 32, 8)",
    ),
    "interests_by_routing": task(
        "B 1 32 9, L 1 64 20",
        """
def reference(x, keep, s):
    u = torch.zeros(x.shape[0], 4, x.shape[1]) + s
    for k in range(3):
        w = u.masked_fill(~keep[:, None], -1e9).softmax(1)
        z = (w * keep[:, None]) @ x
        n = z.square().sum(-1, keepdim=True)
        z = n / (1 + n) * z * torch.rsqrt(n + 1e-9)
        if k < 2:
            u = u + z @ x.mT
    return z
""",
        "torch.randn(B, L, 8), torch.rand(B, L) > 0.2, torch.randn(4, 1)",
    ),
    "attention_by_buckets_of_time": task(
        "B 1 4 2, L 2 100 30",
        """
def reference(q, k, v, t, table):
    gap = (t[:, :, None] - t[:, None]).abs().clamp(min=1)
    bucket = (torch.log(gap.float()) / 0.301).long().clamp(0, table.shape[0] - 1)
    s = F.silu(q @ k.mT + table[bucket]) / q.shape[1]
    return torch.tril(s) @ v
""",
        "torch.randn(B, L, 16), torch.randn(B, L, 16), torch.randn(B, L, 16), torch.randint(0, 100000, (B, "
        "L)), torch.randn(20)",
    ),
    "products_of_means_of_ragged_rows": task(
        "B 1 40 12, L 1 400 120",
        """
def reference(values, offsets, other):
    n = offsets[1:] - offsets[:-1]
    seg = torch.repeat_interleave(torch.arange(n.shape[0]), n, output_size=values.shape[0])
    mean = torch.zeros(n.shape[0], values.shape[1]).index_add(0, seg, values) / n.clamp(min=1)[:, None]
    z = torch.stack((mean, other, mean * other), 1)
    return torch.bmm(z, z.mT)
""",
        "torch.randn(L, 8), torch.cat((torch.zeros(1, dtype=torch.long), torch.sort(torch.randint(0, L + 1, "
        "(B - 1,))).values, torch.tensor([L]))), torch.randn(B, 8)",
    ),
    "softmax_over_sampled_products": task(
        "E 1 400 120, N 1 60 20",
        """
def reference(q, k, row, col):
    s = (q[row] * k[col]).sum(-1) / q.shape[-1] ** 0.5
    top = torch.full((q.shape[0],), float("-inf")).scatter_reduce(0, row, s, "amax", include_self=False)
    e = (s - top[row]).exp()
    z = torch.zeros(q.shape[0]).index_add(0, row, e)
    return e / z[row]
""",
        "torch.randn(N, 8), torch.randn(N, 8), torch.randint(0, N, (E,)), torch.randint(0, N, (E,))",
    ),
}

CURRENT = {**CURRENT_LANGUAGE, **CURRENT_PICTURES, **CURRENT_SOUND}
