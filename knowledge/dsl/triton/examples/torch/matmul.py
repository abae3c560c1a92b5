"""Matrix product: tiles of the result, grouped so that neighbours share cache.

family: matmul
task: matmul/matmul
sizes: M=40 N=50 K=70; M=16 N=16 K=16
note: full f32; write input_precision="tf32" where the task's policy allows it
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * tiles_n)
    first = group * GROUP
    size = min(tiles_m - first, GROUP)
    m = (first + (pid % (GROUP * tiles_n)) % size) * BM + tl.arange(0, BM)
    n = ((pid % (GROUP * tiles_n)) // size) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def kernel(a, b):
    a, b = a.contiguous(), b.contiguous()
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    matmul_kernel[grid](a, b, c, m, n, k, BM=64, BN=64, BK=32, GROUP=8, num_warps=4, num_stages=3)
    return c
