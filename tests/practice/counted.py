"""Numbers that people compute from sizes: rounded shares, logarithms, roots of squares, places in a triangle."""

from __future__ import annotations

from tests.practice.cases import task

COUNTED = {
    "slopes_of_heads_by_a_power_of_two": task(
        "H 1 40 6, T 1 60 11",
        """
def reference(scores):
    heads = scores.shape[0]
    whole = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-8.0 / whole * torch.arange(1, heads + 1))
    return scores + slopes[:, None, None] * torch.arange(scores.shape[-1])
""",
        "torch.randn(H, T, T)",
    ),
    "rows_divided_by_a_rounded_share": task(
        "N 4 300 21, D 1 40 9",
        """
def reference(x):
    first, second = round(x.shape[0] / 2), int(round(x.shape[0] * 0.3))
    return x[:first].sum(0) - x[second:].sum(0)
""",
        "torch.randn(N, D)",
    ),
    "tokens_as_a_square_image": task(
        "B 1 3 2, S 2 12 5",
        """
def reference(x):
    b, tokens, c = x.shape
    side = int(tokens**0.5)
    image = x.transpose(1, 2).reshape(b, c, side, side)
    return F.avg_pool2d(image, 2, stride=1)
""",
        "torch.randn(B, S * S, 6)",
    ),
    "distances_of_all_pairs": task(
        "N 2 60 14, D 1 30 7",
        """
def reference(x, y):
    return F.pdist(x), torch.combinations(y).prod(-1)
""",
        "torch.randn(N, D), torch.randn(N)",
    ),
    "both_triangles_of_a_table": task(
        "N 3 60 14",
        """
def reference(x):
    n = x.shape[0]
    row, col = torch.triu_indices(n, n, 1)
    low = torch.tril_indices(n, n, -1)
    return x[row, col] - x.t()[row, col], x[low[0], low[1]]
""",
        "torch.randn(N, N)",
    ),
    "parts_of_nearly_one_length": task(
        "N 6 300 41, D 1 40 9",
        """
def reference(x):
    a, b, c = torch.tensor_split(x, 3)
    return a.sum(0) + 2 * b.sum(0) - c.amax(0)
""",
        "torch.randn(N, D)",
    ),
    "powers_up_to_the_number_of_samples": task(
        "N 1 24 9",
        """
def reference(x, y):
    return torch.vander(x) @ y, torch.vander(x, 4, increasing=True)
""",
        "torch.rand(N), torch.randn(N)",
    ),
    "a_filter_about_the_middle_frequency": task(
        "B 1 6 3, N 2 80 19",
        """
def reference(x, width: float = 0.2):
    gain = torch.exp(-((torch.fft.fftfreq(x.shape[-1]) / width) ** 2))
    return torch.fft.fftshift(x * gain, dim=-1), torch.fft.ifftshift(x, -1) * torch.fft.rfftfreq(2 * x.shape[-1])[:-1]
""",
        "torch.randn(B, N)",
    ),
    "two_lengths_padded_to_the_longer": task(
        "N 1 200 17, M 1 200 23",
        """
def reference(x, y):
    n = max(x.shape[0], y.shape[0])
    return F.pad(x, (0, n - x.shape[0])) + F.pad(y, (0, n - y.shape[0]))
""",
        "torch.randn(N), torch.randn(M)",
    ),
    "a_share_of_the_best_tokens": task(
        "B 1 6 3, T 4 200 22",
        """
def reference(x, score):
    kept = max(1, int(x.shape[1] * 0.3))
    best = score.topk(kept, dim=-1)
    return x.gather(1, best.indices[..., None].expand(-1, -1, x.shape[-1])) * best.values[..., None]
""",
        "torch.randn(B, T, 8), torch.rand(B, T)",
    ),
    "areas_under_a_curve": task(
        "B 1 6 3, N 2 80 19",
        """
def reference(x):
    step = 1.0 / (x.shape[-1] - 1)
    return torch.trapezoid(x, dx=step), torch.cumulative_trapezoid(x, dim=1)
""",
        "torch.randn(B, N)",
    ),
    "whole_pieces_and_what_is_left": task(
        "N 1 200 22",
        """
def reference(x):
    whole, left = divmod(x.shape[0], 4)
    return x * whole + math.tanh(left)
""",
        "torch.randn(N)",
    ),
}
