# /// zoo
# task = "linear_relu_model"
# dsl = "triton"
# where = ["cpu", "gpu"]
# story = "KernelBench's form: parameters by the names of the reference, the work in Triton."
# ///
import torch
import triton
import triton.language as tl


@triton.jit
def linear_relu_kernel(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    total += tl.load(b + n, mask=n < N, other=0.0)[None, :]
    keep = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], tl.maximum(total, 0.0), mask=keep)


class ModelNew(torch.nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = torch.nn.Linear(n, m)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        M, K, N = x.shape[0], x.shape[1], w.shape[0]
        y = torch.empty(M, N, device=x.device)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        linear_relu_kernel[grid](x.contiguous(), w, b, y, M, N, K, BM=32, BN=32, BK=32)
        return y
