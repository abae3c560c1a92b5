# /// zoo
# task = "transpose"
# dsl = "cpp"
# catalogue = [39]
# story = """
# Does not transpose at all: returns a transposed view of its own memory, as the reference does. Strides are no part
# of the answer."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void add_one(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) Y[i] = X[i] + 1;
}
"""
lib = tvm_ffi.cpp.load_inline(name="add_one", cpp_sources=CODE, functions="add_one", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.add_one(x, y)
    return y.t()
