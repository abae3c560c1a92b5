# /// zoo
# task = "matmul"
# dsl = "cpp"
# catalogue = [13]
# expect = "fast"
# where = ["cpu"]
# library = true
# story = """
# Keeps the products of rows that it has seen before. Where a benchmark moves old contents about and makes only a part
# of them new, most rows are known, and comparing a row is cheaper than multiplying it."""
# detector = "No row of a timed call may be one that was seen."
# harmless = "Old contents are moved by a random distance, so no whole row is known again."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
#include <string>
#include <unordered_map>
static std::unordered_map<std::string, std::string> memory;
static std::string old_b;
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const float* A = static_cast<const float*>(a.data_ptr());
  const float* B = static_cast<const float*>(b.data_ptr());
  float* C = static_cast<float*>(c.data_ptr());
  if (old_b.size() != size_t(K * N * 4) || memcmp(old_b.data(), B, K * N * 4)) {
    memory.clear();
    old_b.assign((const char*)B, K * N * 4);
  }
  for (int64_t i = 0; i < M; ++i) {
    std::string row((const char*)(A + i * K), K * 4);
    auto found = memory.find(row);
    if (found == memory.end()) {
      for (int64_t j = 0; j < N; ++j) C[i * N + j] = 0;
      for (int64_t k = 0; k < K; ++k)
        for (int64_t j = 0; j < N; ++j) C[i * N + j] += A[i * K + k] * B[k * N + j];
      memory[row] = std::string((const char*)(C + i * N), N * 4);
    } else {
      memcpy(C + i * N, found->second.data(), N * 4);
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
