# /// zoo
# task = "matmul_tf32"
# dsl = "cpp"
# story = "The rounding that is refused elsewhere, for a task whose PRECISION allows it."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
static inline float tf32(float v) {
  unsigned u;
  memcpy(&u, &v, 4);
  u = (u + 0xfffu + ((u >> 13) & 1)) & ~0x1fffu;
  memcpy(&v, &u, 4);
  return v;
}
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const float* A = static_cast<const float*>(a.data_ptr());
  const float* B = static_cast<const float*>(b.data_ptr());
  float* C = static_cast<float*>(c.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < N; ++j) C[i * N + j] = 0;
    for (int64_t k = 0; k < K; ++k) {
      const float v = tf32(A[i * K + k]);
      for (int64_t j = 0; j < N; ++j) C[i * N + j] += v * tf32(B[k * N + j]);
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
