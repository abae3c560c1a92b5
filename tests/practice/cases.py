"""Tasks as practitioners write them, by the kind of construct that they hold; each says its Dims and its inputs."""

from __future__ import annotations

_HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom kernellab import Dim\n"


def task(dims: str, reference: str, inputs: str) -> str:
    """A task's text: ``dims`` as ``N 1 500``, the reference's lines, and what ``inputs`` returns."""
    named = [line.split() for line in dims.split(",")]
    declared = "".join(f'{n} = Dim("{n}", {low}, {high})\n' for n, low, high, _ in named)
    keywords = ", ".join(f"{n}={default}" for n, _, _, default in named)
    return f"{_HEAD}{declared}\n{reference.strip()}\n\ndef inputs({keywords}):\n    return {inputs}\n"


#: Dims that stand only inside extents
SIZES = {
    "patches_of_a_square": task(
        "B 1 4 2, S 2 12 8",
        """
def reference(x):
    b, c, h, w = x.shape
    x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, (h // 2) * (w // 2), c * 4)
    return F.layer_norm(x, (x.shape[-1],))
""",
        "torch.randn(B, 4, 2 * S, 2 * S)",
    ),
    "decay_within_chunks": task(
        "B 1 4 2, N 1 8 4",
        """
def reference(q, k, v, g):
    b, t, h, d = q.shape
    q, k, v, g = (x.view(b, -1, 16, h, d).transpose(2, 3) for x in (q, k, v, g))
    total = g.cumsum(-2)
    a = (q * total.exp()) @ (k * (-total).exp()).transpose(-1, -2)
    return (a.tril() @ v).transpose(2, 3).reshape(b, t, h, d)
""",
        "torch.randn(B, 16 * N, 4, 8), torch.randn(B, 16 * N, 4, 8), torch.randn(B, 16 * N, 4, 8), "
        "-torch.rand(B, 16 * N, 4, 8)",
    ),
    "segment_lengths": task(
        "S 1 300 40",
        """
def reference(ends):
    lengths = ends[1:] - ends[:-1]
    return lengths * 0.5, (ends.shape[0] - 1) / (lengths + 1.0)
""",
        "torch.randint(0, 5, (S + 1,)).cumsum(0)",
    ),
    "chunked_decay": task(
        "B 1 3 2, C 1 6 3, D 4 40 12",
        """
def reference(x):
    b, n, d = x.shape
    y = x.view(b, n // 16, 16, d)
    return (y - y.mean(2, keepdim=True)).reshape(b, n, d), y.amax(2)
""",
        "torch.randn(B, C * 16, D)",
    ),
    "row_sums_of_a_sparse_matrix": task(
        "R 1 80 30, Z 1 400 120",
        """
def reference(first, value):
    row = torch.searchsorted(first, torch.arange(value.shape[0]), right=True) - 1
    return torch.zeros(first.shape[0] - 1).index_add(0, row, value)
""",
        "torch.cat((torch.zeros(1, dtype=torch.long), torch.sort(torch.randint(0, Z + 1, (R - 1,))).values,"
        " torch.tensor([Z]))), torch.randn(Z)",
    ),
    "two_lengths_of_one_buffer": task(
        "N 2 60 9, M 2 60 7",
        """
def reference(both, more):
    n = more.shape[0] - both.shape[0]
    return torch.cat((both[:n] * 2, more[n:] + 1))
""",
        "torch.randn(N + M), torch.randn(2 * N + M)",
    ),
}

#: sizes of arguments whose elements are not read, and single places of a padded dimension
PARTS = {
    "softmax_over_the_edges_into_a_node": task(
        "E 1 90 30, N 1 40 9",
        """
def reference(score, to, nodes):
    top = torch.full((nodes.shape[0],), float("-inf")).scatter_reduce(0, to, score, "amax")
    share = torch.exp(score - top[to])
    return share / torch.zeros(nodes.shape[0]).scatter_add(0, to, share)[to]
""",
        "torch.randn(E), torch.randint(0, N, (E,)), torch.randn(N, 4)",
    ),
    "cheapest_path_by_columns": task(
        "B 1 40 9",
        """
def reference(x, y):
    cost = (x[:, :, None] - y[:, None]).abs()
    row = cost[:, 0].cumsum(1)
    best = torch.minimum(row, F.pad(row[:, :-1], (1, 0), value=1e30))
    now = [best[:, 0] + cost[:, 1, 0]]
    for j in range(1, 4):
        now.append(torch.minimum(best[:, j], now[-1]) + cost[:, 1, j])
    return torch.stack(now, 1)
""",
        "torch.randn(B, 4), torch.randn(B, 4)",
    ),
    "pairs_turned_as_complex_numbers": task(
        "B 1 4 2, T 1 40 9",
        """
def reference(x, turn):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * turn[None, :, None]).flatten(3)
""",
        "torch.randn(B, T, 3, 8), torch.polar(torch.ones(T, 4), torch.randn(T, 4))",
    ),
    "complex_numbers_kept_or_changed": task(
        "N 1 300 90",
        """
def reference(x, y):
    z = torch.complex(x, y)
    first = torch.ones_like(z)
    for _ in range(3):
        first = torch.where(first.abs() < 3, first * z, torch.full_like(z, 0.5))
    return torch.view_as_real(torch.where(x > 0, first, z).where(x < 9, z)), torch.zeros_like(z).real
""",
        "torch.randn(N), torch.randn(N)",
    ),
    "a_step_that_returns_nothing": task(
        "N 1 900 200",
        """
def reference(weight, slope, memory, rate: float = 0.01):
    weight.sub_(torch.sign(memory * 0.9 + slope * 0.1), alpha=rate)
    memory.mul_(0.99).add_(slope, alpha=0.01)
""",
        "torch.randn(N), torch.randn(N), torch.randn(N)",
    ),
    "bytes_from_a_quotient_of_a_launch_before": task(
        "N 1 400 90",
        """
def reference(image):
    count = torch.bincount(image.flatten().long(), minlength=64).float()
    total = count.cumsum(0)
    level = (total * 63 / total[-1]).clamp(0, 63)
    return level[image.long()].to(torch.uint8)
""",
        "torch.randint(0, 64, (N, 6), dtype=torch.uint8)",
    ),
}

#: rows shorter than a vector, and work that does not vary along an outer axis
SHORT = {
    "curvature_by_a_fixed_kernel": task(
        "H 2 40 9, W 2 40 12",
        """
STAR = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])[None, None]

def reference(x):
    for _ in range(2):
        x = x**3 - x - 0.5 * F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), STAR)
    return x
""",
        "torch.rand(2, 1, H, W)",
    ),
    "nearest_points_of_two_clouds": task(
        "B 1 3 2, N 2 300 90, M 2 300 70",
        """
def reference(a, b):
    d = (a[:, :, None] - b[:, None]).square().sum(-1)
    return d.amin(2).mean(1) + d.amin(1).mean(1), d.argmin(2)
""",
        "torch.randn(B, N, 3), torch.randn(B, M, 3)",
    ),
    "shares_of_few_experts": task(
        "T 1 2000 700",
        """
def reference(logits):
    best = logits.max(-1)
    return logits.softmax(-1), best.values, best.indices, torch.logsumexp(logits, -1), F.normalize(logits, dim=-1)
""",
        "torch.randn(T, 7)",
    ),
    "channels_at_moved_places": task(
        "B 1 3 2, H 4 40 30, W 4 40 33",
        """
def reference(x, grid):
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
""",
        "torch.randn(B, 6, 20, 22), torch.rand(B, H, W, 2) * 2.2 - 1.1",
    ),
}

#: places of extremes over views, merged axes and several axes
PLACES = {
    "place_in_a_turned_matrix": task(
        "A 1 40 9, B 1 40 14",
        """
def reference(x):
    y = x.permute(1, 0)
    return y.argmin(), y.flatten().argmax(), torch.argmax(y.contiguous(), 0)
""",
        "torch.randint(0, 6, (A, B)).float()",
    ),
    "place_over_two_axes_of_three": task(
        "A 1 12 3, B 2 12 5, C 1 12 4",
        """
def reference(x):
    y = x.transpose(0, 2).reshape(x.shape[2], -1)
    return y.argmax(1), x[:, 1:].flatten(1).argmin(1), y.max(1).indices
""",
        "torch.randn(A, B, C).round()",
    ),
    "place_in_an_outer_sum": task(
        "A 1 40 9, B 1 40 14",
        """
def reference(x, y):
    return (x[:, None] - y).argmax(), (x[:, None] * y).T.argmin()
""",
        "torch.randn(A), torch.randn(B)",
    ),
}

#: lanes beyond the edge, in which nothing may be divided by the 0 that fills them
PADS = {
    "whole_quotients": task(
        "N 1 900 333",
        """
def reference(a, b):
    return a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), a // (b * b - 2)
""",
        "torch.randint(-500, 500, (N,)), torch.randint(1, 9, (N,)) * (torch.randint(0, 2, (N,)) * 2 - 1)",
    ),
    "sums_of_whole_quotients": task(
        "M 1 60 17, N 1 300 70",
        """
def reference(a, b):
    return (a // b).sum(1), (a % b[:1]).amax(0), (a.short() // (b.short() + 1)).argmax(1)
""",
        "torch.randint(-500, 500, (M, N), dtype=torch.int32), torch.randint(1, 9, (M, N), dtype=torch.int32)",
    ),
    "page_of_a_token": task(
        "N 1 300 70, P 1 40 12",
        """
def reference(positions, pages, size):
    return pages[positions // size] * size + positions % size
""",
        "torch.randint(0, 4 * P, (N,)), torch.randperm(P), torch.tensor(4)",
    ),
}

#: numbers made of sizes: roots, logarithms, powers, extremes
SCALARS = {
    "scaled_scores": task(
        "M 1 60 17, D 2 200 48",
        """
def reference(q, k):
    d = q.shape[-1]
    return torch.softmax(q @ k.T * d**-0.5, -1), q / math.sqrt(d), q * float(d) ** 0.5
""",
        "torch.randn(M, D), torch.randn(M, D)",
    ),
    "length_scaled_by_a_logarithm": task(
        "N 1 200 48",
        """
from math import log, sqrt

def reference(x):
    n = x.shape[0]
    return x * log(n + 1.0) / sqrt(n), x + math.log2(n), x * min(n, 32) + max(n, 7) ** -1.5
""",
        "torch.randn(N)",
    ),
    "frames_under_two_windows": task(
        "N 20 300 90",
        """
def reference(x):
    frames = x.unfold(1, 16, 4)
    window = torch.hamming_window(16) + torch.blackman_window(16, periodic=False)
    return (frames * window).pow(2).sum(-1)
""",
        "torch.randn(3, N)",
    ),
    "means_by_a_dim_of_classes": task(
        "N 1 300 40, K 2 20 5",
        """
def reference(x, centres):
    nearest = torch.cdist(x, centres).argmin(1)
    chosen = F.one_hot(nearest, centres.shape[0]).to(x.dtype)
    count = chosen.sum(0)[:, None]
    return torch.where(count > 0, chosen.t() @ x / count.clamp(min=1), centres)
""",
        "torch.randn(N, 6), torch.randn(K, 6)",
    ),
    "root_of_a_size_in_double": task(
        "N 1 200 48",
        """
def reference(x):
    return (x - x.mean()) * x.shape[0] ** -0.5
""",
        "torch.randn(N, dtype=torch.float64)",
    ),
}

#: tables read at places that are turned and viewed afterwards
GATHERS = {
    "window_bias_from_a_table": (
        _HEAD
        + """
class Model(torch.nn.Module):
    def __init__(self, side, heads):
        super().__init__()
        self.cells = side * side
        self.table = torch.nn.Parameter(torch.randn((2 * side - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + side - 1
        self.register_buffer("index", apart[0] * (2 * side - 1) + apart[1])

    def forward(self, scores):
        bias = self.table[self.index.view(-1)].view(self.cells, self.cells, -1).permute(2, 0, 1)
        return torch.softmax(scores + bias.unsqueeze(0), -1)

def get_inputs():
    return [torch.randn(3, 2, 25, 25)]

def get_init_inputs():
    return [5, 2]
"""
    ),
    "rows_counted_from_the_end": task(
        "N 1 300 70, R 1 40 12",
        """
def reference(x, at):
    return x[at], x[at - at], x[-1]
""",
        "torch.randn(R, 5), torch.randint(-R, R, (N,))",
    ),
    "an_argument_named_as_its_operation": task(
        "N 1 60 20",
        """
def reference(index, add, mul):
    return (add[index] + mul) * add
""",
        "torch.randint(0, N, (N,)), torch.randn(N), torch.randn(N)",
    ),
}

#: whatever sorts, and marks or scatters by the places
ORDERS = {
    "words_kept_by_their_mass": task(
        "B 1 6 3, V 4 300 90",
        """
def reference(logits, mass: float = 0.8):
    ordered, at = torch.sort(logits, descending=True)
    past = torch.softmax(ordered, -1).cumsum(-1) > mass
    past[:, 1:] = past[:, :-1].clone()
    past[:, 0] = False
    return logits.masked_fill(torch.zeros_like(past).scatter(1, at, past), float("-inf"))
""",
        "torch.randn(B, V)",
    ),
}

#: values that one launch would make many times for each element
AGAIN = {
    "weights_of_four_bits_by_a_table": task(
        "T 1 64 20",
        """
def reference(x, packed, scale, levels):
    n = packed.shape[0]
    at = torch.stack((packed & 15, packed >> 4), -1).flatten(1)
    return x @ (levels[at.long()].view(n, -1, 32) * scale[..., None]).view(n, -1).T
""",
        "torch.randn(T, 128), torch.randint(0, 256, (48, 64), dtype=torch.uint8), torch.rand(48, 4),"
        " torch.linspace(-1, 1, 16)",
    ),
    "products_of_scaled_blocks": task(
        "T 1 96 24",
        """
def reference(x, w, scale):
    blocks = x.view(x.shape[0], -1, 32)
    top = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
    near = (blocks / top).round() * top
    return near.view(x.shape) @ (w.view(2, 32, 4, 32) * scale[:, None, :, None]).view(64, 128).T
""",
        "torch.randn(T, 128), torch.randn(64, 128), torch.rand(2, 4)",
    ),
    "heat_in_three_dimensions": task(
        "X 4 30 9, Y 4 30 8",
        """
def reference(u, steps: int = 3):
    for _ in range(steps):
        inner = u[1:-1, 1:-1, 1:-1]
        apart = sum(u[1 + a : -1 + a or None, 1 + b : -1 + b or None, 1 + c : -1 + c or None]
                    for a, b, c in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)))
        after = u.clone()
        after[1:-1, 1:-1, 1:-1] = inner + 0.1 * (apart - 6 * inner)
        u = after
    return u
""",
        "torch.rand(X, Y, 7)",
    ),
    "waves_around_a_torus": task(
        "X 1 60 17, Y 1 60 12",
        """
def reference(u, force):
    for _ in range(4):
        around = sum(torch.roll(u, shift, axis) for axis in (0, 1) for shift in (1, -1))
        u = u + 0.2 * (around - 4 * u) + force
    return u
""",
        "torch.rand(X, Y), torch.rand(X, Y)",
    ),
    "places_in_long_sorted_rows": task(
        "N 1 300 70, M 0 900 333",
        """
def reference(x, edges, rows):
    return (torch.bucketize(x, edges), torch.searchsorted(edges, x, right=True),
            torch.searchsorted(rows, x[None].expand(2, -1).contiguous()))
""",
        "torch.randn(N).round(decimals=1), torch.randn(M).round(decimals=1).sort().values,"
        " torch.randn(2, M).sort().values",
    ),
    "floored_quotients_of_floats": task(
        "N 1 300 70",
        """
def reference(x, y):
    return x // y, x % y, torch.fmod(x.double(), y.double()), (x * 1e9) // y
""",
        "torch.randn(N) * 50, torch.randn(N).round(decimals=1)",
    ),
}

#: values put side by side in a new first dimension, and read one by one or all together
STACKS = {
    "densities_streamed_on_a_grid": task(
        "H 2 40 9, W 2 40 12",
        """
def reference(f):
    shifts = ((0, 0), (0, 1), (1, 0), (-1, 1))
    moved = torch.stack([torch.roll(f[k], shift, (0, 1)) for k, shift in enumerate(shifts)])
    total = moved.sum(0)
    apart = (moved[1] - moved[3]) / total
    return torch.stack([moved[k] + 0.1 * (total * (1 + k * apart) - moved[k]) for k in range(4)])
""",
        "torch.rand(4, H, W) + 0.5",
    ),
    "middle_of_the_neighbours": task(
        "H 4 40 9, W 4 40 12",
        """
def reference(x):
    p = F.pad(x[None, None], (1, 1, 1, 1), mode="reflect")[0, 0]
    return torch.stack([p[i:i + x.shape[0], j:j + x.shape[1]] for i in range(3) for j in range(3)]).median(0).values
""",
        "torch.rand(H, W)",
    ),
    "paths_summed_over_their_steps": task(
        "B 1 30 8",
        """
def reference(emit, skip):
    a = emit[:, 0]
    for t in range(1, 9):
        one = F.pad(a[:, :-1], (1, 0), value=-1e30)
        two = torch.where(skip, F.pad(a[:, :-2], (2, 0), value=-1e30), -1e30)
        a = torch.logsumexp(torch.stack((a, one, two)), 0) + emit[:, t]
    return torch.logaddexp(a[:, -1], a[:, -2])
""",
        "torch.randn(B, 9, 11), torch.rand(B, 11) < 0.5",
    ),
    "unknowns_of_three_diagonals": task(
        "B 1 90 12",
        """
def reference(a, b, c, d):
    ratio, right = torch.zeros_like(c), torch.zeros_like(d)
    ratio[:, 0], right[:, 0] = c[:, 0] / b[:, 0], d[:, 0] / b[:, 0]
    for i in range(1, 6):
        scale = 1 / (b[:, i] - a[:, i] * ratio[:, i - 1])
        ratio[:, i] = c[:, i] * scale
        right[:, i] = (d[:, i] - a[:, i] * right[:, i - 1]) * scale
    x = torch.empty_like(d)
    x[:, -1] = right[:, -1]
    for i in range(4, -1, -1):
        x[:, i] = right[:, i] - ratio[:, i] * x[:, i + 1]
    return x
""",
        "torch.rand(B, 6), torch.rand(B, 6) + 3, torch.rand(B, 6), torch.randn(B, 6)",
    ),
    "edges_and_each_node_to_itself": task(
        "N 4 40 9, E 4 90 20",
        """
def reference(x, src, dst, w):
    own = torch.arange(x.shape[0])
    row, col = torch.cat((src, own)), torch.cat((dst, own))
    w = torch.cat((w, w.new_ones(x.shape[0])))
    inv = x.new_zeros(x.shape[0]).scatter_add(0, col, w).rsqrt()
    return torch.zeros_like(x).index_add_(0, col, (inv[row] * w * inv[col])[:, None] * x[row])
""",
        "torch.randn(N, 6), torch.randint(0, N, (E,)), torch.randint(0, N, (E,)), torch.rand(E)",
    ),
    "a_place_in_the_middle": task(
        "N 2 40 9, M 2 40 8",
        """
def reference(p, source):
    new = 2 * p
    new[p.shape[0] // 2, p.shape[1] // 2] += source[0]
    return new
""",
        "torch.randn(N, M), torch.randn(1)",
    ),
    "scores_slid_by_reshapes": task(
        "T 1 40 9",
        """
def reference(content, position):
    h, t, n = position.shape
    slid = F.pad(position, (1, 0)).view(h, n + 1, t)[:, 1:].reshape(h, t, n)[..., :t]
    return ((content + slid) / 4).softmax(-1)
""",
        "torch.randn(3, T, T), torch.randn(3, T, 2 * T - 1)",
    ),
}
