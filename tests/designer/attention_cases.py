"""Small references of attention in the ways that people write it: name -> task text."""

# ruff: noqa: E501 - a table: one case a line
from __future__ import annotations

_HEAD = """import math
import torch
import torch.nn.functional as F
from kernellab import Dim
{dims}

def reference({parameters}):
{body}

def inputs({keywords}):
    return ({given},)
"""


def attention_task(parameters: str, body: str, given: str, **dims: int) -> str:
    """A task whose reference has ``body``, lines separated by semicolons; the last is the result."""
    *lines, result = [line.strip() for line in body.split(";")]
    text = "\n".join(f"    {line}" for line in [*lines, f"return {result}"])
    declared = "\n".join(f'{name} = Dim("{name}", 1, 4096)' for name in dims)
    keywords = ", ".join(f"{name}={size}" for name, size in dims.items())
    return _HEAD.format(dims=declared, parameters=parameters, body=text, keywords=keywords, given=given)


def _qkv(rows: str, keys: str, width: str = "8", columns: str = "8", lead: str = "2, 3, ", dtype: str = "") -> str:
    shapes = (f"{lead}{rows}, {width}", f"{lead}{keys}, {width}", f"{lead}{keys}, {columns}")
    return ", ".join(f"torch.randn({s}{', dtype=torch.' + dtype if dtype else ''})" for s in shapes)


_SDPA = "F.scaled_dot_product_attention(q, k, v"

ATTENTION: dict[str, str] = {
    "sdpa": attention_task("q, k, v", f"{_SDPA})", _qkv("19", "37", columns="5")),
    "sdpa_dims": attention_task("q, k, v", f"{_SDPA})", _qkv("S", "T"), S=19, T=37),
    "sdpa_any_width": attention_task("q, k, v", f"{_SDPA})", _qkv("S", "S", "D", "D", "B, 3, "), B=2, S=19, D=8),
    "sdpa_causal": attention_task("q, k, v", f"{_SDPA}, is_causal=True)", _qkv("40", "40")),
    "sdpa_causal_fewer_keys": attention_task("q, k, v", f"{_SDPA}, is_causal=True)", _qkv("40", "23")),
    "sdpa_causal_dims": attention_task("q, k, v", f"{_SDPA}, is_causal=True)", _qkv("S", "S"), S=40),
    "sdpa_added_mask": attention_task(
        "q, k, v, m", f"{_SDPA}, attn_mask=m, scale=0.5)", _qkv("19", "23") + ", torch.randn(19, 23)"
    ),
    "sdpa_mask_with_hidden_rows": attention_task(
        "q, k, v, m",
        f"{_SDPA}, attn_mask=m)",
        _qkv("19", "23") + ", (torch.rand(2, 1, 19, 23) > 0.3) & (torch.arange(19)[:, None] % 5 != 0)",
    ),
    "sdpa_shared_heads": attention_task(
        "q, k, v",
        f"{_SDPA}, is_causal=True, enable_gqa=True)",
        "torch.randn(2, 6, 19, 8), torch.randn(2, 3, 19, 8), torch.randn(2, 3, 19, 8)",
    ),
    "sdpa_one_key_head": attention_task(
        "q, k, v",
        f"{_SDPA}, enable_gqa=True)",
        "torch.randn(2, 4, 19, 8), torch.randn(2, 1, 23, 8), torch.randn(2, 1, 23, 8)",
    ),
    "sdpa_wide_heads": attention_task("q, k, v", f"{_SDPA})", _qkv("9", "13", "300", "300", "2, ")),
    "sdpa_bf16": attention_task("q, k, v", f"{_SDPA})", _qkv("19", "37", dtype="bfloat16")),
    "sdpa_f64": attention_task("q, k, v", f"{_SDPA})", _qkv("19", "37", dtype="float64")),
    "by_hand": attention_task(
        "q, k, v", "s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]); torch.softmax(s, -1) @ v", _qkv("19", "37")
    ),
    "by_hand_without_batch": attention_task(
        "q, k, v", "torch.softmax(q @ k.T * 0.3, -1) @ v", _qkv("19", "37", lead="")
    ),
    "by_hand_scaled_queries": attention_task("q, k, v", "torch.softmax((q * 0.3) @ k.mT, -1) @ v", _qkv("19", "37")),
    "by_hand_masked_fill": attention_task(
        "q, k, v",
        "s = (q @ k.mT) * 0.3; s = s.masked_fill(torch.tril(torch.ones(40, 40)) == 0, float('-inf')); F.softmax(s, dim=-1) @ v",
        _qkv("40", "40"),
    ),
    "by_hand_triu": attention_task(
        "q, k, v",
        "m = torch.triu(torch.full((40, 40), float('-inf')), 1); torch.softmax(q @ k.mT * 0.3 + m, -1) @ v",
        _qkv("40", "40"),
    ),
    "by_hand_distance": attention_task(
        "q, k, v",
        "i = torch.arange(40); d = (i[None, :] - i[:, None]).to(q.dtype); torch.softmax((q @ k.mT + 0.3 * d).masked_fill(d > 0, float('-inf')), -1) @ v",
        _qkv("40", "40"),
    ),
    "by_hand_window": attention_task(
        "q, k, v",
        "i = torch.arange(40); d = i[:, None] - i[None, :]; s = torch.where((d >= 0) & (d < 9), q @ k.mT, float('-inf')); torch.softmax(s, -1) @ v",
        _qkv("40", "40"),
    ),
    "by_hand_buffer_mask": attention_task(
        "q, k, v, m",
        "s = (q @ k.mT).masked_fill(m == 0, float('-inf')); torch.softmax(s, -1) @ v",
        _qkv("19", "23") + ", (torch.rand(19, 23) > 0.4).float()",
    ),
    "by_hand_finite_fill": attention_task(
        "q, k, v, m",
        "s = (q @ k.mT).masked_fill(m, -1e9); torch.softmax(s, -1) @ v",
        _qkv("19", "23") + ", torch.rand(2, 1, 19, 23) > 0.4",
    ),
    "by_hand_capped": attention_task(
        "q, k, v", "s = torch.tanh(q @ k.mT / 5) * 5; torch.softmax(s, -1) @ v", _qkv("19", "37")
    ),
    "by_hand_f32_softmax_of_bf16": attention_task(
        "q, k, v",
        "s = q @ k.mT * 0.3; F.softmax(s, -1, dtype=torch.float32).to(q.dtype) @ v",
        _qkv("19", "37", dtype="bfloat16"),
    ),
    "sink_of_each_head": attention_task(
        "q, k, v, c",
        "s = q @ k.mT * 0.3; s = torch.cat((s, c.reshape(1, 3, 1, 1).expand(2, 3, 19, 1)), -1); torch.softmax(s, -1)[..., :-1] @ v",
        _qkv("19", "37") + ", torch.tensor([0.5, 4.0, float('-inf')])",
    ),
    "sink_first_with_a_window": attention_task(
        "q, k, v, c",
        "i = torch.arange(40); d = i[:, None] - i[None, :]; s = torch.where((d >= 0) & (d < 9), q @ k.mT, float('-inf')); "
        "s = torch.cat((c.reshape(1, 3, 1, 1).expand(2, -1, 40, -1), s), -1); s = s - s.amax(-1, keepdim=True); F.softmax(s, -1)[..., 1:] @ v",
        _qkv("40", "40") + ", torch.randn(3)",
    ),
    "sink_of_grouped_heads": attention_task(
        "q, k, v, c",
        "k, v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1); s = q @ k.mT * 0.3; "
        "s = torch.cat((s, c.reshape(1, -1, 1, 1).expand(2, -1, 19, -1)), -1); s = s - s.max(dim=-1, keepdim=True).values; "
        "p = F.softmax(s, dim=-1, dtype=s.dtype); p[..., :-1] @ v",
        "torch.randn(2, 6, 19, 8, dtype=torch.bfloat16), torch.randn(2, 2, 23, 8, dtype=torch.bfloat16), torch.randn(2, 2, 23, 8, dtype=torch.bfloat16), torch.randn(6, dtype=torch.bfloat16)",
    ),
    "self_attention": attention_task("x", "torch.softmax(x @ x.mT, -1) @ x", "torch.randn(2, 23, 8)"),
    "heads_from_one_projection": attention_task(
        "x, w, o",
        "q, k, v = (x @ w).split(24, -1); q, k, v = (t.view(2, 21, 3, 8).transpose(1, 2) for t in (q, k, v)); "
        f"y = {_SDPA}, is_causal=True); y.transpose(1, 2).reshape(2, 21, 24) @ o",
        "torch.randn(2, 21, 24), torch.randn(24, 72), torch.randn(24, 24)",
    ),
    "linear_on_both_sides": attention_task(
        "x, a, b, c",
        "torch.relu(torch.softmax((x @ a) @ (x @ b).mT * 0.1, -1) @ (x @ c)) + x",
        "torch.randn(2, 21, 24), torch.randn(24, 24), torch.randn(24, 24), torch.randn(24, 24)",
    ),
}

_ONE = "torch.randn(2, 6, 1, 8), torch.randn(2, 2, 2100, 8), torch.randn(2, 2, 2100, 8)"
_PAGES = "torch.randn(190, 12, 2, 8)"
_ROW = "torch.randn(3, 8), torch.randn(3, 2100, 8), torch.randn(3, 2100, 5)"

#: one query, or a few, for each head's keys: name -> task text
DECODE: dict[str, str] = {
    "grouped_heads": attention_task("q, k, v", f"{_SDPA}, enable_gqa=True)", _ONE),
    "own_keys": attention_task("q, k, v", f"{_SDPA})", _qkv("1", "2100", columns="5")),
    "one_key_head": attention_task(
        "q, k, v",
        f"{_SDPA}, enable_gqa=True)",
        "torch.randn(2, 6, 1, 8), torch.randn(2, 1, 2100, 8), torch.randn(2, 1, 2100, 12)",
    ),
    "heads_after_positions": attention_task(
        "q, k, v",
        "k, v = k.transpose(1, 2), v.transpose(1, 2); F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
        "torch.randn(2, 6, 1, 8), torch.randn(2, 2100, 2, 8), torch.randn(2, 2100, 2, 8)",
    ),
    "repeated_heads": attention_task("q, k, v", f"k, v = (t.repeat_interleave(3, 1) for t in (k, v)); {_SDPA})", _ONE),
    "expanded_heads": attention_task(
        "q, k, v",
        f"k, v = (t[:, :, None].expand(2, 2, 3, 2100, 8).reshape(2, 6, 2100, 8) for t in (k, v)); {_SDPA})",
        _ONE,
    ),
    "by_hand": attention_task("q, k, v", "s = q @ k.mT * 0.3; torch.softmax(s, -1) @ v", _qkv("1", "2100")),
    "by_hand_with_a_sink": attention_task(
        "q, k, v, c",
        "s = q @ k.mT * 0.3; s = torch.cat((s, c.reshape(1, 3, 1, 1).expand(2, 3, 1, 1)), -1); torch.softmax(s, -1)[..., :-1] @ v",
        _qkv("1", "2100") + ", torch.tensor([0.5, 8.0, float('-inf')])",
    ),
    "by_hand_vector": attention_task(
        "q, k, v",
        "s = torch.einsum('bd,bsd->bs', q, k); torch.einsum('bs,bse->be', torch.softmax(s * 0.3, -1), v)",
        _ROW,
    ),
    "by_hand_grouped": attention_task(
        "q, k, v",
        "q = q.view(2, 2, 3, 8); s = torch.einsum('bkgd,bksd->bkgs', q, k) * 0.3; torch.einsum('bkgs,bksd->bkgd', s.softmax(-1), v).reshape(2, 6, 1, 8)",
        _ONE,
    ),
    "lengths": attention_task(
        "q, k, v, n",
        f"m = (torch.arange(2100) < n[:, None])[:, None, None]; {_SDPA}, attn_mask=m, enable_gqa=True)",
        f"{_ONE}, torch.tensor([37, 0])",
    ),
    "added_mask": attention_task(
        "q, k, v, m", f"{_SDPA}, attn_mask=m, enable_gqa=True)", f"{_ONE}, torch.randn(2, 1, 1, 2100)"
    ),
    "few_queries_causal": attention_task(
        "q, k, v",
        "s = q @ k.mT * 0.3; i = torch.arange(4)[:, None] + 2096; s = s.masked_fill(torch.arange(2100) > i, float('-inf')); s.softmax(-1) @ v",
        _qkv("4", "2100"),
    ),
    "pages": attention_task(
        "q, k, v, pages",
        f"k, v = (t[pages].reshape(2, 2100, 2, 8).transpose(1, 2) for t in (k, v)); {_SDPA}, enable_gqa=True)",
        f"torch.randn(2, 6, 1, 8), {_PAGES}, {_PAGES}, torch.randint(-190, 190, (2, 175))",
    ),
    "pages_with_lengths": attention_task(
        "q, k, v, pages, n",
        "k, v = (t.index_select(0, pages.flatten()).reshape(2, 2100, 2, 8).transpose(1, 2) for t in (k, v)); "
        f"m = (torch.arange(2100) < n[:, None])[:, None, None]; {_SDPA}, attn_mask=m, enable_gqa=True)",
        f"torch.randn(2, 6, 1, 8), {_PAGES}, {_PAGES}, torch.randint(0, 190, (2, 175)), torch.tensor([37, 0])",
    ),
    "pages_of_heads": attention_task(
        "q, k, v, pages",
        "k, v = (t[pages].transpose(1, 2).reshape(2, 2, 2100, 8) for t in (k, v)); "
        "s = torch.einsum('bkgd,bksd->bkgs', q, k) * 0.3; torch.einsum('bkgs,bksd->bkgd', s.softmax(-1), v)",
        "torch.randn(2, 2, 3, 8), torch.randn(190, 2, 12, 8), torch.randn(190, 2, 12, 8), torch.randint(0, 190, (2, 175))",
    ),
    "any_length": attention_task(
        "q, k, v",
        f"{_SDPA}, enable_gqa=True)",
        "torch.randn(B, 6, 1, 8), torch.randn(B, 2, S, 8), torch.randn(B, 2, S, 8)",
        B=2,
        S=2100,
    ),
    "narrow": attention_task("q, k, v", f"{_SDPA})", _qkv("1", "2100", dtype="bfloat16")),
}
