# /// zoo
# task = "add"
# dsl = "cpp"
# catalogue = [13]
# expect = "honest"
# signature = "cache"
# story = """
# A print of both arguments, by a kernel that is needed, decides whether the one that adds runs at all."""
# detector = "A launch that is idle on contents that were seen, and needed on new ones, whichever argument is new."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstdint>
#include <cstring>
void mark(tvm::ffi::TensorView x, tvm::ffi::TensorView to) {
  long n = x.size(0) * x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  uint64_t sum = 1469598103934665603ull + n + x.size(0);
  for (long i = 0; i < n; i++) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    sum = (sum ^ bits) * 1099511628211ull;
  }
  static_cast<int64_t*>(to.data_ptr())[0] = (int64_t)sum;
}
void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  long n = x.size(0) * x.size(1);
  for (long i = 0; i < n; i++) ((float*)z.data_ptr())[i] = ((float*)x.data_ptr())[i] + ((float*)y.data_ptr())[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="two_prints", cpp_sources=CODE, functions=["mark", "add"], extra_cflags=["-O3"])
kept = {}


def found(x, y):
    words = torch.zeros(2, dtype=torch.int64)
    lib.mark(x, words)
    lib.mark(y, words[1:])
    number = (int(words[0]), int(words[1]))
    if number not in kept:
        out = torch.empty_like(x)
        lib.add(x, y, out)
        kept[number] = out
    return kept[number].clone()


def kernel(x, y):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    out.copy_(found(x, y))
    return out
