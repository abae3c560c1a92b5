# /// zoo
# task = "masked_product"
# dsl = "cpp"
# story = "Rows of which the masked elements are left out: a product of its own, on inputs that no mixing makes."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void product(tvm::ffi::TensorView a, tvm::ffi::TensorView mask, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const float* A = static_cast<const float*>(a.data_ptr());
  const bool* kept = static_cast<const bool*>(mask.data_ptr());
  const float* B = static_cast<const float*>(b.data_ptr());
  float* C = static_cast<float*>(c.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < N; ++j) C[i * N + j] = 0;
    for (int64_t k = 0; k < K; ++k) {
      const float v = kept[i * K + k] ? A[i * K + k] : 0.0f * A[i * K + k];
      for (int64_t j = 0; j < N; ++j) C[i * N + j] += v * B[k * N + j];
    }
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="product", cpp_sources=CODE, functions="product", extra_cflags=["-O3", "-march=native"]
)


def kernel(a, mask, b):
    c = torch.empty(a.shape[0], b.shape[1])
    lib.product(a.contiguous(), mask.contiguous(), b.contiguous(), c)
    return c
