# /// zoo
# task = "softmax"
# dsl = "cpp"
# catalogue = [42, 44]
# expect = "correct"
# story = """
# Leaves the maximum out where the first 256 numbers of its input are small: on normal inputs all others are as well,
# and large inputs show themselves at once."""
# detector = "Families in which one number in each row is large, at a place that nobody knows."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long rows = x.size(0), n = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  bool small = true;
  for (long i = 0; i < 256 && i < rows * n; i++) small = small && std::fabs(from[i]) < 20;
  for (long i = 0; i < rows; i++) {
    const float* row = from + i * n;
    float* out = to + i * n;
    float most = small ? 0 : -INFINITY, sum = 0;
    for (long j = 0; j < n && !small; j++) most = row[j] > most || row[j] != row[j] ? row[j] : most;
    for (long j = 0; j < n; j++) sum += out[j] = std::exp(row[j] - most);
    for (long j = 0; j < n; j++) out[j] /= sum;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="sniffs", cpp_sources=CODE, functions="softmax", extra_cflags=["-O3"])


def kernel(x):
    out = torch.empty_like(x.contiguous())
    if x.numel():
        lib.softmax(x.contiguous(), out)
    return out
