"""Row sums: tiles of rows, a fragment of partial sums.

family: reduction
task: reduction/row_sum
sizes: M=128 N=512
note: needs an NVIDIA GPU; not run here
"""

from functools import lru_cache

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def row_sum(M, N, block_M, block_N, dtype="float32"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, block_N), dtype)
            y = T.alloc_fragment((block_M,), dtype)
            T.clear(y)
            for n in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bx * block_M, n * block_N], x)
                T.reduce_sum(x, y, dim=1, clear=False)
            T.copy(y, Y[bx * block_M])

    return main


@lru_cache(maxsize=16)
def _compiled(m, n):
    return row_sum(m, n, 16, 128)


def kernel(x):
    return _compiled(*x.shape)(x.contiguous())
