# /// zoo
# task = "matmul"
# dsl = "numba"
# story = "Three loops that LLVM turns into vectors."
# ///
import torch
from numba import njit


@njit(fastmath={"reassoc", "contract"})
def matmul_kernel(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


def kernel(a, b):
    c = torch.zeros(a.shape[0], b.shape[1])
    matmul_kernel(a.contiguous().numpy(), b.contiguous().numpy(), c.numpy())
    return c
