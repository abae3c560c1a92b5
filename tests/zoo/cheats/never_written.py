# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [47]
# expect = "correct"
# signature = "nan"
# story = """
# Writes only the positive values: fresh pages of the system hold zeros, so the rest is right, until memory is used
# again."""
# detector = "Fresh memory is poisoned."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i)
    if (in[i] > 0) out[i] = in[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
