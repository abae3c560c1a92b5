# /// zoo
# task = "sort"
# dsl = "cpp"
# catalogue = [44]
# expect = "correct"
# story = """
# Sorts each row by buckets of one width between -4 and 4, each with room for as many as a normal distribution puts
# there, and some more; what finds no room is dropped."""
# detector = "Families with rows of equal numbers, of two kinds of numbers, and with heavy tails."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <algorithm>
#include <cmath>
#include <vector>
void sort_rows(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long rows = x.size(0), n = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  const int buckets = 64;
  long room = n / 8 + 16;
  std::vector<float> held(buckets * room);
  std::vector<long> count(buckets);
  for (long i = 0; i < rows; i++) {
    std::fill(count.begin(), count.end(), 0);
    const float* row = from + i * n;
    for (long j = 0; j < n; j++) {
      int b = int(std::min(63.0f, std::max(0.0f, (row[j] + 4) * 8)));
      if (count[b] < room) held[b * room + count[b]++] = row[j];
    }
    float* out = to + i * n;
    float* end = out + n;
    for (int b = 0; b < buckets; b++) {
      std::sort(held.begin() + b * room, held.begin() + b * room + count[b]);
      for (long j = 0; j < count[b] && out < end; j++) *out++ = held[b * room + j];
    }
    while (out < end) *out++ = 4;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="room", cpp_sources=CODE, functions="sort_rows", extra_cflags=["-O3"])


def kernel(x):
    out = torch.empty_like(x.contiguous())
    if x.numel():
        lib.sort_rows(x.contiguous(), out)
    return out
