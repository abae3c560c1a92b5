# /// zoo
# task = "layer_norm"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Two passes over registers."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    keep = at < N
    row = tl.load(x + tl.program_id(0) * N + at, mask=keep, other=0.0)
    mean = tl.sum(row, 0) / N
    off = tl.where(keep, row - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(off * off, 0) / N + 1e-5)
    out = off * scale * tl.load(w + at, mask=keep) + tl.load(b + at, mask=keep)
    tl.store(y + tl.program_id(0) * N + at, out, mask=keep)


def kernel(x, w, b):
    x = x.contiguous()
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    norm_kernel[(x.shape[0],)](x, w.contiguous(), b.contiguous(), y, x.shape[1], BLOCK=block)
    return y
