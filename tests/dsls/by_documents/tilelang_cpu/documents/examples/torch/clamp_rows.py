"""Rows kept between bounds of their own: a program for each row.

family: pointwise
task: pointwise/clamp_rows
sizes: M=3 N=50; M=300 N=64
"""

from functools import lru_cache

import tilelang
import tilelang.cpu.language as T
import torch


@lru_cache(maxsize=64)
@tilelang.jit(out_idx=[-1], target="c")
def clamp(M, N):
    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        Low: T.Tensor((M, 1), "float32"),
        High: T.Tensor((M, 1), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(M) as m:
            for n in T.serial(N):
                Y[m, n] = T.min(T.max(X[m, n], Low[m, 0]), High[m, 0])

    return main


def kernel(x, low, high):
    if not x.numel():
        return torch.empty_like(x)
    return clamp(*x.shape)(x.contiguous(), low.contiguous(), high.contiguous())
