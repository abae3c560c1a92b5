"""Operators of language models as practitioners write them: attention, gates, sampling, preferences, few bits."""

from __future__ import annotations

from tests.practice.cases import task

#: language models of 2025 and 2026, and their state-space relatives
LANGUAGE = {
    "norm_with_an_offset_weight": task(
        "T 1 64 12",
        """
def reference(x, weight, eps: float = 1e-6):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y * (1.0 + weight.float())).type_as(x)
""",
        "torch.randn(T, 96).bfloat16(), torch.randn(96).bfloat16()",
    ),
    "partial_rotation_after_a_head_norm": task(
        "T 1 64 12",
        """
def reference(q, weight, cos, sin):
    q = F.rms_norm(q, (32,), weight, 1e-6)
    turned, kept = q[..., :16], q[..., 16:]
    half = torch.cat((-turned[..., 8:], turned[..., :8]), -1)
    return torch.cat((turned * cos[:, None] + half * sin[:, None], kept), -1)
""",
        "torch.randn(T, 4, 32), torch.rand(32), torch.randn(T, 16), torch.randn(T, 16)",
    ),
    "rotation_of_neighbours": task(
        "T 1 64 12",
        """
def reference(x, angle):
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
""",
        "torch.randn(T, 4, 32), torch.randn(T, 16)",
    ),
    "attention_with_a_sink": task(
        "T 1 40 12",
        """
def reference(q, k, v, sink):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    at = torch.arange(q.shape[1])
    apart = at[:, None] - at
    scores = scores.masked_fill((apart < 0) | (apart >= 5), float("-inf"))
    joined = torch.cat((scores, sink[:, None, None].expand(-1, q.shape[1], 1)), -1)
    return torch.softmax(joined - joined.amax(-1, keepdim=True), -1)[..., :-1] @ v
""",
        "torch.randn(2, T, 16), torch.randn(2, T, 16), torch.randn(2, T, 16), torch.randn(2)",
    ),
    "attention_with_capped_scores": task(
        "T 1 40 12",
        """
def reference(q, k, v, cap: float = 20.0):
    scores = torch.einsum("htd,hsd->hts", q, k) / math.sqrt(q.shape[-1])
    scores = torch.tanh(scores / cap) * cap
    mask = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
    return torch.einsum("hts,hsd->htd", scores.where(mask, float("-inf")).softmax(-1), v)
""",
        "torch.randn(2, T, 16), torch.randn(2, T, 16), torch.randn(2, T, 16)",
    ),
    "attention_over_a_latent": task(
        "T 1 40 9",
        """
def reference(q, latent, up, rope):
    keys = (latent @ up).view(-1, 2, 24)
    k, v = keys.split((16, 8), -1)
    k = torch.cat((k, rope[:, None].expand(-1, 2, -1)), -1)
    scores = torch.einsum("thd,shd->hts", q, k) * 20**-0.5
    return torch.einsum("hts,shd->thd", scores.softmax(-1), v)
""",
        "torch.randn(T, 2, 20), torch.randn(T, 12), torch.randn(12, 48), torch.randn(T, 4)",
    ),
    "clamped_gate_of_interleaved_columns": task(
        "T 1 64 12",
        """
def reference(x, alpha: float = 1.702, limit: float = 7.0):
    gate, up = x[..., ::2], x[..., 1::2]
    gate = gate.clamp(max=limit)
    return (up.clamp(-limit, limit) + 1) * gate * torch.sigmoid(alpha * gate)
""",
        "torch.randn(T, 96) * 4",
    ),
    "experts_chosen_by_groups": task(
        "T 1 64 12",
        """
def reference(logits, bias):
    scores = logits.sigmoid()
    biased = scores + bias
    groups = biased.view(-1, 4, 8).topk(2, dim=-1).values.sum(-1)
    best = groups.topk(2, dim=-1).indices
    kept = torch.zeros_like(groups).scatter_(1, best, 1.0)
    allowed = biased.masked_fill(~kept.bool().repeat_interleave(8, 1), 0.0)
    at = allowed.topk(4, dim=-1).indices
    weights = scores.gather(1, at)
    return weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5, at
""",
        "torch.randn(T, 32), torch.rand(32)",
    ),
    "load_of_experts": task(
        "T 2 200 50",
        """
def reference(logits):
    share = logits.softmax(-1)
    chosen = share.topk(2, -1).indices
    tokens = F.one_hot(chosen, 8).float().mean(0).sum(0)
    return (tokens * share.mean(0)).sum() * 8
""",
        "torch.randn(T, 8)",
    ),
    "low_rank_added_to_a_layer": task(
        "T 1 64 12",
        """
def reference(x, weight, down, up, scale: float = 0.5):
    return F.linear(x, weight) + F.linear(F.linear(x, down), up) * scale
""",
        "torch.randn(T, 64), torch.randn(48, 64), torch.randn(4, 64), torch.randn(48, 4)",
    ),
    "retention_in_parallel": task(
        "T 1 40 12",
        """
def reference(q, k, v, rate):
    at = torch.arange(q.shape[1])
    apart = (at[:, None] - at).float()
    decay = torch.where(apart >= 0, torch.exp(apart * rate.log()[:, None, None]), 0.0)
    y = (q @ k.transpose(1, 2) * decay) @ v
    return F.layer_norm(y, (16,))
""",
        "torch.randn(2, T, 16), torch.randn(2, T, 16), torch.randn(2, T, 16), torch.rand(2) * 0.1 + 0.9",
    ),
    "token_shift": task(
        "T 1 64 12",
        """
def reference(x, mix):
    before = F.pad(x, (0, 0, 1, -1))
    xx = before - x
    return torch.stack([x + xx * m for m in mix])
""",
        "torch.randn(2, T, 24), torch.rand(3, 24)",
    ),
    "delta_rule_by_steps": task(
        "B 1 6 3",
        """
def reference(q, k, v, beta):
    state = torch.zeros(q.shape[0], 8, 8)
    out = []
    for t in range(6):
        past = torch.einsum("bk,bkv->bv", k[:, t], state)
        state = state + torch.einsum("bk,bv->bkv", k[:, t], (v[:, t] - past) * beta[:, t, None])
        out.append(torch.einsum("bk,bkv->bv", q[:, t], state))
    return torch.stack(out, 1), state
""",
        "torch.randn(B, 6, 8), F.normalize(torch.randn(B, 6, 8), dim=-1), torch.randn(B, 6, 8), torch.rand(B, 6)",
    ),
    "selective_scan_by_steps": task(
        "B 1 6 2",
        """
def reference(u, delta, a, b, c, d):
    delta = F.softplus(delta)
    decay = torch.exp(delta[..., None] * a)
    grown = delta[..., None] * b[:, :, None] * u[..., None]
    state = torch.zeros(u.shape[0], 12, 4)
    out = []
    for t in range(5):
        state = decay[:, t] * state + grown[:, t]
        out.append((state * c[:, t, None]).sum(-1))
    return torch.stack(out, 1) + u * d
""",
        "torch.randn(B, 5, 12), torch.randn(B, 5, 12), -torch.rand(12, 4), torch.randn(B, 5, 4), torch.randn(B, 5, 4),"
        " torch.randn(12)",
    ),
    "sums_between_places": task(
        "B 1 6 2",
        """
def reference(x):
    n = x.shape[-1]
    wide = x[..., None].expand(-1, -1, n)
    wide = wide.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(-1), 0)
    total = wide.cumsum(-2)
    return total.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), float("-inf")).exp()
""",
        "-torch.rand(B, 16)",
    ),
    "short_convolution_then_a_gate": task(
        "T 3 64 20",
        """
def reference(x, weight, bias):
    n = x.shape[-1]
    return F.silu(F.conv1d(x, weight[:, None], bias, padding=3, groups=12)[..., :n])
""",
        "torch.randn(2, 12, T), torch.randn(12, 4), torch.randn(12)",
    ),
    "convolution_state_of_one_step": task(
        "B 1 64 5",
        """
def reference(state, x, weight):
    state.copy_(torch.roll(state, -1, -1))
    state[:, :, -1] = x
    return F.silu((state * weight).sum(-1))
""",
        "torch.randn(B, 12, 4), torch.randn(B, 12), torch.randn(12, 4)",
    ),
}

#: what is drawn from logits
SAMPLING = {
    "kept_above_a_share_of_the_best": task(
        "B 1 40 5, V 1 300 90",
        """
def reference(logits, least: float = 0.05):
    share = logits.softmax(-1)
    return logits.masked_fill(share < least * share.amax(-1, keepdim=True), float("-inf"))
""",
        "torch.randn(B, V) * 2",
    ),
    "repetition_made_dearer": task(
        "B 1 40 5, V 20 300 90",
        """
def reference(logits, seen, penalty: float = 1.3):
    score = logits.gather(1, seen)
    score = torch.where(score < 0, score * penalty, score / penalty)
    return logits.scatter(1, seen, score)
""",
        "torch.randn(B, V), torch.randint(0, V, (B, 7))",
    ),
    "drawn_with_given_noise": task(
        "B 1 40 5, V 1 300 90",
        """
def reference(logits, noise, heat):
    share = (logits / heat[:, None]).softmax(-1)
    return (share / -torch.log(noise.clamp_min(1e-10))).argmax(-1)
""",
        "torch.randn(B, V), torch.rand(B, V), torch.rand(B) + 0.5",
    ),
    "only_the_best_few": task(
        "B 1 40 5, V 10 300 90",
        """
def reference(logits):
    least = torch.topk(logits, 8).values[..., -1, None]
    return torch.where(logits < least, float("-inf"), logits).log_softmax(-1)
""",
        "torch.randn(B, V)",
    ),
    "kept_where_typical": task(
        "B 1 6 3, V 4 300 90",
        """
def reference(logits, mass: float = 0.9):
    log = logits.log_softmax(-1)
    entropy = -(log.exp() * log).nansum(-1, keepdim=True)
    ordered, at = torch.sort((-log - entropy).abs())
    last = (log.gather(-1, at).exp().cumsum(-1) < mass).sum(1).clamp(max=logits.shape[-1] - 1)
    drop = ordered > ordered.gather(1, last.view(-1, 1))
    return logits.masked_fill(drop.scatter(1, at, drop), float("-inf"))
""",
        "torch.randn(B, V)",
    ),
    "drafts_accepted_in_a_row": task(
        "B 1 64 9",
        """
def reference(target, draft, token, coin):
    p = target.gather(2, token[..., None])[..., 0]
    q = draft.gather(2, token[..., None])[..., 0]
    taken = (coin < (p / q).clamp(max=1)).long().cumprod(-1)
    return taken.sum(-1), (target - draft).clamp(min=0) / (target - draft).clamp(min=0).sum(-1, keepdim=True)
""",
        "torch.rand(B, 4, 30).softmax(-1), torch.rand(B, 4, 30).softmax(-1), torch.randint(0, 30, (B, 4)),"
        " torch.rand(B, 4)",
    ),
}

#: rewards, advantages and preferences
REINFORCEMENT = {
    "clipped_policy_loss": task(
        "B 1 40 5, T 2 60 17",
        """
def reference(log, old, gain, mask, low: float = 0.2, high: float = 0.28):
    ratio = (log - old).exp()
    loss = -torch.min(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain)
    clipped = ((ratio < 1 - low) & (gain < 0)) | ((ratio > 1 + high) & (gain > 0))
    return (loss * mask).sum() / mask.sum(), (clipped.float() * mask).sum() / mask.sum()
""",
        "torch.randn(B, T), torch.randn(B, T), torch.randn(B, T), torch.ones(B, T)",
    ),
    "preferences_between_pairs": task(
        "B 1 64 9",
        """
def reference(chosen, rejected, chosen_ref, rejected_ref, beta: float = 0.1):
    margin = (chosen - rejected) - (chosen_ref - rejected_ref)
    loss = -F.logsigmoid(beta * margin) * 0.9 - F.logsigmoid(-beta * margin) * 0.1
    return loss.mean(), beta * (chosen - chosen_ref), (margin > 0).float().mean()
""",
        "torch.randn(B), torch.randn(B), torch.randn(B), torch.randn(B)",
    ),
    "advantages_within_groups": task(
        "G 1 40 6",
        """
def reference(rewards):
    groups = rewards.view(-1, 8)
    gain = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    return gain.flatten(), (groups.std(1) == 0).float().mean()
""",
        "torch.randn(G * 8)",
    ),
    "third_estimate_of_divergence": task(
        "B 1 40 5, T 1 60 17",
        """
def reference(log, ref, mask):
    apart = ref - log
    each = torch.exp(apart) - apart - 1
    return ((each * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()
""",
        "torch.randn(B, T), torch.randn(B, T), torch.randint(0, 2, (B, T))",
    ),
    "advantages_backwards": task(
        "B 1 64 9",
        """
def reference(reward, value, done, gamma: float = 0.99, lam: float = 0.95):
    gain, out = torch.zeros_like(reward[:, 0]), []
    for t in reversed(range(6)):
        delta = reward[:, t] + gamma * value[:, t + 1] * (1 - done[:, t]) - value[:, t]
        gain = delta + gamma * lam * (1 - done[:, t]) * gain
        out.insert(0, gain)
    gains = torch.stack(out, 1)
    return gains, gains + value[:, :-1]
""",
        "torch.randn(B, 6), torch.randn(B, 7), torch.randint(0, 2, (B, 6)).float()",
    ),
    "returns_by_a_turned_sum": task(
        "B 1 40 5, T 1 60 17",
        """
def reference(reward, gamma: float = 0.97):
    power = gamma ** torch.arange(reward.shape[1], dtype=torch.float32)
    return (reward * power).flip(1).cumsum(1).flip(1) / power
""",
        "torch.randn(B, T)",
    ),
    "projected_distribution": task(
        "B 1 64 9",
        """
def reference(share, reward, done, gamma: float = 0.99):
    atoms = torch.linspace(-10, 10, 21)
    place = ((reward[:, None] + gamma * (1 - done[:, None]) * atoms).clamp(-10, 10) + 10) / 1.0
    low = place.floor()
    near = low.long()
    far = (near + 1).clamp(max=20)
    out = torch.zeros_like(share)
    out.scatter_add_(1, near, share * (1 - (place - low)))
    return out.scatter_add_(1, far, share * (place - low))
""",
        "torch.rand(B, 21).softmax(-1), torch.randn(B) * 5, torch.randint(0, 2, (B,)).float()",
    ),
    "entropy_of_logits": task(
        "B 1 40 5, V 1 300 90",
        """
def reference(logits):
    return torch.logsumexp(logits, -1) - (logits.softmax(-1) * logits).sum(-1)
""",
        "torch.randn(B, V)",
    ),
}

#: numbers of few bits
QUANTISED = {
    "rows_and_columns_scaled": task(
        "T 1 64 12",
        """
def reference(x, weight, scale):
    top = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    near = (x / top).round().clamp(-128, 127).to(torch.int8)
    return (near.float() @ weight.float().T) * top * scale
""",
        "torch.randn(T, 64), torch.randint(-128, 128, (48, 64), dtype=torch.int8), torch.rand(48)",
    ),
    "eight_nibbles_of_a_word": task(
        "T 1 64 12",
        """
def reference(x, packed, scale, zero):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    w = ((packed[:, :, None] >> shifts) & 15).flatten(1).float()
    w = (w.view(24, 4, 16) - zero[..., None]) * scale[..., None]
    return x @ w.view(24, 64).T
""",
        "torch.randn(T, 64), torch.randint(0, 2**31 - 1, (24, 8), dtype=torch.int32), torch.rand(24, 4),"
        " torch.randint(0, 16, (24, 4)).float()",
    ),
    "quantised_and_back": task(
        "N 1 300 70",
        """
def reference(x, bits: int = 4):
    low, high = x.min(), x.max()
    step = (high - low).clamp(min=1e-8) / (2**bits - 1)
    zero = torch.round(-low / step)
    near = torch.clamp(torch.round(x / step) + zero, 0, 2**bits - 1)
    return x + ((near - zero) * step - x)
""",
        "torch.randn(N)",
    ),
    "weights_of_three_values": task(
        "T 1 64 12",
        """
def reference(x, weight):
    scale = weight.abs().mean().clamp(min=1e-5)
    three = (weight / scale).round().clamp(-1, 1) * scale
    top = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return F.linear((x * top).round().clamp(-128, 127) / top, three)
""",
        "torch.randn(T, 64), torch.randn(48, 64)",
    ),
    "exponents_shared_by_blocks": task(
        "T 1 64 12",
        """
def reference(x):
    blocks = x.view(x.shape[0], -1, 32)
    power = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-100))) - 2
    scaled = blocks / torch.exp2(power)
    return (scaled.clamp(-7, 7).mul(2).round().div(2) * torch.exp2(power)).view_as(x), power.squeeze(-1) + 127
""",
        "torch.randn(T, 96)",
    ),
}

OPERATORS = {**LANGUAGE, **SAMPLING, **REINFORCEMENT, **QUANTISED}
