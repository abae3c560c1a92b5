# /// zoo
# task = "row_sum"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "Two launches with a workspace between them."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(x, parts, N, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * N + at, mask=at < N, other=0.0)
    tl.store(parts + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(row, 0))


@triton.jit
def total_kernel(parts, y, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(
        y + tl.program_id(0), tl.sum(tl.load(parts + tl.program_id(0) * count + at, mask=at < count, other=0.0), 0)
    )


def kernel(x):
    x = x.contiguous()
    count = triton.cdiv(x.shape[1], 64)
    parts = torch.empty(x.shape[0], count, device=x.device)
    y = torch.empty(x.shape[0], device=x.device)
    part_kernel[(x.shape[0], count)](x, parts, x.shape[1], BLOCK=64)
    total_kernel[(x.shape[0],)](parts, y, count, BLOCK=triton.next_power_of_2(count))
    return y
