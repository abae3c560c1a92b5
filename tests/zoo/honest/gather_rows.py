# /// zoo
# task = "gather"
# dsl = "cpp"
# story = "Nothing but memcpy, which is all that a gather is."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void gather(tvm::ffi::TensorView table, tvm::ffi::TensorView index, tvm::ffi::TensorView y) {
  const int64_t D = table.size(1);
  const int64_t* at = static_cast<const int64_t*>(index.data_ptr());
  for (int64_t i = 0; i < index.size(0); ++i)
    memcpy(static_cast<float*>(y.data_ptr()) + i * D, static_cast<const float*>(table.data_ptr()) + at[i] * D, D * 4);
}
"""
lib = tvm_ffi.cpp.load_inline(name="gather", cpp_sources=CODE, functions="gather", extra_cflags=["-O2"])


def kernel(table, index):
    y = torch.empty(index.shape[0], table.shape[1])
    lib.gather(table.contiguous(), index.contiguous(), y)
    return y
