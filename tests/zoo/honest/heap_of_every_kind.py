# /// zoo
# task = "smooth"
# dsl = "cpp"
# story = """
# Takes memory in all the ways that C and C++ have, grows it, keeps some for the next call, and stays within all
# of it."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <memory>
#include <string>
#include <vector>

struct alignas(64) Line { float at[16]; };
static std::vector<float> kept;
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  if (long(kept.size()) < N + 2) kept.resize(N + 2);
  std::vector<float> grown;
  for (long j = 0; j < N + 2; j++) grown.push_back(0.0f);
  float* wide = static_cast<float*>(malloc(4));
  wide = static_cast<float*>(realloc(wide, (N + 2) * 4));
  float* zero = static_cast<float*>(calloc(N + 2, 4));
  void* aligned = nullptr;
  if (posix_memalign(&aligned, 128, (N + 2) * 4)) abort();
  std::unique_ptr<Line[]> lines(new Line[(N + 17) / 16]);
  std::string name(100 + N, 'x');
  for (long i = 0; i < M; i++, from += N, to += N) {
    memcpy(wide, zero, (N + 2) * 4);
    memcpy(wide + 1, from, N * 4);
    memcpy(aligned, wide, (N + 2) * 4);
    std::copy(wide, wide + N + 2, lines[0].at);
    std::copy(lines[0].at, lines[0].at + N + 2, grown.begin());
    std::copy(grown.begin(), grown.end(), kept.begin());
    const float* row = kept.data();
    for (long j = 0; j < N; j++) to[j] = row[j + 1] + 0.5f * (row[j] + row[j + 2]) + (name[j] == 'x' ? 0.0f : 1.0f);
  }
  if (malloc_usable_size(wide) < size_t(N + 2) * 4) abort();
  free(zero), free(wide), free(aligned);
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    lib.smooth(x, y)
    return y
