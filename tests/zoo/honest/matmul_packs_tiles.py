# /// zoo
# task = "matmul"
# dsl = "cpp"
# story = "Tiles of odd size with remainders, and a scratch of its own."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <algorithm>
#include <vector>
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const float* A = static_cast<const float*>(a.data_ptr());
  const float* B = static_cast<const float*>(b.data_ptr());
  float* C = static_cast<float*>(c.data_ptr());
  constexpr int64_t T = 48;
  std::vector<float> tile(T * T);
  for (int64_t i = 0; i < M * N; ++i) C[i] = 0;
  for (int64_t k0 = 0; k0 < K; k0 += T)
    for (int64_t j0 = 0; j0 < N; j0 += T) {
      const int64_t kn = std::min(T, K - k0), jn = std::min(T, N - j0);
      for (int64_t k = 0; k < kn; ++k)
        for (int64_t j = 0; j < jn; ++j) tile[k * T + j] = B[(k0 + k) * N + j0 + j];
      for (int64_t i = 0; i < M; ++i)
        for (int64_t k = 0; k < kn; ++k) {
          const float v = A[i * K + k0 + k];
          for (int64_t j = 0; j < jn; ++j) C[i * N + j0 + j] += v * tile[k * T + j];
        }
    }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="matmul", cpp_sources=CODE, functions="matmul", extra_cflags=["-O3", "-march=native"]
)


def kernel(a, b):
    c = torch.empty(a.shape[0], b.shape[1])
    lib.matmul(a.contiguous(), b.contiguous(), c)
    return c
