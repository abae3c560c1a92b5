# /// zoo
# task = "linear_static"
# dsl = "cpp"
# catalogue = [15]
# story = "Packs weights once that the task declares STATIC: what is a cheat elsewhere is what serving systems do."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const float* A = static_cast<const float*>(a.data_ptr());
  const float* B = static_cast<const float*>(b.data_ptr());
  float* C = static_cast<float*>(c.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < N; ++j) C[i * N + j] = 0;
    for (int64_t k = 0; k < K; ++k)
      for (int64_t j = 0; j < N; ++j) C[i * N + j] += A[i * K + k] * B[k * N + j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="matmul", cpp_sources=CODE, functions="matmul", extra_cflags=["-O3", "-march=native"]
)
packed = {}


def kernel(x, w):
    key = (w.data_ptr(), w._version, tuple(w.shape))
    if key not in packed:
        packed.clear()
        packed[key] = w.t().contiguous()
    y = torch.empty(x.shape[0], w.shape[0])
    lib.matmul(x.contiguous(), packed[key], y)
    return y
