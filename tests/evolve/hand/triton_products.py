"""Products, few bits, segments and attention: Triton by hand."""

from __future__ import annotations

from tests.evolve.hand import Hand, in_triton, task

PRODUCTS = {
    "linear_gelu": Hand(
        task(
            "def reference(x, w, b):\n    return F.gelu(F.linear(x, w, b), approximate='tanh')",
            "x, w = torch.randn(4096, 2048), torch.randn(4096, 2048) * 0.03\n"
            "return x.to(torch.bfloat16), w.to(torch.bfloat16), torch.randn(4096).to(torch.bfloat16)",
        ),
        in_triton("""
@triton.jit
def linear(X, W, B, Y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    p = tl.program_id(0)
    # groups of eight rows of tiles share their part of w in the cache
    group = p // (8 * (4096 // BN))
    m, n = group * 8 + p % 8, p % (8 * (4096 // BN)) // 8
    rows, cols, k = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN), tl.arange(0, BK)
    x, w = X + rows[:, None] * 2048 + k, W + cols[None, :] * 2048 + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, 2048, BK):
        total = tl.dot(tl.load(x), tl.load(w), total)
        x += BK
        w += BK
    v = (total + tl.load(B + cols).to(tl.float32)).to(tl.bfloat16).to(tl.float32)
    t = 1.5957691216 * (v + 0.044715 * v * v * v)
    tl.store(Y + rows[:, None] * 4096 + cols, (v / (1 + tl.exp(-t))).to(tl.bfloat16))


def kernel(x, w, b):
    y = torch.empty(4096, 4096, dtype=x.dtype, device=x.device)
    grid = ((4096 // 128) * (4096 // 256),)
    linear[grid](x.contiguous(), w.contiguous(), b, y, BM=128, BN=256, BK=64, num_warps=8, num_stages=4)
    return y
"""),
    ),
    "bytes_by_rows": Hand(
        task(
            "def reference(x, w, s):\n    return F.linear(x, w.to(x.dtype) * s[:, None])",
            "x = torch.randn(16, 4096).to(torch.bfloat16)\n"
            "w = torch.randint(-127, 128, (11008, 4096), dtype=torch.int8)\n"
            "return x, w, (torch.rand(11008) * 0.01).to(x.dtype)",
        ),
        in_triton("""
@triton.jit
def linear(X, W, S, Y, BN: tl.constexpr, BK: tl.constexpr):
    rows, cols, k = tl.arange(0, 16), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    scale = tl.load(S + cols)
    total = tl.zeros((16, BN), dtype=tl.float32)
    for at in range(0, 4096, BK):
        w = tl.load(W + cols[None, :] * 4096 + at + k[:, None]).to(tl.bfloat16) * scale[None, :]
        total = tl.dot(tl.load(X + rows[:, None] * 4096 + at + k), w, total)
    tl.store(Y + rows[:, None] * 11008 + cols, total.to(tl.bfloat16))


def kernel(x, w, s):
    y = torch.empty(16, 11008, dtype=x.dtype, device=x.device)
    linear[(11008 // 32,)](x.contiguous(), w.contiguous(), s.contiguous(), y, BN=32, BK=256, num_warps=4, num_stages=4)
    return y
"""),
    ),
    "nibbles_by_vector": Hand(
        task(
            "def reference(w, s, x):\n    low, high = (w & 15).float() - 8, (w >> 4).float() - 8\n"
            "    v = torch.stack((low, high), -1).reshape(8192, 64, 128) * s[:, :, None]\n"
            "    return v.reshape(8192, 8192) @ x",
            "return torch.randint(0, 256, (8192, 4096), dtype=torch.uint8), torch.rand(8192, 64), torch.randn(8192)",
        ),
        in_triton("""
@triton.jit
def nibbles(W, S, X, Y, R: tl.constexpr):
    rows, k = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, 1024)
    total = tl.zeros((R,), dtype=tl.float32)
    for at in range(0, 4096, 1024):
        w = tl.load(W + rows[:, None] * 4096 + at + k)
        s = tl.load(S + rows[:, None] * 64 + (at + k) // 64)
        even, odd = tl.load(X + 2 * (at + k)), tl.load(X + 2 * (at + k) + 1)
        low, high = (w & 15).to(tl.float32) - 8, (w >> 4).to(tl.float32) - 8
        total += tl.sum((low * even + high * odd) * s, 1)
    tl.store(Y + rows, total)


def kernel(w, s, x):
    y = torch.empty(8192, device=x.device)
    nibbles[(4096,)](w.contiguous(), s.contiguous(), x.contiguous(), y, R=2, num_warps=4, num_stages=3)
    return y
"""),
    ),
    "segment_means": Hand(
        task(
            "def reference(x, ends):\n    first = F.pad(ends[:-1], (1, 0))\n"
            "    at = torch.repeat_interleave(torch.arange(4096, device=x.device), ends - first, output_size=262144)\n"
            "    total = torch.zeros(4096, 128, device=x.device).index_add(0, at, x)\n"
            "    return total / (ends - first).clamp(min=1)[:, None]",
            "return torch.randn(262144, 128), torch.arange(1, 4097) * 64",
        ),
        in_triton("""
@triton.jit
def means(X, E, Y, R: tl.constexpr):
    s, cols, r = tl.program_id(0), tl.arange(0, 128), tl.arange(0, R)
    begin = tl.load(E + s - 1, mask=s > 0, other=0)
    end = tl.load(E + s)
    total = tl.zeros((128,), dtype=tl.float32)
    for at in range(begin, end, R):
        rows = at + r
        total += tl.sum(tl.load(X + rows[:, None] * 128 + cols, mask=rows[:, None] < end, other=0.0), 0)
    tl.store(Y + s * 128 + cols, total / tl.maximum(end - begin, 1).to(tl.float32))


def kernel(x, ends):
    y = torch.empty(4096, 128, device=x.device)
    means[(4096,)](x.contiguous(), ends.contiguous(), y, R=32, num_warps=4)
    return y
"""),
    ),
    "one_query": Hand(
        task(
            "def reference(q, k, v):\n    s = (q.view(8, 8, 4, 128) @ k.transpose(-1, -2)).float()\n"
            "    p = torch.softmax(s * 0.08838834764, -1)\n"
            "    return (p.to(v.dtype) @ v).reshape(8, 32, 128)",
            "q, k, v = torch.randn(8, 32, 128), torch.randn(8, 8, 8192, 128), torch.randn(8, 8, 8192, 128)\n"
            "return q.to(torch.bfloat16), k.to(torch.bfloat16), v.to(torch.bfloat16)",
        ),
        in_triton("""
@triton.jit
def part(Q, K, V, O, M, L, P: tl.constexpr, B: tl.constexpr):
    g, p = tl.program_id(0).to(tl.int64), tl.program_id(1)
    h, d, t = tl.arange(0, 16), tl.arange(0, 128), tl.arange(0, B)
    q = tl.load(Q + (g * 4 + h[:, None]) * 128 + d, mask=h[:, None] < 4, other=0.0)
    top = tl.full((16,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((16,), dtype=tl.float32)
    out = tl.zeros((16, 128), dtype=tl.float32)
    for at in range(p * (8192 // P), (p + 1) * (8192 // P), B):
        k = tl.load(K + (g * 8192 + at + t[None, :]) * 128 + d[:, None])
        s = tl.dot(q, k) * (0.08838834764 * 1.44269504)
        now = tl.maximum(top, tl.max(s, 1))
        e, a = tl.exp2(s - now[:, None]), tl.exp2(top - now)
        total = total * a + tl.sum(e, 1)
        v = tl.load(V + (g * 8192 + at + t[:, None]) * 128 + d)
        out = tl.dot(e.to(tl.bfloat16), v, out * a[:, None])
        top = now
    at = (g * P + p) * 16 + h
    tl.store(O + at[:, None] * 128 + d, out)
    tl.store(M + at, top)
    tl.store(L + at, total)


@triton.jit
def whole(O, M, L, Y, P: tl.constexpr):
    g, h, d, p = tl.program_id(0), tl.program_id(1), tl.arange(0, 128), tl.arange(0, P)
    at = (g * P + p) * 16 + h
    m = tl.load(M + at)
    w = tl.exp2(m - tl.max(m, 0))
    total = tl.sum(w * tl.load(L + at), 0)
    out = tl.sum(w[:, None] * tl.load(O + at[:, None] * 128 + d), 0)
    tl.store(Y + (g * 4 + h) * 128 + d, (out / total).to(tl.bfloat16))


def kernel(q, k, v):
    P = 16
    o, m = torch.empty(64, P, 16, 128, device=q.device), torch.empty(64, P, 16, device=q.device)
    n, y = torch.empty(64, P, 16, device=q.device), torch.empty_like(q)
    part[(64, P)](q.contiguous(), k.contiguous(), v.contiguous(), o, m, n, P=P, B=64, num_warps=4, num_stages=3)
    whole[(64, 4)](o, m, n, y, P=P, num_warps=4)
    return y
"""),
    ),
    "causal_attention": Hand(
        task(
            "def reference(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
            "q, k, v = torch.randn(3, 4, 16, 2048, 64).to(torch.bfloat16)\nreturn q, k, v",
        ),
        in_triton("""
@triton.jit
def block(q, out, top, total, K, V, base, first, last, rows, MASK: tl.constexpr, B: tl.constexpr):
    d, t = tl.arange(0, 64), tl.arange(0, B)
    for at in range(first, last, B):
        k = tl.load(K + (base + at + t[None, :]) * 64 + d[:, None])
        s = tl.dot(q, k) * (0.125 * 1.44269504)
        if MASK:
            s = tl.where(rows[:, None] >= at + t[None, :], s, float("-inf"))
        now = tl.maximum(top, tl.max(s, 1))
        e, a = tl.exp2(s - now[:, None]), tl.exp2(top - now)
        total = total * a + tl.sum(e, 1)
        v = tl.load(V + (base + at + t[:, None]) * 64 + d)
        out = tl.dot(e.to(tl.bfloat16), v, out * a[:, None])
        top = now
    return out, top, total


@triton.jit
def attention(Q, K, V, Y, M: tl.constexpr, B: tl.constexpr):
    # the longest rows begin first
    m, base = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64) * 2048
    rows, d = m * M + tl.arange(0, M), tl.arange(0, 64)
    q = tl.load(Q + (base + rows[:, None]) * 64 + d)
    top = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    out = tl.zeros((M, 64), dtype=tl.float32)
    out, top, total = block(q, out, top, total, K, V, base, 0, m * M, rows, False, B)
    out, top, total = block(q, out, top, total, K, V, base, m * M, (m + 1) * M, rows, True, B)
    tl.store(Y + (base + rows[:, None]) * 64 + d, (out / total[:, None]).to(tl.bfloat16))


def kernel(q, k, v):
    y = torch.empty_like(q)
    attention[(16, 64)](q.contiguous(), k.contiguous(), v.contiguous(), y, M=128, B=64, num_warps=4, num_stages=3)
    return y
"""),
    ),
}
