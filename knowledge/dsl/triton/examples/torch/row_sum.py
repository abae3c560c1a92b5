"""Row sums: several rows a program, a loop over long rows.

family: reduction
task: reduction/row_sum
sizes: M=5 N=700; M=1 N=2
"""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        c = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + r[:, None] * n + c[None, :], mask=(r[:, None] < m) & (c[None, :] < n), other=0.0)
    tl.store(y_ptr + r, tl.sum(acc, axis=1), mask=r < m)


def kernel(x):
    x = x.contiguous()
    m, n = x.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    row_sum_kernel[(triton.cdiv(m, 4),)](x, y, m, n, ROWS=4, BLOCK=512, num_warps=4)
    return y
