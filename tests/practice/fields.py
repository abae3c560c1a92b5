"""Operators of other fields as practitioners write them: images, sound, recommendation, physics, graphs, optimisers."""

from __future__ import annotations

from tests.practice.cases import task

#: diffusion and images
IMAGES = {
    "modulated_by_a_time": task(
        "B 1 6 3, T 1 64 12",
        """
def reference(x, time, weight):
    rates = torch.exp(-math.log(10000.0) * torch.arange(8, dtype=torch.float32) / 8)
    angles = time[:, None] * rates
    shift, scale, gate = F.linear(torch.cat((angles.cos(), angles.sin()), -1), weight).chunk(3, -1)
    y = F.layer_norm(x, (24,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    return x + gate[:, None] * y
""",
        "torch.randn(B, T, 24), torch.rand(B) * 100, torch.randn(72, 16)",
    ),
    "gated_by_gelu": task(
        "T 1 64 12",
        """
def reference(x, weight, bias):
    value, gate = F.linear(x, weight, bias).chunk(2, dim=-1)
    return value * F.gelu(gate)
""",
        "torch.randn(T, 32), torch.randn(96, 32), torch.randn(96)",
    ),
    "guidance_of_the_same_spread": task(
        "B 1 6 3, H 1 20 9",
        """
def reference(text, free, scale: float = 5.0, mix: float = 0.7):
    both = free + scale * (text - free)
    axes = list(range(1, text.ndim))
    even = both * (text.std(dim=axes, keepdim=True) / both.std(dim=axes, keepdim=True))
    return mix * even + (1 - mix) * both
""",
        "torch.randn(B, 4, H, 8), torch.randn(B, 4, H, 8)",
    ),
    "one_step_back_in_time": task(
        "B 1 6 3, H 1 20 9",
        """
def reference(x, noise, alphas, now, then):
    a, b = alphas[now].view(-1, 1, 1, 1), alphas[then].view(-1, 1, 1, 1)
    clean = ((x - (1 - a).sqrt() * noise) / a.sqrt()).clamp(-1, 1)
    return b.sqrt() * clean + (1 - b).sqrt() * (x - a.sqrt() * clean) / (1 - a).sqrt()
""",
        "torch.randn(B, 4, H, 8), torch.randn(B, 4, H, 8), torch.linspace(0.95, 0.05, 50),"
        " torch.randint(10, 50, (B,)), torch.randint(0, 10, (B,))",
    ),
    "patches_merged_by_four": task(
        "H 1 16 6, W 1 16 5",
        """
def reference(x, weight):
    h, w, c = x.shape
    y = x.view(h // 2, 2, w // 2, 2, c).permute(0, 2, 1, 3, 4).reshape(-1, 4 * c)
    return F.linear(F.layer_norm(y, (4 * c,)), weight)
""",
        "torch.randn(2 * H, 2 * W, 6), torch.randn(10, 24)",
    ),
    "windows_of_a_shifted_image": task(
        "B 1 6 3",
        """
def reference(x):
    b, h, w, c = x.shape
    y = torch.roll(x, (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c)
    y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    return y - y.mean(1, keepdim=True)
""",
        "torch.randn(B, 8, 12, 6)",
    ),
    "generalised_overlap_of_boxes": task(
        "N 1 300 70",
        """
def reference(a, b):
    low, high = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    sizes = [(box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) for box in (a, b)]
    union = sizes[0] + sizes[1] - inter
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    return 1 - (inter / (union + 1e-7) - (hull - union) / (hull + 1e-7))
""",
        "torch.rand(N, 4) + torch.tensor([0.0, 0, 1, 1]), torch.rand(N, 4) + torch.tensor([0.0, 0, 1, 1])",
    ),
    "boxes_from_offsets": task(
        "N 1 300 70",
        """
def reference(anchors, delta):
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + 0.5 * size
    centre = delta[:, :2] * size + centre
    size = torch.exp(delta[:, 2:].clamp(max=math.log(1000.0 / 16))) * size
    return torch.cat((centre - 0.5 * size, centre + 0.5 * size), dim=1)
""",
        "torch.cat((torch.rand(N, 2), 1 + torch.rand(N, 2)), 1), torch.randn(N, 4)",
    ),
    "loss_that_minds_the_hard": task(
        "N 1 300 70",
        """
def reference(logits, wanted, alpha: float = 0.25, gamma: float = 2.0):
    p = torch.sigmoid(logits)
    cross = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    sure = p * wanted + (1 - p) * (1 - wanted)
    return ((alpha * wanted + (1 - alpha) * (1 - wanted)) * cross * (1 - sure) ** gamma).sum(1).mean()
""",
        "torch.randn(N, 6), torch.randint(0, 2, (N, 6)).float()",
    ),
    "likeness_of_structure": task(
        "B 1 6 2, H 11 40 17",
        """
def reference(x, y):
    kernel = torch.exp(-((torch.arange(7) - 3.0) ** 2) / 4.5)
    kernel = (kernel[:, None] * kernel / kernel.sum() ** 2).expand(3, 1, 7, 7)
    blur = lambda z: F.conv2d(z, kernel, groups=3)
    mx, my = blur(x), blur(y)
    vx, vy, both = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    top = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
    return (top / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))).mean((1, 2, 3))
""",
        "torch.rand(B, 3, H, 16), torch.rand(B, 3, H, 16)",
    ),
    "image_moved_by_a_flow": task(
        "H 2 40 9, W 2 40 11",
        """
def reference(x, flow):
    h, w = x.shape[-2:]
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    gx = 2 * (columns + flow[:, 0]) / (w - 1) - 1
    gy = 2 * (rows + flow[:, 1]) / (h - 1) - 1
    return F.grid_sample(x, torch.stack((gx, gy), -1), align_corners=True, padding_mode="border")
""",
        "torch.randn(2, 3, H, W), torch.randn(2, 2, H, W)",
    ),
    "place_of_a_heat_map": task(
        "B 1 64 5",
        """
def reference(heat):
    share = (heat.flatten(2) * 10).softmax(-1).view_as(heat)
    xs = torch.linspace(0, 1, heat.shape[-1])
    ys = torch.linspace(0, 1, heat.shape[-2])
    return torch.stack(((share.sum(2) * xs).sum(-1), (share.sum(3) * ys).sum(-1)), -1)
""",
        "torch.randn(B, 4, 12, 16)",
    ),
    "hue_and_saturation": task(
        "N 1 300 70",
        """
def reference(rgb):
    high, where = rgb.max(1)
    low = rgb.min(1).values
    span = high - low
    r, g, b = rgb.unbind(1)
    safe = torch.where(span == 0, torch.ones_like(span), span)
    choices = torch.stack((((g - b) / safe) % 6, (b - r) / safe + 2, (r - g) / safe + 4), 1)
    hue = choices.gather(1, where[:, None])[:, 0] / 6
    return torch.where(span == 0, 0.0, hue), torch.where(high == 0, 0.0, span / high.clamp(min=1e-8)), high
""",
        "torch.rand(N, 3)",
    ),
    "peaks_of_a_heat_map": task(
        "B 1 6 2, H 3 40 13",
        """
def reference(heat):
    peaks = heat.sigmoid()
    kept = peaks * (F.max_pool2d(peaks, 3, stride=1, padding=1) == peaks)
    score, at = kept.flatten(2).topk(5)
    return score, at // heat.shape[-1], at % heat.shape[-1]
""",
        "torch.randn(B, 2, H, 9)",
    ),
}

#: speech and sound
SOUND = {
    "loudness_of_a_spectrum": task(
        "T 1 200 40",
        """
def reference(power, bank):
    log = torch.clamp(bank @ power, min=1e-10).log10()
    return (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0
""",
        "torch.rand(30, T), torch.rand(12, 30)",
    ),
    "companded_samples": task(
        "N 1 300 70",
        """
def reference(x, mu: int = 255):
    y = torch.sign(x) * torch.log1p(mu * torch.abs(x)) / math.log1p(mu)
    code = ((y + 1) / 2 * mu + 0.5).to(torch.int64)
    back = code.float() / mu * 2 - 1
    return code, torch.sign(back) * (torch.exp(torch.abs(back) * math.log1p(mu)) - 1) / mu
""",
        "torch.rand(N) * 2 - 1",
    ),
    "energy_of_frames": task(
        "N 20 900 200",
        """
def reference(x):
    sharp = torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1)
    frames = sharp.unfold(1, 16, 4) * torch.hann_window(16)
    return frames.square().mean(-1).clamp(min=1e-10).log()
""",
        "torch.randn(3, N)",
    ),
    "means_of_sliding_frames": task(
        "N 17 900 200",
        """
def reference(x):
    frames = x.unfold(1, 16, 1)
    return frames.mean(-1), frames.amax(-1)
""",
        "torch.randn(3, N)",
    ),
    "features_up_to_their_lengths": task(
        "B 1 40 5, T 1 60 17",
        """
def reference(x, lengths):
    inside = (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1).float()
    count = lengths.clamp(min=1).view(-1, 1, 1)
    mean = (x * inside).sum(1, keepdim=True) / count
    spread = (((x - mean) * inside) ** 2).sum(1, keepdim=True) / count
    return (x - mean) / (spread + 1e-5).sqrt() * inside
""",
        "torch.randn(B, T, 12), torch.randint(0, T + 1, (B,))",
    ),
    "symbols_without_repeats": task(
        "B 1 40 5, T 1 60 17",
        """
def reference(logits, blank: int = 0):
    best = logits.argmax(-1)
    before = F.pad(best[:, :-1], (1, 0), value=-1)
    kept = (best != before) & (best != blank)
    return torch.where(kept, best, -1), kept.sum(-1)
""",
        "torch.randn(B, T, 9)",
    ),
    "scores_shifted_to_relative_places": task(
        "T 1 60 17",
        """
def reference(x):
    h, t, _ = x.shape
    y = F.pad(x, (1, 0)).view(h, -1, t)
    return y[:, 1:].reshape(h, t, 2 * t - 1)[:, :, :t]
""",
        "torch.randn(2, T, 2 * T - 1)",
    ),
}

#: recommendation and graphs
TABLES = {
    "crossings_of_second_order": task(
        "B 1 64 9",
        """
def reference(table, ids, values):
    v = table[ids] * values[..., None]
    return 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(-1)
""",
        "torch.randn(50, 8), torch.randint(0, 50, (B, 6)), torch.rand(B, 6)",
    ),
    "products_of_all_pairs": task(
        "B 1 64 9",
        """
def reference(dense, sparse):
    x = torch.cat((dense[:, None], sparse), 1)
    all_ = torch.bmm(x, x.transpose(1, 2))
    i, j = torch.tril_indices(6, 6, -1)
    return torch.cat((dense, all_[:, i, j]), 1)
""",
        "torch.randn(B, 8), torch.randn(B, 5, 8)",
    ),
    "crossed_layers": task(
        "B 1 64 9",
        """
def reference(x, weights, biases):
    y = x
    for k in range(3):
        y = x * F.linear(y, weights[k], biases[k]) + y
    return y
""",
        "torch.randn(B, 24), torch.randn(3, 24, 24) * 0.1, torch.randn(3, 24)",
    ),
    "bags_of_rows": task(
        "B 1 64 9",
        """
def reference(table, ids, offsets):
    return F.embedding_bag(ids, table, offsets, mode="mean")
""",
        "torch.randn(50, 8), torch.randint(0, 50, (4 * B,)), torch.arange(B) * 4",
    ),
    "rivals_within_a_batch": task(
        "B 2 64 9",
        """
def reference(users, items, often):
    scores = F.normalize(users, dim=-1) @ F.normalize(items, dim=-1).T / 0.07 - often.log()
    return F.cross_entropy(scores, torch.arange(users.shape[0]))
""",
        "torch.randn(B, 16), torch.randn(B, 16), torch.rand(B) + 0.01",
    ),
    "rows_by_two_hashes": task(
        "B 1 64 9",
        """
def reference(table, ids):
    one = (ids * 2654435761 + 17) % table.shape[0]
    two = (ids * 40503 + 5) % table.shape[0]
    return table[one] + table[two]
""",
        "torch.randn(50, 8), torch.randint(0, 10**6, (B,))",
    ),
    "attention_over_edges": task(
        "N 2 60 11, E 1 300 50",
        """
def reference(x, source, target, left, right):
    score = F.leaky_relu((x @ left)[source] + (x @ right)[target], 0.2)
    top = torch.full((x.shape[0],), float("-inf")).scatter_reduce(0, target, score, "amax")
    weight = torch.exp(score - top[target])
    total = torch.zeros(x.shape[0]).index_add(0, target, weight)
    return torch.zeros_like(x).index_add(0, target, x[source] * (weight / total[target])[:, None])
""",
        "torch.randn(N, 8), torch.randint(0, N, (E,)), torch.randint(0, N, (E,)), torch.randn(8), torch.randn(8)",
    ),
    "neighbours_scaled_by_their_number": task(
        "N 2 60 11, E 1 300 50",
        """
def reference(x, edges):
    source, target = edges
    number = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
    scale = number.clamp(min=1).rsqrt()
    sent = x[source] * (scale[source] * scale[target]).unsqueeze(-1)
    return torch.zeros_like(x).index_add(0, target, sent)
""",
        "torch.randn(N, 8), torch.randint(0, N, (2, E))",
    ),
    "jagged_rows_filled_up": task(
        "B 1 40 6, L 1 30 10",
        """
def reference(values, offsets, mask):
    at = offsets[:-1, None] + torch.arange(mask.shape[1])
    inside = at < offsets[1:, None]
    return torch.where(inside[..., None], values[at.clamp(max=values.shape[0] - 1)], 0.0) * mask[..., None]
""",
        "torch.randn(4 * B, 5), torch.arange(B + 1) * 4, torch.ones(B, L)",
    ),
    "extremes_of_segments": task(
        "N 1 300 70",
        """
def reference(x, segment):
    at = segment[:, None].expand_as(x)
    low = torch.zeros(9, x.shape[1]).scatter_reduce(0, at, x, "amin", include_self=False)
    return low, torch.zeros(9, x.shape[1]).scatter_reduce(0, at, x, "mean", include_self=False)
""",
        "torch.randn(N, 5), torch.randint(0, 9, (N,))",
    ),
    "counts_of_classes": task(
        "N 1 900 200",
        """
def reference(x, wanted, got):
    cells = torch.zeros(36, dtype=torch.long).scatter_add(0, wanted * 6 + got, torch.ones_like(got)).view(6, 6)
    return cells.diagonal() / (cells.sum(0) + cells.sum(1) - cells.diagonal()).clamp(min=1), torch.histc(x, 16, -2, 2)
""",
        "torch.randn(N), torch.randint(0, 6, (N,)), torch.randint(0, 6, (N,))",
    ),
}

#: grids of cells
GRIDS = {
    "heat_with_a_coefficient": task(
        "X 3 60 17, Y 3 60 12",
        """
def reference(u, k):
    east = 0.5 * (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
    north = 0.5 * (k[1:] + k[:-1]) * (u[1:] - u[:-1])
    out = torch.zeros_like(u)
    out[1:-1, 1:-1] = east[1:-1, 1:] - east[1:-1, :-1] + north[1:, 1:-1] - north[:-1, 1:-1]
    return u + 0.1 * out
""",
        "torch.rand(X, Y), torch.rand(X, Y)",
    ),
    "carried_by_the_wind": task(
        "X 1 60 17, Y 1 60 12",
        """
def reference(c, u, v):
    west, east = torch.roll(c, 1, 1), torch.roll(c, -1, 1)
    south, north = torch.roll(c, 1, 0), torch.roll(c, -1, 0)
    dx = torch.where(u > 0, c - west, east - c)
    dy = torch.where(v > 0, c - south, north - c)
    return c - 0.2 * (u * dx + v * dy)
""",
        "torch.rand(X, Y), torch.randn(X, Y), torch.randn(X, Y)",
    ),
    "pressure_by_sweeps": task(
        "X 2 40 9, Y 2 40 8",
        """
def reference(p, source):
    for _ in range(3):
        q = F.pad(p[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
        p = 0.25 * (q[1:-1, 2:] + q[1:-1, :-2] + q[2:, 1:-1] + q[:-2, 1:-1] - source)
    return p - p.mean()
""",
        "torch.rand(X, Y), torch.rand(X, Y)",
    ),
    "life_on_a_torus": task(
        "X 3 60 17, Y 3 60 12",
        """
def reference(alive):
    around = F.pad(alive[None, None].float(), (1, 1, 1, 1), mode="circular")
    kernel = torch.ones(1, 1, 3, 3)
    count = F.conv2d(around, kernel)[0, 0] - alive.float()
    return (count == 3) | (alive & (count == 2))
""",
        "torch.rand(X, Y) > 0.6",
    ),
    "equilibrium_of_a_lattice": task(
        "X 1 60 17, Y 1 60 12",
        """
def reference(f):
    c = torch.tensor([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]]).float()
    w = torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    rho = f.sum(0)
    u = torch.einsum("ia,ixy->axy", c, f) / rho
    cu = 3 * torch.einsum("ia,axy->ixy", c, u)
    rest = rho * w[:, None, None] * (1 + cu + 0.5 * cu**2 - 1.5 * (u**2).sum(0))
    return f + (rest - f) / 0.6
""",
        "torch.rand(9, X, Y) + 0.1",
    ),
    "forces_of_all_pairs": task(
        "N 2 60 17",
        """
def reference(x, mass):
    apart = x[None] - x[:, None]
    near = (apart.square().sum(-1) + 0.01).rsqrt()
    return (apart * (near**3 * mass)[..., None]).sum(1)
""",
        "torch.randn(N, 3), torch.rand(N)",
    ),
}

#: steps of training
OPTIMISERS = {
    "step_by_the_sign": task(
        "N 1 300 70",
        """
def reference(p, grad, mean, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.99, decay: float = 0.1):
    step = torch.sign(mean * b1 + grad * (1 - b1))
    p.mul_(1 - rate * decay).add_(step, alpha=-rate)
    mean.lerp_(grad, 1 - b2)
    return p, mean
""",
        "torch.randn(N), torch.randn(N), torch.randn(N)",
    ),
    "second_moments_by_rows_and_columns": task(
        "R 1 60 17, C 1 60 12",
        """
def reference(grad, rows, columns, beta: float = 0.99):
    square = grad.square() + 1e-30
    rows = rows * beta + square.mean(1) * (1 - beta)
    columns = columns * beta + square.mean(0) * (1 - beta)
    step = grad * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()
    return step / (step.square().mean().sqrt() / 1.0).clamp(min=1.0), rows, columns
""",
        "torch.randn(R, C), torch.rand(R), torch.rand(C)",
    ),
    "orthogonal_steps": task(
        "R 1 40 9",
        """
def reference(grad):
    x = grad / (grad.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.T
        b = -4.775 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return x * max(1, grad.shape[0] / grad.shape[1]) ** 0.5
""",
        "torch.randn(R, 24)",
    ),
    "gradients_of_a_limited_norm": task(
        "N 1 300 70",
        """
def reference(a, b, most: float = 1.0):
    norm = torch.linalg.vector_norm(torch.stack((torch.linalg.vector_norm(a), torch.linalg.vector_norm(b))))
    scale = torch.clamp(most / (norm + 1e-6), max=1.0)
    return a * scale, b * scale, norm
""",
        "torch.randn(N), torch.randn(N, 5)",
    ),
    "step_with_an_average": task(
        "N 1 300 70",
        """
def reference(p, grad, m, v, average, step, rate: float = 1e-3):
    m.mul_(0.9).add_(grad, alpha=0.1)
    v.mul_(0.95).addcmul_(grad, grad, value=0.05)
    near = (v / (1 - 0.95 ** step)).sqrt().add_(1e-8)
    p.mul_(1 - rate * 0.01).addcdiv_(m / (1 - 0.9 ** step), near, value=-rate)
    average.mul_(0.999).add_(p, alpha=0.001)
    return p
""",
        "torch.randn(N), torch.randn(N), torch.randn(N), torch.rand(N), torch.randn(N), torch.tensor(7.0)",
    ),
}

FIELDS = {**IMAGES, **SOUND, **TABLES, **GRIDS, **OPTIMISERS}
