"""References that choose, move, order and scatter elements: what the rules Designer must design beside the families."""

from __future__ import annotations

from tests.designer.designer_cases import _task

_PAIR = "torch.randn(5, 6), torch.randn(5, 6)"
_PLACES = "torch.randint(0, 6, (5, 9)), torch.randn(5, 9)"

PICKS: dict[str, str] = {
    # one index a row, or a place
    "embedding": _task("ids, w", "F.embedding(ids, w)", "torch.randint(0, V, (B, 7)), torch.randn(V, 12)", B=5, V=11),
    "embedding_normalised": _task(
        "ids, w, g",
        "F.rms_norm(F.embedding(ids, w), (12,), g, 1e-6)",
        "torch.randint(0, 11, (B, 7)), torch.randn(11, 12), torch.rand(12)",
        B=5,
    ),
    "embedding_summed": _task(
        "ids, w", "F.embedding(ids, w).sum(1)", "torch.randint(0, 11, (5, 7)), torch.randn(11, 12)"
    ),
    "best_of_rows_by_index": _task(
        "x, i",
        "torch.zeros(40, 6).scatter_reduce(0, i[:, None].expand(-1, 6), x, 'amin', include_self=False)",
        "torch.randn(90, 6), torch.randint(0, 40, (90,))",
    ),
    "product_of_rows_by_index": _task(
        "x, i",
        "torch.ones(40, 6).scatter_reduce(0, i[:, None].expand(-1, 6), x, 'prod')",
        "torch.randn(90, 6), torch.randint(0, 40, (90,))",
    ),
    "running_sum_of_exponentials": _task("x", "torch.logcumsumexp(x, 0)", "torch.randn(131, 3) * 40"),
    "index_reduce": _task(
        "x, i", "torch.zeros(6, 40).index_reduce(1, i, x, 'amax')", "torch.randn(6, 90), torch.randint(0, 40, (90,))"
    ),
    "segment_means": _task(
        "x, n",
        "torch.segment_reduce(x, 'mean', lengths=n, axis=0)",
        "torch.randn(50, 6), torch.tensor([10, 5, 20, 15])",
    ),
    "segment_maxima": _task(
        "x, n", "torch.segment_reduce(x, 'max', offsets=n, axis=0)", "torch.randn(50, 6), torch.tensor([0, 10, 10, 50])"
    ),
    "index_select": _task(
        "x, i", "torch.index_select(x, 1, i) * 2", "torch.randn(M, N), torch.randint(0, N, (9,))", M=5, N=11
    ),
    "gather": _task("x, i", "torch.gather(x, 1, i)", "torch.randn(M, 11), torch.randint(0, 11, (M, 4))", M=5),
    "gather_of_fewer_rows": _task("x, i", "torch.gather(x, 0, i)", "torch.randn(7, 11), torch.randint(0, 7, (3, 9))"),
    "take_along_dim": _task(
        "x, i", "torch.take_along_dim(x, i, 1)", "torch.randn(5, 11), torch.randint(0, 11, (5, 4))"
    ),
    "fancy": _task("x, i", "x[i]", "torch.randn(5, 11), torch.randint(-5, 5, (4,))"),
    "fancy_pair": _task(
        "x, i, j", "x[:, i, j] * 2", "torch.randn(3, 5, 11), torch.randint(-5, 5, (4,)), torch.randint(0, 5, (4,))"
    ),
    "fancy_apart": _task(
        "x, i, j", "x[i, :, j]", "torch.randn(3, 5, 11), torch.randint(0, 3, (4,)), torch.randint(0, 5, (4,))"
    ),
    "gathered_sums": _task("x, i", "x.sum(-1)[i] + 1", "torch.randn(6, 9), torch.randint(0, 6, (4,))"),
    "gathered_products": _task(
        "x, w, i", "(x @ w)[i]", "torch.randn(6, 9), torch.randn(9, 5), torch.randint(0, 6, (4,))"
    ),
    "product_of_gathered": _task(
        "w, v, i", "F.embedding(i, w) @ v", "torch.randn(11, 9), torch.randn(9, 17), torch.randint(0, 11, (18,))"
    ),
    # movement
    "split": _task("x", "torch.split(x, 3, 1)[1] * torch.split(x, 3, 1)[0]", "torch.randn(5, 6)"),
    "gated": _task("x", "(lambda a, b: a * torch.sigmoid(b))(*x.chunk(2, -1))", "torch.randn(5, 6)"),
    "stack": _task("x, b", "torch.stack((x, b), 1)", _PAIR),
    "stack_last": _task("x, b", "torch.stack((x, b * 2), -1)", _PAIR),
    "interleaved_rotation": _task(
        "x, c, s",
        "torch.stack((x[..., ::2] * c - x[..., 1::2] * s, x[..., ::2] * s + x[..., 1::2] * c), -1).flatten(-2)",
        "torch.randn(2, 5, 8), torch.randn(5, 4), torch.randn(5, 4)",
    ),
    "half_rotation": _task(
        "x, c, s",
        "x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s",
        "torch.randn(2, 3, 5, 8), torch.randn(5, 8), torch.randn(5, 8)",
    ),
    "roll": _task("x", "torch.roll(x, (1, -2), (0, 1))", "torch.randn(M, N)", M=5, N=7),
    "reflected": _task("x", "F.pad(x, (2, 1), mode='reflect')", "torch.randn(2, 5, 6)"),
    "replicated": _task("x", "F.pad(x, (2, 1, 1, 1), mode='replicate')", "torch.randn(2, 5, 6)"),
    "five_points": _task(
        "x",
        "(lambda p: p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] - p[1:-1, 2:])(F.pad(x, (1, 1, 1, 1)))",
        "torch.randn(M, 13)",
        M=9,
    ),
    "padded_slice": _task("x", "F.pad(x[:, 2:5], (1, 2)) * 2", "torch.randn(5, 9)"),
    "padding_alone": _task(
        "x",
        "(lambda p: (p[:, :2], p[-2:, 3:] + 1, p[:, 2:-4].sum(1)))(F.pad(x, (4, 4, 0, 3)))",
        "torch.randn(M, N)",
        M=5,
        N=8,
    ),
    "padded_twice": _task("x", "F.pad(F.pad(x, (1, 0))[:, :-3], (0, 3))", "torch.randn(5, 8)"),
    "padded": _task("x", "F.pad(x, (2, 1, 0, 3), value=0.5) * 2", "torch.randn(5, 6)"),
    "strided": _task("x", "x[:, ::2] + x[:, 1::2]", "torch.randn(5, 6)"),
    "repeated": _task("x", "x.repeat(2, 3)", "torch.randn(5, 6)"),
    "interleaved": _task("x", "x.repeat_interleave(3, 1)", "torch.randn(5, 6)"),
    "permuted": _task("x", "x.permute(2, 0, 1) + 1", "torch.randn(3, 5, 6)"),
    "pixel_shuffle": _task("x", "F.pixel_shuffle(x, 2)", "torch.randn(2, 8, 3, 3)"),
    "diagonal": _task("x", "torch.diagonal(x, 1) * 2", "torch.randn(5, 7)"),
    "windows": _task("x", "x.unfold(1, 3, 2).sum(-1)", "torch.randn(5, 9)"),
    "replaced_slice": _task("b, s", "b.slice_scatter(s, 0, 1, 3)", "torch.randn(5, 6), torch.randn(2, 6)"),
    # order
    "sort": _task("x", "torch.sort(x, 1)", "torch.randn(5, 37)"),
    "sort_columns_down": _task("x", "torch.sort(x * 2, dim=0, descending=True)", "torch.randn(9, 5)"),
    "argsort": _task("x", "torch.argsort(x, 1, descending=True)", "torch.randn(M, 6)", M=5),
    "topk": _task("x", "torch.topk(x, 3)", "torch.randn(M, 19)", M=5),
    "top_one": _task("x", "torch.topk(x, 1)", "torch.randn(5, 19)"),
    "smallest": _task("x", "torch.topk(x, 4, 0, False)", "torch.randn(19, 5)"),
    "gate_of_experts": _task("x", "torch.topk(torch.softmax(x, -1), 2)", "torch.randn(5, 8)"),
    "best_of_a_sort": _task("x", "torch.sort(x, 1).values[:, 2:5] + 1", "torch.randn(5, 9)"),
    # places that are written
    "scatter_add": _task("b, i, s", "b.scatter_add(1, i, s)", f"torch.randn(5, 6), {_PLACES}"),
    "scatter_add_outer": _task(
        "b, i, s", "b.scatter_add(0, i, s)", "torch.randn(5, 9), torch.randint(0, 5, (7, 4)), torch.randn(8, 6)"
    ),
    "counts": _task("x", "torch.zeros(8).scatter_add(0, x, torch.ones(20))", "torch.randint(0, 8, (20,))"),
    "index_add": _task(
        "b, i, s", "b.index_add(0, i, s)", "torch.randn(5, 6), torch.randint(0, 5, (9,)), torch.randn(9, 6)"
    ),
    "index_add_then": _task(
        "b, i, s",
        "torch.relu(b.index_add(0, i, s * 2)) + 1",
        "torch.randn(5, 6), torch.randint(0, 5, (9,)), torch.randn(9, 6)",
    ),
    "index_copy": _task(
        "c, p, s", "c.index_copy(1, p, s)", "torch.randn(2, 6, 4), torch.randperm(6)[:2], torch.randn(2, 2, 4)"
    ),
    "scattered_value": _task("i", "torch.zeros(5, 6).scatter(1, i, 1.0)", "torch.randint(0, 6, (5, 1))"),
}
