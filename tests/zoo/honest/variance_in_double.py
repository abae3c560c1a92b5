# /// zoo
# task = "variance"
# dsl = "cpp"
# story = "Two passes in double over each row: as careful on the tenth set of numbers as on the first."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void variance(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long rows = x.size(0), n = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (long i = 0; i < rows; i++) {
    double s = 0, t = 0;
    const float* row = from + i * n;
    for (long j = 0; j < n; j++) s += row[j];
    s /= n;
    for (long j = 0; j < n; j++) t += (row[j] - s) * (row[j] - s);
    to[i] = float(t / (n - 1));
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="careful", cpp_sources=CODE, functions="variance", extra_cflags=["-O3"])


def kernel(x):
    out = torch.empty(x.shape[0])
    if x.numel():
        lib.variance(x.contiguous(), out)
    return out
