"""Gates, scans, norms and a stencil: Triton by hand, one row after another."""

from __future__ import annotations

from tests.evolve.hand import Hand, in_triton, task

ROWS = {
    "top2_gate": Hand(
        task(
            "def reference(x):\n    v, i = torch.topk(x, 2, dim=-1)\n    return torch.softmax(v, -1), i",
            "return (torch.randn(131072, 64),)",
        ),
        in_triton("""
@triton.jit
def gate(X, Y, I, R: tl.constexpr):
    rows = tl.program_id(0) * R + tl.arange(0, R)
    cols = tl.arange(0, 64)
    x = tl.load(X + rows[:, None] * 64 + cols)
    a, i = tl.max(x, 1, return_indices=True)
    b, j = tl.max(tl.where(cols == i[:, None], float("-inf"), x), 1, return_indices=True)
    e = tl.exp(b - a)
    tl.store(Y + 2 * rows, 1 / (1 + e))
    tl.store(Y + 2 * rows + 1, e / (1 + e))
    tl.store(I + 2 * rows, i.to(tl.int64))
    tl.store(I + 2 * rows + 1, j.to(tl.int64))


def kernel(x):
    y = torch.empty(131072, 2, device=x.device)
    i = torch.empty(131072, 2, dtype=torch.int64, device=x.device)
    gate[(131072 // 32,)](x.contiguous(), y, i, R=32, num_warps=4)
    return y, i
"""),
    ),
    "swiglu_halves": Hand(
        task(
            "def reference(x):\n    a, b = x.chunk(2, -1)\n    return F.silu(a) * b",
            "return (torch.randn(8192, 16384).to(torch.bfloat16),)",
        ),
        in_triton("""
@triton.jit
def swiglu(X, Y, B: tl.constexpr):
    row, col = tl.program_id(1).to(tl.int64), tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(X + row * 16384 + col).to(tl.float32)
    b = tl.load(X + row * 16384 + 8192 + col).to(tl.float32)
    s = (a / (1 + tl.exp(-a))).to(tl.bfloat16).to(tl.float32)
    tl.store(Y + row * 8192 + col, (s * b).to(tl.bfloat16))


def kernel(x):
    y = torch.empty(8192, 8192, dtype=x.dtype, device=x.device)
    swiglu[(4, 8192)](x.contiguous(), y, B=2048, num_warps=8)
    return y
"""),
    ),
    "running_sums": Hand(
        task("def reference(x):\n    return torch.cumsum(x, -1)", "return (torch.randn(16384, 4096),)"),
        in_triton("""
@triton.jit
def scan(X, Y):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, 4096)
    tl.store(Y + row * 4096 + cols, tl.cumsum(tl.load(X + row * 4096 + cols), 0))


def kernel(x):
    y = torch.empty_like(x)
    scan[(16384,)](x.contiguous(), y, num_warps=8)
    return y
"""),
    ),
    "five_points": Hand(
        task(
            "def reference(x):\n    p = F.pad(x, (1, 1, 1, 1))\n"
            "    return 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])",
            "return (torch.randn(8192, 8192),)",
        ),
        in_triton("""
@triton.jit
def stencil(X, Y, B: tl.constexpr):
    i, j = tl.program_id(1), tl.program_id(0) * B + tl.arange(0, B)
    at = X + i * 8192 + j
    up = tl.load(at - 8192, mask=(j >= 0) & (i > 0), other=0.0)
    down = tl.load(at + 8192, mask=(j >= 0) & (i < 8191), other=0.0)
    left = tl.load(at - 1, mask=j > 0, other=0.0)
    right = tl.load(at + 1, mask=j < 8191, other=0.0)
    tl.store(Y + i * 8192 + j, 0.5 * tl.load(at) + 0.125 * (up + down + left + right))


def kernel(x):
    y = torch.empty_like(x)
    stencil[(8, 8192)](x.contiguous(), y, B=1024, num_warps=4)
    return y
"""),
    ),
    "rows_to_softmax": Hand(
        task("def reference(x):\n    return torch.softmax(x, -1)", "return (torch.randn(16384, 4096),)"),
        in_triton("""
@triton.jit
def rows(X, Y):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, 4096)
    x = tl.load(X + row * 4096 + cols)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Y + row * 4096 + cols, e / tl.sum(e, 0))


def kernel(x):
    y = torch.empty_like(x)
    rows[(16384,)](x.contiguous(), y, num_warps=8)
    return y
"""),
    ),
    "norm_to_bytes": Hand(
        task(
            "def reference(x, w):\n    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w\n"
            "    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127\n"
            "    return (y / s).round().clamp(-127, 127).to(torch.int8), s",
            "return torch.randn(16384, 4096), torch.rand(4096) + 0.5",
        ),
        in_triton("""
@triton.jit
def to_bytes(X, W, Q, S):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, 4096)
    x = tl.load(X + row * 4096 + cols)
    y = x * (1 / tl.sqrt_rn(tl.sum(x * x, 0) / 4096 + 1e-6)) * tl.load(W + cols)
    s = tl.div_rn(tl.maximum(tl.max(tl.abs(y), 0), 1e-8), 127.0)
    tl.store(S + row, s)
    v = tl.div_rn(y, s)
    # adding and taking away 1.5 * 2^23 rounds to even
    tl.store(Q + row * 4096 + cols, ((v + 12582912.0) - 12582912.0).to(tl.int8))


def kernel(x, w):
    q = torch.empty(16384, 4096, dtype=torch.int8, device=x.device)
    s = torch.empty(16384, 1, device=x.device)
    to_bytes[(16384,)](x.contiguous(), w.contiguous(), q, s, num_warps=8)
    return q, s
"""),
    ),
}
