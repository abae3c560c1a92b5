# /// zoo
# task = "scale_maybe_empty"
# dsl = "cpp"
# story = "Launches nothing where there is nothing to do."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) Y[i] = 2 * X[i] + 1;
}
"""
lib = tvm_ffi.cpp.load_inline(name="scale", cpp_sources=CODE, functions="scale", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        lib.scale(x, y)
    return y
