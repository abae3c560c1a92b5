# /// zoo
# task = "linear_relu_model"
# dsl = "cpp"
# label = "parameters of its constructor only"
# story = """
# KernelBench's convention: ModelNew is constructed under the same seed as the reference, and may pack its weights
# there. It keeps its parameters as well, and never looks at them again."""
# ///
import torch
import torch.nn as nn
import tvm_ffi.cpp

CODE = r"""
void linear_relu(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  long M = x.size(0), K = x.size(1), N = w.size(1);
  const float *X = (const float*)x.data_ptr(), *W = (const float*)w.data_ptr(), *B = (const float*)b.data_ptr();
  float* Y = (float*)y.data_ptr();
  for (long i = 0; i < M; i++) {
    for (long j = 0; j < N; j++) Y[i * N + j] = B[j];
    for (long k = 0; k < K; k++)
      for (long j = 0; j < N; j++) Y[i * N + j] += X[i * K + k] * W[k * N + j];
    for (long j = 0; j < N; j++) Y[i * N + j] = Y[i * N + j] < 0 ? 0 : Y[i * N + j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="packed_and_kept", cpp_sources=CODE, functions="linear_relu", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.packed = self.linear.weight.detach().t().contiguous()
        self.bias = self.linear.bias.detach().clone()

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], self.packed.shape[1])
        lib.linear_relu(x, self.packed, self.bias, out)
        return out
