# /// zoo
# task = "moments"
# dsl = "cpp"
# story = "One allocation for both outputs, returned as two views of it."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void moments(tvm::ffi::TensorView x, tvm::ffi::TensorView both) {
  const int64_t M = x.size(0), N = x.size(1);
  const float* X = static_cast<const float*>(x.data_ptr());
  float* B = static_cast<float*>(both.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    double s = 0, q = 0;
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j];
    for (int64_t j = 0; j < N; ++j) q += (X[i * N + j] - s / N) * (X[i * N + j] - s / N);
    B[i] = float(s / N);
    B[M + i] = float(q / N);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="moments", cpp_sources=CODE, functions="moments", extra_cflags=["-O2"])


def kernel(x):
    both = torch.empty(2, x.shape[0])
    lib.moments(x.contiguous(), both)
    return both[0], both[1]
