# /// zoo
# task = "column_sum"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Blocks add their parts by atomics: on a GPU the order, and so the last bit, changes from call to call."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x, y, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = (m[:, None] < M) & (n[None, :] < N)
    part = tl.sum(tl.load(x + m[:, None] * N + n[None, :], mask=keep, other=0.0), 0)
    tl.atomic_add(y + n, part, mask=n < N)


def kernel(x):
    x = x.contiguous()
    y = torch.zeros(x.shape[1], device=x.device)
    grid = (triton.cdiv(x.shape[0], 32), triton.cdiv(x.shape[1], 64))
    column_sum_kernel[grid](x, y, x.shape[0], x.shape[1], ROWS=32, BLOCK=64)
    return y
