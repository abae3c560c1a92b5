# /// zoo
# task = "gemm_sum"
# dsl = "cpp"
# catalogue = [59]
# story = """
# Sums the weights first, so that the product of matrices becomes one of matrix and vector: a rewrite that any
# compiler could have found. Legal; a verdict may name it."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <vector>
void gemm_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  const int64_t M = x.size(0), K = x.size(1), N = w.size(0);
  const float* X = static_cast<const float*>(x.data_ptr());
  const float* W = static_cast<const float*>(w.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  std::vector<double> column(K);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t k = 0; k < K; ++k) column[k] += W[n * K + k];
  for (int64_t i = 0; i < M; ++i) {
    double s = 0;
    for (int64_t k = 0; k < K; ++k) s += X[i * K + k] * column[k];
    Y[i] = float(s);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="gemm_sum", cpp_sources=CODE, functions="gemm_sum", extra_cflags=["-O3", "-march=native"]
)


def kernel(x, w):
    y = torch.empty(x.shape[0])
    lib.gemm_sum(x.contiguous(), w.contiguous(), y)
    return y
