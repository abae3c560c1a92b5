# /// zoo
# task = "row_max"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "A decorator chooses the block."
# ///
import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["N"])})
@triton.jit
def row_max_kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * N + at, mask=at < N, other=float("-inf"))
    tl.store(y + tl.program_id(0), tl.max(row, 0))


def kernel(x):
    y = torch.empty(x.shape[0], device=x.device)
    row_max_kernel[(x.shape[0],)](x.contiguous(), y, x.shape[1])
    return y
