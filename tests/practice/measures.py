"""References of fields, narrow numbers, optimisers, losses and samplers, and of numbers that come from sizes."""

from __future__ import annotations

from tests.practice.cases import task

#: fields and numbers
MEASURES_FIELDS = {
    "a_step_of_shallow_water": task(
        "H 4 60 20, W 4 60 17",
        """
def reference(h, u, v, dt: float = 0.01):
    dx = lambda a: (torch.roll(a, -1, 1) - torch.roll(a, 1, 1)) * 0.5
    dy = lambda a: (torch.roll(a, -1, 0) - torch.roll(a, 1, 0)) * 0.5
    h2 = h - dt * (dx(h * u) + dy(h * v))
    return h2, u - dt * (u * dx(u) + v * dy(u) + 9.81 * dx(h2)), v - dt * (u * dx(v) + v * dy(v) + 9.81 * dy(h2))
""",
        "torch.rand(H, W) + 1, torch.randn(H, W), torch.randn(H, W)",
    ),
    "a_flux_with_limited_slopes": task(
        "N 4 900 200",
        """
def reference(u, c: float = 0.4):
    p = F.pad(u[:, None], (2, 2), mode="circular")[:, 0]
    d = p[:, 1:] - p[:, :-1]
    a, b = d[:, :-1], d[:, 1:]
    s = torch.where(a * b > 0, torch.where(a.abs() < b.abs(), a, b), torch.zeros_like(a))
    face = p[:, 1:-1] + 0.5 * (1 - c) * s
    return u - c * (face[:, 1:-1] - face[:, :-2])
""",
        "torch.randn(3, N)",
    ),
    "forces_to_the_nearest_image": task(
        "N 2 120 40",
        """
def reference(x, box: float = 10.0):
    d = x[:, None] - x
    d = d - box * torch.round(d / box)
    r2 = d.square().sum(-1) + torch.eye(x.shape[0]) * 1e6
    i6 = (1.0 / r2) ** 3
    keep = r2 < 9.0
    e = torch.where(keep, 4 * (i6 * i6 - i6), 0.0)
    f = torch.where(keep, 24 * (2 * i6 * i6 - i6) / r2, 0.0)
    return 0.5 * e.sum(), (f[..., None] * d).sum(1)
""",
        "torch.rand(N, 3) * 10",
    ),
    "rows_in_eight_bit_floats": task(
        "M 1 64 9, K 16 256 48, N 16 128 33",
        """
def reference(x, w, sw, b):
    s = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    q = (x / s).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (q.float() @ w.float().T) * s * sw + b
""",
        "torch.randn(M, K), torch.randn(N, K).to(torch.float8_e4m3fn), torch.rand(N), torch.randn(N)",
    ),
    "nibbles_scaled_by_channel": task(
        "S 2 200 40",
        """
def reference(packed, scale, zero):
    low, high = packed & 15, packed >> 4
    x = torch.stack((low, high), -1).flatten(-2).float()
    return (x - zero) * scale
""",
        "torch.randint(0, 256, (2, S, 8), dtype=torch.uint8), torch.rand(2, 1, 16), torch.rand(2, 1, 16) * 15",
    ),
    "rows_turned_and_rounded": task(
        "M 1 64 9",
        """
def reference(x):
    h = x
    step = 1
    while step < 32:
        h = h.view(x.shape[0], -1, 2, step)
        h = torch.stack((h[:, :, 0] + h[:, :, 1], h[:, :, 0] - h[:, :, 1]), 2).view(x.shape[0], 32)
        step *= 2
    h = h / 32 ** 0.5
    s = h.abs().amax(-1, keepdim=True) / 127
    return torch.round(h / s).clamp(-127, 127).to(torch.int8), s
""",
        "torch.randn(M, 32)",
    ),
}


#: optimisers, losses, samplers
MEASURES_OPTIMISERS = {
    "a_step_clipped_by_its_number": task(
        "N 1 900 200",
        """
def reference(p, g, m, v, step: int = 7):
    clip = step ** 0.25
    u = (g / v.sqrt().clamp(min=1e-6)).clamp(-clip, clip)
    m2 = 0.9 * m + 0.1 * u
    return p - 1e-3 * m2, m2, 0.9999 * v + 0.0001 * g * g
""",
        "torch.randn(N), torch.randn(N), torch.randn(N), torch.rand(N)",
    ),
    "a_step_in_a_turned_basis": task(
        "M 4 60 24, N 4 60 18",
        """
def reference(g, ql, qr, v):
    a = ql.T @ g @ qr
    v2 = 0.95 * v + 0.05 * a * a
    return ql @ (a / (v2.sqrt() + 1e-8)) @ qr.T, v2
""",
        "torch.randn(M, N), torch.randn(M, M), torch.randn(N, N), torch.rand(M, N)",
    ),
    "tokens_of_answers_too_long": task(
        "B 1 16 4, T 2 200 40",
        """
def reference(new, old, adv, mask, limit: int = 32):
    ratio = (new - old).exp()
    n = mask.sum(1)
    over = ((n - (limit - 8)).clamp(min=0) / 8).clamp(max=1)
    a = (adv - over)[:, None]
    loss = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a)
    return (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        "torch.randn(B, T) * 0.1, torch.randn(B, T) * 0.1, torch.randn(B), (torch.rand(B, T) > 0.2).float()",
    ),
    "targets_of_clipped_ratios": task(
        "T 1 60 20, B 1 40 9",
        """
def reference(logr, reward, value, boot, gamma: float = 0.99):
    rho, c = logr.exp().clamp(max=1.0), logr.exp().clamp(max=1.0)
    nxt = torch.cat((value[1:], boot[None]))
    delta = rho * (reward + gamma * nxt - value)
    acc, out = torch.zeros_like(boot), []
    for t in range(value.shape[0] - 1, -1, -1):
        acc = delta[t] + gamma * c[t] * acc
        out.append(acc)
    return torch.stack(out[::-1]) + value
""",
        "torch.randn(T, B) * 0.3, torch.randn(T, B), torch.randn(T, B), torch.randn(B)",
    ),
    "kept_above_a_share_with_biases": task(
        "B 1 16 4, V 8 2000 300",
        """
def reference(logits, bias, token, p: float = 0.1):
    x = logits / 0.7
    x = x.index_add(1, token, bias[None].expand(x.shape[0], -1))
    q = x.softmax(-1)
    x = x.masked_fill(q < p * q.amax(-1, keepdim=True), float("-inf"))
    return x.log_softmax(-1)
""",
        "torch.randn(B, V), torch.randn(5), torch.randint(0, V, (5,))",
    ),
    "drawn_within_a_spread": task(
        "B 1 16 4, V 8 2000 300",
        """
def reference(logits, u):
    cut = logits.amax(-1, keepdim=True) - 1.0 * logits.std(-1, keepdim=True)
    kept = logits.masked_fill(logits < cut, float("-inf"))
    return (kept - torch.log(-torch.log(u.clamp(1e-9, 1 - 1e-7)))).argmax(-1)
""",
        "torch.randn(B, V), torch.rand(B, V)",
    ),
}


#: numbers of sizes
MEASURES_NUMBERS = {
    "a_window_by_bessel": task(
        "N 8 400 90",
        """
def reference(x):
    w = torch.kaiser_window(x.shape[-1], periodic=False, beta=6.0)
    return x * w
""",
        "torch.randn(3, N)",
    ),
    "two_triangular_windows": task(
        "N 8 400 90",
        """
def reference(x):
    return x * torch.bartlett_window(x.shape[-1]) + torch.bartlett_window(x.shape[-1], periodic=False)
""",
        "torch.randn(3, N)",
    ),
    "windows_of_two_or_three": task(
        "N 8 400 90",
        """
def reference(x):
    return F.adaptive_avg_pool1d(x, x.shape[-1] // 2)
""",
        "torch.randn(2, 3, N)",
    ),
    "largest_of_uneven_windows": task(
        "H 9 40 20, W 9 40 17",
        """
def reference(x):
    return F.adaptive_max_pool2d(x, (x.shape[-2] // 3, x.shape[-1] // 3))
""",
        "torch.randn(2, 3, H, W)",
    ),
    "a_fixed_number_of_windows": task(
        "H 1 40 20, W 1 40 17",
        """
def reference(x, w):
    return F.adaptive_avg_pool2d(x, (7, 3)).flatten(1) @ w
""",
        "torch.randn(2, 3, H, W), torch.randn(63, 5)",
    ),
    "uneven_windows_of_fixed_rows": task(
        "B 1 40 20",
        """
def reference(x):
    return F.adaptive_max_pool1d(x, 5), torch.nn.AdaptiveAvgPool2d((None, 4))(x[:, None])
""",
        "torch.randn(B, 3, 13)",
    ),
    "a_scalar_tensor_of_a_root": task(
        "N 2 400 91",
        """
def reference(x):
    s = torch.full((), x.shape[-1] ** 0.5)
    return x / s
""",
        "torch.randn(5, N)",
    ),
}

MEASURES = {**MEASURES_FIELDS, **MEASURES_OPTIMISERS, **MEASURES_NUMBERS}
