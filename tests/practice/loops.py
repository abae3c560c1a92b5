"""Loops over a Dim as practitioners write them: each step continues from what the one before left."""

from __future__ import annotations

from tests.practice.cases import task

LOOPS = {
    "rows_erased_and_written_token_by_token": task(
        "B 1 3 2, T 1 40 7, K 2 9 5, V 2 20 6",
        """
def reference(q, k, v, beta, g):
    b, t, dk = q.shape
    s, out = torch.zeros(b, dk, v.shape[-1]), []
    for i in range(t):
        s = s * g[:, i, None, None].exp()
        u = (v[:, i] - (s * k[:, i, :, None]).sum(-2)) * beta[:, i, None]
        s = s + k[:, i, :, None] * u[:, None, :]
        out.append((s * q[:, i, :, None]).sum(-2) * dk**-0.5)
    return torch.stack(out, 1), s
""",
        "torch.randn(B, T, K), F.normalize(torch.randn(B, T, K), dim=-1), torch.randn(B, T, V), torch.rand(B, T), "
        "-torch.rand(B, T)",
    ),
    "advantages_from_the_last_step_on": task(
        "B 1 20 6, T 1 40 9",
        """
def reference(rewards, values, alive):
    out, last = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + 0.99 * values[:, t + 1] * alive[:, t] - values[:, t]
        last = delta + 0.95 * alive[:, t] * last
        out[:, t] = last
    return out, out + values[:, :-1]
""",
        "torch.randn(B, T), torch.randn(B, T + 1), (torch.rand(B, T) > 0.2).float()",
    ),
    "places_written_from_the_place_before": task(
        "B 1 20 6, T 2 40 9",
        """
def reference(a, x):
    h = x.clone()
    for t in range(1, x.shape[1]):
        h[:, t] = a[:, t] * h[:, t - 1] + x[:, t]
    return h
""",
        "torch.rand(B, T), torch.randn(B, T)",
    ),
    "filter_of_two_samples_before": task(
        "B 1 20 6, T 1 60 11",
        """
def reference(x, b, a):
    y = torch.zeros_like(x)
    x1 = x2 = y1 = y2 = torch.zeros_like(x[:, 0])
    for n in range(x.shape[1]):
        now = b[0] * x[:, n] + b[1] * x1 + b[2] * x2 - a[0] * y1 - a[1] * y2
        y[:, n] = now
        x2, x1, y2, y1 = x1, x[:, n], y1, now
    return y
""",
        "torch.randn(B, T), torch.randn(3), torch.randn(2) * 0.3",
    ),
    "best_paths_and_where_they_came_from": task(
        "B 1 9 4, T 2 20 7",
        """
def reference(emit, trans):
    score, back = emit[:, 0], []
    for t in range(1, emit.shape[1]):
        best, at = (score[:, :, None] + trans).max(1)
        score = best + emit[:, t]
        back.append(at)
    return score, torch.stack(back, 1)
""",
        "torch.randn(B, T, 5), torch.randn(5, 5)",
    ),
    "states_through_a_matrix": task(
        "B 1 9 4, T 1 20 7",
        """
def reference(x, h, w, u):
    out = []
    for t in range(len(x)):
        h = torch.tanh(x[t] @ w + h @ u)
        out.append(h.unsqueeze(0))
    return torch.cat(out), h
""",
        "torch.randn(T, B, 6), torch.randn(B, 8), torch.randn(6, 8) / 3, torch.randn(8, 8) / 3",
    ),
    "seams_from_the_three_above": task(
        "B 1 9 4, M 1 20 6, N 1 30 8",
        """
def reference(cost, first):
    best = first
    for i in range(cost.shape[1]):
        left = F.pad(best[:, :-1], (1, 0), value=float("inf"))
        right = F.pad(best[:, 1:], (0, 1), value=float("inf"))
        best = cost[:, i] + torch.minimum(best, torch.minimum(left, right))
    return best.amin(1)
""",
        "torch.rand(B, M, N), torch.rand(B, N)",
    ),
    "sums_from_both_ends": task(
        "B 1 9 4, T 1 20 7",
        """
def reference(x, a):
    forth = back = torch.zeros_like(x[:, 0])
    first, second = [], []
    for t in range(x.shape[1]):
        forth = a * forth + x[:, t]
        first.append(forth)
    for t in range(x.shape[1] - 1, -1, -1):
        back = a * back + x[:, t]
        second.insert(0, back)
    return torch.stack(first, 1) + torch.stack(second, 1)
""",
        "torch.randn(B, T, 6), torch.rand(6)",
    ),
    "rows_walked_by_themselves_and_in_turn_with_others": task(
        "T 1 40 7, D 2 30 5",
        """
def reference(x, a, m):
    h, out = torch.zeros_like(x[0]), []
    for row, decay in zip(x, a):
        h = h * decay + row
        out.append(h)
    for row in x.flip(0):
        m = torch.maximum(m * 0.9, row)
    return torch.stack(out), m
""",
        "torch.randn(T, D), torch.rand(T, D), torch.randn(D)",
    ),
    "rows_of_a_list_by_their_numbers": task(
        "T 2 40 7, D 2 30 5",
        """
def reference(x):
    rows = x.unbind(0)
    h, out = rows[-1] * len(rows), []
    for t in range(len(rows)):
        h = h * 0.5 + rows[t]
        out.append(h)
    for row in rows[1:]:
        h = torch.maximum(h * 0.9, row)
    return torch.stack(out), h
""",
        "torch.randn(T, D)",
    ),
    "steps_of_four_rows": task(
        "C 1 9 3, D 2 30 5",
        """
def reference(x):
    h, out = torch.zeros_like(x[0]), []
    for i in range(0, x.shape[0], 4):
        h = h * 0.5 + x[i : i + 4].sum(0)
        out.append(h)
    return torch.stack(out)
""",
        "torch.randn(4 * C, D)",
    ),
    "diffusion_around_a_torus_for_some_steps": task(
        "S 1 9 3, H 3 20 5, W 3 20 7",
        """
def reference(rate, u):
    for k in range(len(rate)):
        u = u + rate[k] * (u.roll(1, 0) + torch.roll(u, -1, 0) + u.roll((1,), (1,)) + u.roll(-1, -1) - 4 * u)
    return u
""",
        "torch.rand(S) * 0.2, torch.randn(H, W)",
    ),
    "tridiagonal_systems_by_elimination": task(
        "M 1 9 4, N 2 30 7",
        """
def reference(d, r):
    n, b = d.shape[1], 1 + 2 * r
    c, e, x = torch.zeros_like(d), torch.zeros_like(d), torch.zeros_like(d)
    c[:, 0], e[:, 0] = -r / b, d[:, 0] / b
    for i in range(1, n):
        m = 1 / (b + r * c[:, i - 1])
        c[:, i], e[:, i] = -r * m, (d[:, i] + r * e[:, i - 1]) * m
    x[:, n - 1] = e[:, n - 1]
    for i in range(n - 2, -1, -1):
        x[:, i] = e[:, i] - c[:, i] * x[:, i + 1]
    return x
""",
        "torch.randn(M, N), torch.tensor(0.4)",
    ),
    "pieces_of_four_rows_joined": task(
        "B 1 4 2, C 1 9 3, D 2 30 5",
        """
def reference(x, w):
    state, out = torch.zeros_like(x[:, 0]), []
    for i in range(x.shape[1] // 4):
        piece = x[:, i * 4 : i * 4 + 4]
        out.append(torch.tanh(piece * w + state[:, None]))
        state = state * 0.5 + piece.sum(1)
    return torch.cat(out, 1)
""",
        "torch.randn(B, 4 * C, D), torch.randn(D)",
    ),
    "filter_whose_states_reach_a_result_three_steps_later": task(
        "B 1 20 6, T 1 60 11",
        """
def reference(x, b, a):
    z0 = z1 = z2 = torch.zeros_like(x[:, 0])
    y = torch.empty_like(x)
    for n in range(x.shape[1]):
        v = b[0] * x[:, n] + z0
        z0 = b[1] * x[:, n] - a[0] * v + z1
        z1 = b[2] * x[:, n] - a[1] * v + z2
        z2 = b[3] * x[:, n] - a[2] * v
        y[:, n] = v
    return y
""",
        "torch.randn(B, T), torch.randn(4), torch.randn(3) * 0.3",
    ),
    "a_step_reads_two_before_and_makes_what_nothing_reads": task(
        "B 1 20 6, T 2 40 9",
        """
def reference(x):
    older, old, out, total = torch.zeros_like(x[:, 0]), x[:, 0], [], torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        total = total + x[:, t].exp()
        new = torch.tanh(x[:, t] + 0.5 * older)
        older, old = old, new
        out.append(new)
    return torch.stack(out, 1)
""",
        "torch.randn(B, T)",
    ),
}
