"""Operators as libraries for language models, vision, recommenders, graphs and quantisation write them, cut small.

Each is a function of ``inputs``: in-place updates, masks, packed integers, pages, routing, segments, cells, losses.
"""

# ruff: noqa: E501 - a table: arguments, body, inputs
from __future__ import annotations

_HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n"


def _op(parameters: str, body: str, given: str) -> str:
    """A task of a body whose lines are separated by `` ; ``, its last line the result; loops are indented by hand."""
    *lines, result = body.split(" ; ")
    text = "".join(f"    {line}\n" for line in lines)
    return f"{_HEAD}\ndef reference({parameters}):\n{text}    return {result}\n\ndef inputs():\n    return ({given},)\n"


_H = "torch.randn(6, 16)"
PRACTICE: dict[str, str] = {
    # in place
    "kv_cache_write": _op(
        "cache, new, slots", "cache.index_copy_(0, slots, new) ; cache * 1.0",
        "torch.zeros(24, 2, 8), torch.randn(5, 2, 8), torch.randperm(24)[:5]"),
    "kv_cache_by_slices": _op(
        "cache, new", "cache[:, 3:5] = new ; cache.sum(1)", "torch.randn(2, 8, 4), torch.randn(2, 2, 4)"),
    "fused_add_norm": _op(
        "x, r, w", "r.add_(x) ; v = r.float().pow(2).mean(-1, keepdim=True) ; (r * torch.rsqrt(v + 1e-6)) * w",
        f"{_H}, {_H}, torch.randn(16)"),
    "ema_update": _op(
        "shadow, p", "shadow.mul_(0.99).add_(p, alpha=0.01) ; shadow.norm()", f"{_H}, {_H}"),
    "conv_state_shift": _op(
        "state, x, w, b",
        "state.copy_(torch.cat((state[:, :, 1:], x.unsqueeze(-1)), -1)) ; F.silu((state * w).sum(-1) + b)",
        "torch.randn(2, 6, 4), torch.randn(2, 6), torch.randn(6, 4), torch.randn(6)"),
    "adamw_in_place": _op(
        "p, g, m, v",
        "m.lerp_(g, 0.1) ; v.mul_(0.999).addcmul_(g, g, value=0.001) ; p.mul_(1 - 1e-4).addcdiv_(m, v.sqrt() + 1e-8, value=-1e-3) ; p.clone()",
        "torch.randn(5, 9), torch.randn(5, 9), torch.randn(5, 9), torch.rand(5, 9)"),
    # arguments that are no tensors
    "optional_mask": _op(
        "x, mask=None, scale: float = 0.5", "x = x * scale if mask is None else x + mask ; x.softmax(-1)", "torch.randn(3, 7), None"),
    "list_of_tables": _op(
        "tables, ids", "torch.cat([F.embedding(ids[:, k], t) for k, t in enumerate(tables)], -1)",
        "[torch.randn(7, 4), torch.randn(5, 4), torch.randn(9, 4)], torch.randint(0, 5, (6, 3))"),
    "dict_of_states": _op(
        "state, x", "h = torch.tanh(x @ state['w'] + state['b']) ; {'h': h, 'energy': (h * h).sum(-1)}",
        "{'w': torch.randn(16, 8), 'b': torch.randn(8)}, torch.randn(4, 16)"),
    "mode_by_name": _op(
        "x, act: str = 'gelu'", "y = x[:, :8] * {'gelu': F.gelu, 'silu': F.silu}[act](x[:, 8:]) ; y", f"{_H}"),
    # attention and positions
    "rope_neox": _op(
        "q, cos, sin", "a, b = q.chunk(2, -1) ; torch.cat((a * cos - b * sin, b * cos + a * sin), -1)",
        "torch.randn(2, 5, 3, 8), torch.randn(5, 1, 4), torch.randn(5, 1, 4)"),
    "rope_complex": _op(
        "q, f", "z = torch.view_as_complex(q.float().reshape(2, 5, 3, 4, 2)) ; torch.view_as_real(z * torch.polar(torch.ones_like(f), f)[None, :, None, :]).flatten(3)",
        "torch.randn(2, 5, 3, 8), torch.randn(5, 4)"),
    "complex_mixture": _op(
        "a, b, c, d", "z = torch.complex(a, b) / (2 + torch.complex(c, d).abs()) ; w = (z * torch.complex(c, d).conj())[:, 1:].t() ; (torch.exp(-w).imag, w.sum(-1).angle(), torch.view_as_real(1 - w))",
        "torch.randn(5, 9), torch.randn(5, 9), torch.randn(5, 9), torch.randn(5, 9)"),
    "complex_arguments": _op(
        "z, w, x", "y = torch.einsum('bij,bj->bi', z, w) * torch.exp(1j * x) ; (y, y.abs(), (y / (2 + y.conj())).real)",
        "torch.randn(3, 4, 5, dtype=torch.complex64), torch.randn(3, 5, dtype=torch.complex64), torch.randn(4)"),
    "complex_in_double": _op(
        "z, x", "(z[:, 1:] - z[:, :-1]).cumsum(-1) * 0.5 + x.to(torch.complex128)", "torch.randn(3, 9, dtype=torch.complex128), torch.randn(3, 8)"),
    "bytes_as_signed": _op(
        "x, s", "x.view(torch.int8).float() * s ; (x.view(torch.int8).float() * s, (s > 0).view(torch.uint8))",
        "torch.randint(0, 256, (5, 8), dtype=torch.uint8), torch.randn(8)"),
    "bits_of_floats": _op(
        "x, h", "i = x.view(torch.int32) ; ((i >> 23 & 255) - 127, (0x5F3759DF - (i >> 1)).view(torch.float32), (h * 2).view(torch.int16) & 0x7FFF)",
        "torch.randn(5, 9), torch.randn(5, 9).half()"),
    "scales_among_bytes": _op(
        "blocks", "d = blocks[:, :2].contiguous().view(torch.float16).float() ; q = blocks[:, 2:] ; (torch.cat(((q & 15).to(torch.int8) - 8, (q >> 4).to(torch.int8) - 8), 1) * d).flatten()",
        "torch.cat((torch.rand(20, 1).half().view(torch.uint8), torch.randint(0, 256, (20, 16), dtype=torch.uint8)), 1)"),
    "bytes_of_numbers": _op(
        "x, n", "(x.view(torch.uint8).long().sum(-1), n.view(torch.int64), x.double().view(torch.int16)[..., ::4])",
        "torch.randn(5, 8), torch.randint(-1000, 1000, (5, 8), dtype=torch.int32)"),
    "mantissa_and_exponent": _op("x", "m, e = torch.frexp(x * 1e-3) ; (m, e)", "torch.randn(5, 9)"),
    "nested_states": _op(
        "state, x", "x * state['norm']['scale'] + state['bias'] + state['eps']",
        "{'norm': {'scale': torch.randn(9)}, 'bias': torch.randn(9), 'eps': 0.5}, torch.randn(5, 9)"),
    "rope_partial_by_position": _op(
        "q, table, at", "c, s = table[at].chunk(2, -1) ; a, b = q[..., :4:2], q[..., 1:4:2] ; r = torch.stack((a * c[:, None] - b * s[:, None], a * s[:, None] + b * c[:, None]), -1).flatten(-2) ; torch.cat((r, q[..., 4:]), -1)",
        "torch.randn(6, 2, 8), torch.randn(20, 4), torch.randint(0, 20, (6,))"),
    "paged_decode": _op(
        "q, k, v, table, lens",
        "ks, vs = k[table].flatten(1, 2), v[table].flatten(1, 2) ; s = torch.einsum('bhd,bthd->bht', q, ks) / 8 ** 0.5 ; s = s.masked_fill(torch.arange(12)[None, None] >= lens[:, None, None], float('-inf')) ; torch.einsum('bht,bthd->bhd', s.softmax(-1), vs)",
        "torch.randn(2, 3, 8), torch.randn(9, 4, 3, 8), torch.randn(9, 4, 3, 8), torch.randint(0, 9, (2, 3)), torch.tensor([5, 11])"),
    "latent_attention": _op(
        "qc, qr, kc, kr", "s = torch.einsum('bhc,btc->bht', qc, kc) + torch.einsum('bhr,btr->bht', qr, kr) ; torch.einsum('bht,btc->bhc', (s * 0.2).softmax(-1), kc)",
        "torch.randn(2, 3, 8), torch.randn(2, 3, 4), torch.randn(2, 7, 8), torch.randn(2, 7, 4)"),
    "alibi": _op(
        "q, k, v, slopes", "at = torch.arange(6) ; s = q @ k.transpose(-1, -2) * 0.35 + slopes[:, None, None] * (at[None] - at[:, None]) ; s.masked_fill(at[None] > at[:, None], -1e9).softmax(-1) @ v",
        "torch.randn(2, 6, 8), torch.randn(2, 6, 8), torch.randn(2, 6, 8), torch.rand(2)"),
    "relative_bias": _op(
        "s, table", "at = torch.arange(6) ; d = (at[:, None] - at[None]).clamp(-3, 3) + 3 ; (s + table[d].permute(2, 0, 1)).softmax(-1)",
        "torch.randn(2, 4, 6, 6), torch.randn(7, 4)"),
    "window_attention_mask": _op(
        "x", "m = torch.zeros(8, 8) ; m[:4, 4:] = -100.0 ; m[4:, :4] = -100.0 ; (x + m).softmax(-1)", "torch.randn(3, 8, 8)"),
    "swin_windows": _op(
        "x", "w = torch.roll(x, (-1, -1), (1, 2)).view(2, 2, 3, 2, 3, 4).transpose(2, 3).reshape(-1, 9, 4) ; a = (w @ w.transpose(1, 2)).softmax(-1) @ w ; torch.roll(a.view(2, 2, 2, 3, 3, 4).transpose(2, 3).reshape(2, 6, 6, 4), (1, 1), (1, 2))",
        "torch.randn(2, 6, 6, 4)"),
    "packed_sequences": _op(
        "q, k, v, seg", "s = q @ k.T / 8 ** 0.5 ; s = torch.where(seg[:, None] == seg[None], s, torch.finfo(s.dtype).min) ; s.softmax(-1) @ v",
        "torch.randn(9, 8), torch.randn(9, 8), torch.randn(9, 8), torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])"),
    "linear_attention": _op(
        "q, k, v", "q, k = F.elu(q) + 1, F.elu(k) + 1 ; kv = torch.einsum('bnd,bne->bde', k, v) ; torch.einsum('bnd,bde->bne', q, kv) / (q @ k.sum(1, keepdim=True).transpose(1, 2) + 1e-6)",
        "torch.randn(2, 9, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 5)"),
    "qk_norm_softcap": _op(
        "q, k, v", "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1) ; s = 30 * torch.tanh(q @ k.transpose(-1, -2) / 30) ; s.softmax(-1) @ v",
        "torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)"),
    # quantisation
    "int4_dequant_product": _op(
        "x, packed, scale, zero", "w = torch.stack((packed & 15, packed >> 4), -1).flatten(1).float() ; w = ((w.view(6, 2, 8) - zero[..., None]) * scale[..., None]).view(6, 16) ; x @ w.T",
        "torch.randn(4, 16), torch.randint(0, 256, (6, 8), dtype=torch.uint8), torch.rand(6, 2), torch.randint(0, 16, (6, 2)).float()"),
    "int4_pack": _op(
        "x", "q = (x / x.abs().amax(-1, keepdim=True) * 7).round().clamp(-8, 7).to(torch.int32) & 15 ; (q[:, ::2] | (q[:, 1::2] << 4)).to(torch.uint8)", _H),
    "gptq_unpack": _op(
        "packed, scale", "s = torch.arange(0, 32, 4, dtype=torch.int32) ; w = (packed[:, None] >> s[None, :, None]) & 15 ; (w.reshape(16, 5) - 8) * scale",
        "torch.randint(-2**31, 2**31 - 1, (2, 5), dtype=torch.int32), torch.rand(5)"),
    "int8_per_token": _op(
        "x", "s = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127 ; (torch.round(x / s).to(torch.int8), s)", _H),
    "int8_scaled_product": _op(
        "a, b, sa, sb, bias", "((a.to(torch.int32) @ b.to(torch.int32).T).float() * sa * sb + bias).half()",
        "torch.randint(-9, 9, (4, 16), dtype=torch.int8), torch.randint(-9, 9, (6, 16), dtype=torch.int8), torch.rand(4, 1), torch.rand(6), torch.randn(6)"),
    "fp8_block_dequant": _op(
        "w, s", "(w.float().view(2, 4, 3, 8) * s[:, None, :, None]).view(8, 24)", "torch.randn(8, 24).to(torch.float8_e4m3fn), torch.rand(2, 3)"),
    "fp8_group_quant": _op(
        "x", "g = x.view(6, 2, 8) ; s = g.abs().amax(-1).clamp(min=1e-4) / 448.0 ; ((g / s.unsqueeze(-1)).to(torch.float8_e4m3fn).view(6, 16).float(), s)", _H),
    "smooth_static_quant": _op(
        "x, s, z: int = 3", "torch.clamp(torch.round(x / s) + z, -128, 127).to(torch.int8)", f"{_H}, torch.rand(16) + 0.1"),
    "nf4_lookup": _op(
        "ids, absmax", "t = torch.tensor([-1.0, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1.0]) ; t[ids.long()].view(6, 2, 8) * absmax[..., None]",
        "torch.randint(0, 16, (6, 16), dtype=torch.uint8), torch.rand(6, 2)"),
    # mixtures of experts
    "grouped_topk_router": _op(
        "logits, bias", "s = logits.sigmoid() ; g = (s + bias).view(5, 4, 4).topk(2, -1).values.sum(-1) ; keep = torch.zeros_like(g).scatter_(1, g.topk(2, -1).indices, 1.0) ; c = (s + bias).masked_fill(keep.unsqueeze(-1).expand(5, 4, 4).reshape(5, 16) == 0, float('-inf')) ; i = c.topk(3, -1).indices ; w = s.gather(1, i) ; w / w.sum(-1, keepdim=True)",
        "torch.randn(5, 16), torch.randn(16) * 0.1"),
    "moe_by_experts": _op(
        "x, gate, w1, w2", "p, i = (x @ gate).softmax(-1).topk(2, -1) ; h = torch.einsum('td,edf->etf', x, w1) ; y = torch.einsum('etf,efd->etd', F.silu(h), w2) ; m = (F.one_hot(i, 4) * p.unsqueeze(-1)).sum(1) ; torch.einsum('te,etd->td', m, y)",
        "torch.randn(6, 8), torch.randn(8, 4), torch.randn(4, 8, 12), torch.randn(4, 12, 8)"),
    "moe_gathered_weights": _op(
        "x, ids, w", "torch.einsum('td,tkdf->tkf', x, w[ids]).relu()", "torch.randn(6, 8), torch.randint(0, 4, (6, 2)), torch.randn(4, 8, 5)"),
    "expert_counts": _op(
        "ids", "F.one_hot(ids.view(-1), 8).sum(0), F.one_hot(ids.view(-1), 8).cumsum(0).gather(1, ids.view(-1, 1)).squeeze(1) - 1", "torch.randint(0, 8, (6, 2))"),
    "load_balance": _op(
        "logits", "p = logits.softmax(-1) ; top = F.one_hot(p.argmax(-1), 8).float() ; 8 * (top.mean(0) * p.mean(0)).sum() + logits.logsumexp(-1).square().mean() * 1e-3", "torch.randn(12, 8)"),
    # state spaces and recurrences
    "selective_scan": _op(
        "u, dt, A, B, C, D",
        "dt = F.softplus(dt) ; h = torch.zeros(2, 6, 4) ; ys = [] ; for t in range(7): ;     h = torch.exp(dt[:, :, t, None] * A) * h + dt[:, :, t, None] * B[:, None, :, t] * u[:, :, t, None] ;     ys.append((h * C[:, None, :, t]).sum(-1)) ; torch.stack(ys, -1) + u * D[:, None]",
        "torch.randn(2, 6, 7), torch.randn(2, 6, 7), -torch.rand(6, 4), torch.randn(2, 4, 7), torch.randn(2, 4, 7), torch.randn(6)"),
    "chunked_decay": _op(
        "x, a", "c = a.cumsum(-1) ; d = torch.exp((c[..., :, None] - c[..., None, :]).tril()) ; L = d.tril() ; L @ x", "torch.randn(2, 6, 5), -torch.rand(2, 6)"),
    "causal_conv": _op(
        "x, w, b", "F.silu(F.conv1d(x, w.unsqueeze(1), b, padding=3, groups=6)[..., :9])", "torch.randn(2, 6, 9), torch.randn(6, 4), torch.randn(6)"),
    "gru_cell": _op(
        "x, h, wi, wh, b", "r, z, n = (x @ wi + b).chunk(3, -1) ; hr, hz, hn = (h @ wh).chunk(3, -1) ; r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz) ; n = torch.tanh(n + r * hn) ; (1 - z) * n + z * h",
        "torch.randn(4, 6), torch.randn(4, 5), torch.randn(6, 15), torch.randn(5, 15), torch.randn(15)"),
    "lstm_steps": _op(
        "x, wi, wh, b", "h = c = torch.zeros(3, 5) ; out = [] ; for t in range(6): ;     i, f, g, o = (x[:, t] @ wi + h @ wh + b).chunk(4, -1) ;     c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g) ;     h = torch.sigmoid(o) * torch.tanh(c) ;     out.append(h) ; (torch.stack(out, 1), h, c)",
        "torch.randn(3, 6, 4), torch.randn(4, 20), torch.randn(5, 20), torch.randn(20)"),
    "rwkv_time_mix": _op(
        "k, v, w, u", "num = den = torch.zeros(2, 5) ; out = [] ; for t in range(6): ;     e = torch.exp(u + k[:, t]) ;     out.append((num + e * v[:, t]) / (den + e)) ;     num = torch.exp(-w) * num + torch.exp(k[:, t]) * v[:, t] ;     den = torch.exp(-w) * den + torch.exp(k[:, t]) ; torch.stack(out, 1)",
        "torch.randn(2, 6, 5), torch.randn(2, 6, 5), torch.rand(5), torch.randn(5)"),
    "delta_rule": _op(
        "q, k, v, beta", "S = torch.zeros(2, 4, 5) ; out = [] ; k = F.normalize(k, dim=-1) ; for t in range(5): ;     err = v[:, t] - torch.einsum('bd,bde->be', k[:, t], S) ;     S = S + torch.einsum('bd,be->bde', k[:, t], err * beta[:, t, None]) ;     out.append(torch.einsum('bd,bde->be', q[:, t], S)) ; torch.stack(out, 1)",
        "torch.randn(2, 5, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 5), torch.rand(2, 5)"),
    # losses and sampling
    "ce_ignore_z_loss": _op(
        "x, t", "l = F.cross_entropy(x, t, ignore_index=-100, reduction='none') ; n = (t != -100).sum() ; l.sum() / n + 1e-4 * (x.logsumexp(-1).square() * (t != -100)).sum() / n",
        "torch.randn(6, 11), torch.tensor([3, -100, 0, 10, -100, 2])"),
    "token_logprobs": _op(
        "x, ids", "(x[:, :-1] / 0.8).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)", "torch.randn(2, 6, 11), torch.randint(0, 11, (2, 6))"),
    "dpo": _op(
        "pc, pr, rc, rr", "z = 0.1 * ((pc - rc) - (pr - rr)) ; (-F.logsigmoid(z) * 0.9 - F.logsigmoid(-z) * 0.1).mean(), (z > 0).float().mean()", "torch.randn(9), torch.randn(9), torch.randn(9), torch.randn(9)"),
    "min_p_filter": _op(
        "x", "p = x.softmax(-1) ; x.masked_fill(p < 0.2 * p.amax(-1, keepdim=True), float('-inf')).softmax(-1)", "torch.randn(3, 12)"),
    "top_k_top_p": _op(
        "x", "s, i = x.sort(-1, descending=True) ; p = s.softmax(-1) ; drop = (p.cumsum(-1) - p) > 0.8 ; s = s.masked_fill(drop, float('-inf')) ; torch.full_like(x, float('-inf')).scatter(-1, i, s)", "torch.randn(3, 12)"),
    "repetition_penalty": _op(
        "x, ids", "s = x.gather(1, ids) ; x.scatter(1, ids, torch.where(s < 0, s * 1.2, s / 1.2))", "torch.randn(3, 12), torch.stack([torch.randperm(12)[:4] for _ in range(3)])"),
    "beam_scores": _op(
        "lp, scores", "v, i = (lp + scores[..., None]).flatten(1).topk(3, -1) ; (v, i // 10, i % 10)", "torch.randn(2, 3, 10), torch.randn(2, 3)"),
    "focal_dice": _op(
        "x, t", "p = x.sigmoid() ; ce = F.binary_cross_entropy_with_logits(x, t, reduction='none') ; pt = p * t + (1 - p) * (1 - t) ; dice = 1 - (2 * (p * t).sum((1, 2)) + 1) / ((p + t).sum((1, 2)) + 1) ; (ce * (1 - pt) ** 2).mean() + dice.mean()",
        "torch.randn(3, 6, 6), (torch.rand(3, 6, 6) > 0.5).float()"),
    "info_nce": _op(
        "a, b", "s = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.07 ; t = torch.arange(6) ; (F.cross_entropy(s, t) + F.cross_entropy(s.T, t)) / 2", f"{_H}, {_H}"),
    # graphs, recommenders, detection
    "segment_mean": _op(
        "x, seg", "s = torch.zeros(4, 6).index_add_(0, seg, x) ; n = torch.zeros(4).index_add_(0, seg, torch.ones(9)) ; s / n.clamp(min=1)[:, None]", "torch.randn(9, 6), torch.sort(torch.randint(0, 4, (9,))).values"),
    "graph_softmax": _op(
        "e, dst", "m = torch.full((5,), float('-inf')).scatter_reduce(0, dst, e, 'amax') ; w = torch.exp(e - m[dst]) ; w / torch.zeros(5).scatter_add(0, dst, w)[dst]", "torch.randn(12), torch.randint(0, 5, (12,))"),
    "message_passing": _op(
        "x, src, dst, w", "torch.zeros_like(x).index_add(0, dst, x[src] @ w).relu()", "torch.randn(5, 6), torch.randint(0, 5, (12,)), torch.randint(0, 5, (12,)), torch.randn(6, 6)"),
    "segments_by_offsets": _op(
        "x, cu", "at = torch.arange(10) ; own = (at[None] >= cu[:-1, None]) & (at[None] < cu[1:, None]) ; torch.where(own[..., None], x[None], float('-inf')).amax(1)", "torch.randn(10, 6), torch.tensor([0, 3, 4, 10])"),
    "factorisation_machine": _op(
        "ids, lin, emb", "e = emb[ids] ; lin[ids].sum((1, 2)) + 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1)", "torch.randint(0, 20, (4, 5)), torch.randn(20, 1), torch.randn(20, 6)"),
    "dot_interaction": _op(
        "e", "z = e @ e.transpose(1, 2) ; i, j = torch.tril_indices(4, 4, -1) ; torch.cat((e[:, 0], z[:, i, j]), 1)", "torch.randn(3, 4, 6)"),
    "box_iou": _op(
        "a, b", "wh = (torch.minimum(a[:, None, 2:], b[None, :, 2:]) - torch.maximum(a[:, None, :2], b[None, :, :2])).clamp(min=0) ; inter = wh.prod(-1) ; area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1]) ; inter / (area(a)[:, None] + area(b)[None] - inter)",
        "torch.rand(5, 4) + torch.tensor([0., 0., 1., 1.]), torch.rand(6, 4) + torch.tensor([0., 0., 1., 1.])"),
    "roi_bilinear": _op(
        "f, xy", "x0 = xy.floor().long().clamp(0, 6) ; d = xy - x0 ; g = lambda i, j: f[:, x0[:, 1] + i, x0[:, 0] + j] ; g(0, 0) * (1 - d[:, 0]) * (1 - d[:, 1]) + g(0, 1) * d[:, 0] * (1 - d[:, 1]) + g(1, 0) * (1 - d[:, 0]) * d[:, 1] + g(1, 1) * d[:, 0] * d[:, 1]",
        "torch.randn(3, 8, 8), torch.rand(5, 2) * 6"),
    # diffusion and vision
    "timestep_embedding": _op(
        "t", "f = torch.exp(-math.log(10000) * torch.arange(4) / 4) ; a = t[:, None].float() * f[None] ; torch.cat((a.cos(), a.sin()), -1)", "torch.randint(0, 1000, (5,))"),
    "ddim_step": _op(
        "x, eps, at, an", "x0 = (x - (1 - at).sqrt() * eps) / at.sqrt() ; s = torch.quantile(x0.abs().flatten(1), 0.95, dim=1).clamp(min=1).view(-1, 1, 1) ; an.sqrt() * (x0.clamp(-s, s) / s) + (1 - an).sqrt() * eps",
        "torch.randn(2, 4, 4), torch.randn(2, 4, 4), torch.tensor(0.7), torch.tensor(0.8)"),
    "ada_norm_zero": _op(
        "x, c, w, b", "s, h, g = (F.silu(c) @ w + b).unsqueeze(1).chunk(3, -1) ; x + g * (F.layer_norm(x, (8,)) * (1 + s) + h)", "torch.randn(2, 5, 8), torch.randn(2, 6), torch.randn(6, 24), torch.randn(24)"),
    "group_norm_upsample": _op(
        "x, w, b", "F.interpolate(F.silu(F.group_norm(x, 2, w, b)), scale_factor=2.0, mode='nearest')", "torch.randn(2, 4, 5, 5), torch.randn(4), torch.randn(4)"),
    "patchify": _op(
        "x, w, cls, pos", "p = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(2, 4, 48) @ w ; torch.cat((cls.expand(2, -1, -1), p), 1) + pos", "torch.randn(2, 3, 8, 8), torch.randn(48, 6), torch.randn(1, 1, 6), torch.randn(1, 5, 6)"),
    "mask_tokens": _op(
        "x, noise, token", "i = noise.argsort(1) ; kept = torch.gather(x, 1, i[:, :3, None].expand(-1, -1, 4)) ; full = torch.cat((kept, token.expand(2, 5, 4)), 1) ; torch.gather(full, 1, i.argsort(1)[..., None].expand(-1, -1, 4))",
        "torch.randn(2, 8, 4), torch.rand(2, 8), torch.randn(1, 1, 4)"),
    "batch_norm_written": _op(
        "x, mean, var, w, b", "F.relu(F.batch_norm(x, mean, var, w, b, training=True, momentum=0.1))", "torch.randn(4, 3, 5, 5), torch.zeros(3), torch.ones(3), torch.randn(3), torch.randn(3)"),
    "spectrogram": _op(
        "x", "s = torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=True).abs() ; torch.log10(s.clamp(min=1e-5))", "torch.randn(2, 64)"),
    "haar_wavelet": _op(
        "x", "a, b, c, d = x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2] ; torch.cat((a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d), 1) / 2", "torch.randn(2, 3, 6, 6)"),
    "many_steps_kept": _op("x", "torch.stack([x[k] * (k + 1) for k in range(80)])", "torch.randn(80, 7)"),
    "table_of_bytes": _op(
        "codes, size, x", "lut = torch.linspace(-1, 1, 16) ; w = lut[torch.stack((codes >> 4, codes & 15), -1).flatten(1).int()] * size.repeat_interleave(8, 1) ; x @ w.t()",
        "torch.randint(0, 256, (10, 16), dtype=torch.uint8), torch.rand(10, 4), torch.randn(5, 32)"),
    # places named twice, slices with a step, heads of any width
    "interleaved_in_place": _op(
        "q, c, s", "e, o = q[..., 0::2], q[..., 1::2] ; y = torch.empty_like(q) ; y[..., 0::2] = e * c - o * s ; y[..., 1::2] = e * s + o * c ; y",
        "torch.randn(2, 3, 8), torch.randn(3, 4), torch.randn(3, 4)"),
    "every_third_replaced": _op("x, y", "x = x.clone() ; x[1:6:3, 2:7:2] = y ; x", "torch.randn(8, 9), torch.randn(2, 3)"),
    "scattered_factors": _op("x, i, s", "torch.scatter(x, 0, i, s, reduce='multiply')", "torch.randn(8, 5), torch.randint(0, 8, (6, 5)), torch.randn(6, 5)"),
    "scattered_terms": _op("x, i, s", "torch.scatter(x, -1, i, s, reduce='add')", "torch.randn(8, 50), torch.randint(0, 5, (2, 12)), torch.randn(8, 12)"),
    "one_key": _op("q, k, v, m", "F.scaled_dot_product_attention(q, k, v, m)", "torch.randn(2, 3, 5, 1), torch.randn(2, 3, 1, 1), torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 1) > 0"),
}  # fmt: skip
