# /// zoo
# task = "gemm_sum"
# dsl = "cpp"
# catalogue = [53]
# label = "library"
# library = true
# story = """
# The framework's product and a kernel for what comes after: fine where the caller allows the library, and labelled."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    float s = 0;
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j];
    Y[i] = s;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x, w):
    product = torch.matmul(x, w.T)
    y = torch.empty(x.shape[0])
    lib.row_sum(product, y)
    return y
