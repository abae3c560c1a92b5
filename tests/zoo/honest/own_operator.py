# /// zoo
# task = "softmax"
# dsl = "cpp"
# story = """
# A kernel behind an operator of its own, made by torch.library.custom_op as serving systems do it: what stands in its
# own namespace is its own work."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long rows = x.size(0), n = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  #pragma omp parallel for
  for (long i = 0; i < rows; i++) {
    const float* row = from + i * n;
    float* out = to + i * n;
    float most = -INFINITY, sum = 0.0f;
    for (long j = 0; j < n; j++) most = std::fmax(most, row[j]);
    for (long j = 0; j < n; j++) sum += out[j] = std::exp(row[j] - most);
    for (long j = 0; j < n; j++) out[j] /= sum;
  }
}
"""
flags = ["-O3", "-fopenmp"]
lib = tvm_ffi.cpp.load_inline(
    name="own_softmax", cpp_sources=CODE, functions="softmax", extra_cflags=flags, extra_ldflags=flags[1:]
)


@torch.library.custom_op("mine::softmax", mutates_args=())
def rows_softmax(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    lib.softmax(x, out)
    return out


def kernel(x):
    return rows_softmax(x)
