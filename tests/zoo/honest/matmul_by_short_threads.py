# /// zoo
# task = "matmul"
# dsl = "cpp"
# threads = 2
# story = "A thread for every few rows, two at a time: most of its threads end while somebody looks at them."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <algorithm>
#include <thread>
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const float* A = static_cast<const float*>(a.data_ptr());
  const float* B = static_cast<const float*>(b.data_ptr());
  float* C = static_cast<float*>(c.data_ptr());
  auto rows = [=](int64_t from) {
    for (int64_t i = from; i < std::min(from + 4, M); ++i) {
      for (int64_t j = 0; j < N; ++j) C[i * N + j] = 0;
      for (int64_t k = 0; k < K; ++k)
        for (int64_t j = 0; j < N; ++j) C[i * N + j] += A[i * K + k] * B[k * N + j];
    }
  };
  for (int64_t i = 0; i < M; i += 8) {
    std::thread one(rows, i), other(rows, i + 4);
    one.join();
    other.join();
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="matmul", cpp_sources=CODE, functions="matmul", extra_cflags=["-O3"])


def kernel(a, b):
    c = torch.empty(a.shape[0], b.shape[1])
    lib.matmul(a.contiguous(), b.contiguous(), c)
    return c
