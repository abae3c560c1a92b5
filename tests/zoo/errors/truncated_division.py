# /// zoo
# task = "floor_div"
# dsl = "cpp"
# expect = "correct"
# story = "C rounds quotients towards zero, the task rounds down."
# detector = "Integers are exact."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void third(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const int64_t* X = static_cast<const int64_t*>(x.data_ptr());
  int64_t* Y = static_cast<int64_t*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) Y[i] = X[i] / 3;
}
"""
lib = tvm_ffi.cpp.load_inline(name="third", cpp_sources=CODE, functions="third", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty_like(x)
    lib.third(x.contiguous(), y)
    return y
