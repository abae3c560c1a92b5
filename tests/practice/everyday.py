"""Functions of torch that make plain numbers of sizes, sizes that are cut or rounded, and orders of whole rows."""

from __future__ import annotations

from tests.practice.cases import task

EVERYDAY = {
    "a_product_of_two_grids": task(
        "M 1 20 6, N 1 20 5",
        """
def reference(a, b, x):
    return torch.kron(a, b) @ x
""",
        "torch.randn(M, M), torch.randn(N, N), torch.randn(M * N)",
    ),
    "an_image_turned_by_a_matrix": task(
        "B 1 3 2, H 3 20 9, W 3 20 8",
        """
def reference(x, turn):
    return F.grid_sample(x, F.affine_grid(turn, x.shape, align_corners=False), align_corners=False)
""",
        "torch.randn(B, 2, H, W), torch.eye(2, 3).repeat(B, 1, 1) + 0.1 * torch.randn(B, 2, 3)",
    ),
    "weighted_classes_with_smoothed_labels": task(
        "N 2 60 20, C 3 40 9",
        """
def reference(x, wanted, weight, share):
    hard = F.cross_entropy(x, wanted, weight, ignore_index=-1, label_smoothing=0.1)
    return hard, F.cross_entropy(x, share, weight=weight, label_smoothing=0.2, reduction="none")
""",
        "torch.randn(N, C), torch.where(torch.rand(N) > 0.3, torch.randint(0, C, (N,)), -1), torch.rand(C) + 0.1, "
        "torch.rand(N, C)",
    ),
    "an_image_of_one_and_a_half_times_the_size": task(
        "B 1 3 2, H 4 20 8",
        """
def reference(x):
    return F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=False)
""",
        "torch.randn(B, 2, H, H)",
    ),
    "rows_cut_to_whole_pieces": task(
        "B 1 5 3, N 5 60 22",
        """
def reference(x):
    b, n, d = x.shape
    pieces = n // 4
    return x[:, : pieces * 4].reshape(b * pieces, 4, d).mean(1)
""",
        "torch.randn(B, N, 8)",
    ),
    "a_spread_about_the_middle_of_a_row": task(
        "B 1 40 12, N 2 60 17",
        """
def reference(x):
    middle = x.median(-1).values
    return middle, (x - middle[:, None]).abs().median(-1).values
""",
        "torch.randn(B, N)",
    ),
    "a_matrix_that_no_rule_makes_and_what_follows_from_it": task(
        "B 1 20 6",
        """
def reference(x):
    e = torch.linalg.matrix_exp(x)
    return e, e.sin() * 2
""",
        "torch.randn(B, 3, 3)",
    ),
    "rows_under_a_window_and_along_a_line": task(
        "B 1 9 4, N 1 60 17",
        """
def reference(x, at):
    line = torch.linspace(-1, 1, x.shape[1])
    taper = torch.hann_window(x.shape[1], periodic=False) + torch.hamming_window(x.shape[1])
    return x * line * taper, torch.take_along_dim(x, at, dim=1)
""",
        "torch.randn(B, N), torch.randint(0, N, (1, 3))",
    ),
    "a_share_of_a_row_by_int_and_ceil": task(
        "B 1 9 4, N 4 60 17",
        """
def reference(x):
    n = x.shape[1]
    kept = int(n * 0.75)
    return x[:, :kept].sum(1) / math.ceil(n / 4), x[:, : int(n / 2)].amax(1) * math.floor(n * 1.5)
""",
        "torch.randn(B, N)",
    ),
    "slopes_of_rows_and_products_of_three": task(
        "B 1 9 4, N 3 60 17",
        """
def reference(x, m):
    return torch.gradient(x, spacing=0.5, dim=-1)[0], torch.linalg.multi_dot([x, m, x.T])
""",
        "torch.randn(B, N), torch.randn(N, N)",
    ),
    "rows_equal_to_others_by_their_distance": task(
        "N 30 60 40",
        """
def reference(x):
    return torch.exp(-torch.cdist(x, x))
""",
        "torch.randn(N, 4)",
    ),
    "rows_put_where_a_mask_says": task(
        "B 1 5 3, T 2 60 17",
        """
def reference(words, image, where):
    return words.masked_scatter(where.unsqueeze(-1), image)
""",
        "torch.randn(B, T, 8), torch.randn(B * T, 8), torch.rand(B, T) > 0.6",
    ),
    "small_matrices_inverted_and_solved": task(
        "B 1 40 12",
        """
def reference(x, y):
    m = torch.eye(3) * 3 + x
    return torch.linalg.inv(m) @ y[..., None], torch.linalg.det(m), torch.linalg.solve(m[:, :2, :2], y[:, :2])
""",
        "torch.rand(B, 3, 3), torch.randn(B, 3)",
    ),
    "whitened_by_a_small_factor": task(
        "B 1 40 12",
        """
def reference(x):
    return torch.linalg.cholesky(x @ x.mT + torch.eye(4)) * 2
""",
        "torch.randn(B, 4, 4)",
    ),
    "larger_matrices_inverted": task(
        "B 1 20 6",
        """
def reference(x):
    return torch.linalg.inv(x + 9 * torch.eye(8)).sin()
""",
        "torch.rand(B, 8, 8)",
    ),
    "densities_by_a_small_factor": task(
        "B 1 40 12",
        """
def reference(x, s):
    m = s @ s.mT + torch.eye(3)
    z = torch.linalg.solve_triangular(torch.linalg.cholesky(m), x[..., None], upper=False)
    return -0.5 * (z.square().sum((-2, -1)) + torch.linalg.slogdet(m).logabsdet) + torch.logdet(m)
""",
        "torch.randn(B, 3), torch.randn(B, 3, 3)",
    ),
}
