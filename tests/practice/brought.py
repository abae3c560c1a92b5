"""References that practitioners bring: experts, samplers, optimisers, packed forms and points."""

from __future__ import annotations

from tests.practice.cases import task

BROUGHT = {
    "experts_balanced_over_layers": task(
        "T 2 500 100",
        """
def reference(gate_logits: tuple, mask=None):
    # HF Mixtral's load_balancing_loss_func over several layers
    cat = torch.cat([g for g in gate_logits], 0)
    p = F.softmax(cat, -1)
    _, sel = torch.topk(p, 2, -1)
    em = F.one_hot(sel, cat.shape[-1])
    if mask is None:
        tpe = em.float().mean(0)
        rp = p.mean(0)
    else:
        n = cat.shape[0] // mask.numel()
        m = mask.reshape(-1)[None, :, None, None].expand(n, -1, 2, cat.shape[-1]).reshape(-1, 2, cat.shape[-1]).float()
        tpe = (em.float() * m).sum(0) / m.sum(0)
        rp = (p * m[:, 0]).sum(0) / m[:, 0].sum(0)
    z = torch.logsumexp(cat, -1).square().mean()
    return (tpe * rp.unsqueeze(0)).sum() * cat.shape[-1] + 1e-3 * z
""",
        "(torch.randn(T, 8), torch.randn(T, 8), torch.randn(T, 8)), (torch.arange(T) % 7 != 0).float()",
    ),
    "optimiser_states_as_named_tuples": task(
        "N 1 500 100, M 1 300 50",
        """
from typing import NamedTuple

class State(NamedTuple):
    m: torch.Tensor
    v: torch.Tensor
    vmax: torch.Tensor

def reference(params, grads, states, step, lr: float = 1e-3, eps: float = 1e-8):
    out = []
    bc1 = 1 - 0.9 ** step
    bc2 = 1 - 0.999 ** step
    for p, g, s in zip(params, grads, states):
        m = torch.lerp(s.m, g, 0.1)
        v = 0.999 * s.v + 0.001 * g.square()
        top = torch.maximum(s.vmax, v)
        den = (top.sqrt() / bc2.sqrt()).add(eps)
        out.append((p * (1 - lr * 0.01) - lr / bc1 * m / den, State(m, v, top)))
    return out
""",
        "[torch.randn(N), torch.randn(M, 4)], [torch.randn(N), torch.randn(M, 4)], [State(torch.randn(N), "
        "torch.rand(N), torch.rand(N)), State(torch.randn(M, 4), torch.rand(M, 4), torch.rand(M, 4))], "
        "torch.tensor(7.0)",
    ),
    "a_step_of_beam_search": task(
        "B 1 8 3, V 4 2000 300",
        """
def reference(logits, scores, sequences, finished):
    b, k, v = logits.shape
    logp = F.log_softmax(logits.float(), -1)
    pad = torch.full_like(logp, float("-inf"))
    pad[..., 0] = 0.0
    logp = torch.where(finished[..., None], pad, logp)
    total = (scores[..., None] + logp).view(b, k * v)
    best, flat = total.topk(k, dim=-1)
    parent = torch.div(flat, v, rounding_mode="floor")
    token = flat % v
    seqs = sequences.gather(1, parent[..., None].expand(-1, -1, sequences.shape[-1]))
    done = finished.gather(1, parent) | (token == 0)
    return torch.cat([seqs, token[..., None]], -1), best, done
""",
        "torch.randn(B, 4, V), -torch.rand(B, 4), torch.randint(0, 9, (B, 4, 7)), torch.rand(B, 4) > 0.8",
    ),
    "tokens_sorted_by_expert": task(
        "T 1 200 40",
        """
def reference(x, logits, w1, w2, bias):
    # DeepSeek style: sigmoid scores, bias-corrected choice, tokens sorted by expert, capacity-free combine
    s = logits.sigmoid()
    ids = (s + bias).topk(2, -1).indices
    g = s.gather(1, ids)
    g = g / (g.sum(-1, keepdim=True) + 1e-20) * 2.5
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    tok = order // 2
    e = flat[order]
    h = torch.einsum("nd,ndf->nf", x[tok], w1[e])
    a, b = h.chunk(2, -1)
    y = torch.einsum("nf,nfd->nd", F.silu(a) * b, w2[e])
    out = torch.zeros_like(x)
    out.index_add_(0, tok, y * g.flatten()[order, None])
    counts = torch.bincount(flat, minlength=8)
    return out, counts
""",
        "torch.randn(T, 16), torch.randn(T, 8), torch.randn(8, 16, 24) * .2, torch.randn(8, 12, 16) * .2, "
        "torch.randn(8) * .1",
    ),
    "neighbours_within_a_radius": task(
        "B 1 3 2, N 8 200 60, S 1 30 9",
        """
def reference(xyz, new_xyz, feat, radius: float = 0.6):
    B, N, _ = xyz.shape
    S = new_xyz.shape[1]
    d = -2 * new_xyz @ xyz.transpose(1, 2) + (new_xyz ** 2).sum(-1)[..., None] + (xyz ** 2).sum(-1)[:, None]
    idx = torch.arange(N).view(1, 1, N).repeat(B, S, 1)
    idx[d > radius ** 2] = N
    idx = idx.sort(dim=-1)[0][:, :, :8]
    first = idx[:, :, :1].expand(-1, -1, 8)
    idx = torch.where(idx == N, first, idx).clamp(max=N - 1)
    b = torch.arange(B).view(B, 1, 1)
    return torch.cat([xyz[b, idx] - new_xyz[:, :, None], feat[b, idx]], -1).max(2).values
""",
        "torch.rand(B, N, 3), torch.rand(B, S, 3), torch.randn(B, N, 6)",
    ),
    "ternary_weights_four_to_a_byte": task(
        "M 1 32 7, K 1 16 4, N 1 16 6",
        """
def reference(x, packed, w_scale):
    # 2-bit ternary weights, int8 activations per token
    s = 127.0 / x.abs().max(dim=-1, keepdim=True).values.clamp_(min=1e-5)
    xq = (x * s).round().clamp_(-128, 127)
    rows = packed.shape[0]
    w = torch.zeros(rows * 4, packed.shape[1], dtype=torch.int8)
    for i in range(4):
        w[i * rows : (i + 1) * rows] = ((packed >> (2 * i)) & 3).to(torch.int8) - 1
    return (xq @ w.t().float()) / (s * w_scale)
""",
        "torch.randn(M, 8 * K), torch.randint(0, 256, (N, 8 * K), dtype=torch.uint8) & 0xAA, torch.tensor(1.7)",
    ),
}
