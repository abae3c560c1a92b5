// Runs a block of CUDA threads as coroutines of one thread: each runs to the next barrier or shuffle, then the next one.
// The order turns round at every barrier, so that a missing one shows.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define int8_t emulated_i8
#define uint8_t emulated_u8
#define int16_t emulated_i16
#define uint16_t emulated_u16
#define int32_t emulated_i32
#define uint32_t emulated_u32
#define int64_t emulated_i64
#define uint64_t emulated_u64
#define INT8_EMULATED
#undef INT64_C
#undef INT8_MIN
#undef INT8_MAX
#undef INT16_MIN
#undef INT16_MAX
#undef INT32_MIN
#undef INT32_MAX
#undef INT64_MIN
#undef INT64_MAX
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(n)

struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx;

namespace emulated {
static ucontext_t main_context;
struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(256 << 10);
  bool done = false;
};
static std::vector<Fiber> fibers;
static std::function<void()> body;
static unsigned char lanes[1024][16];

static void enter() {
  body();
  fibers[threadIdx.x].done = true;
  swapcontext(&fibers[threadIdx.x].context, &main_context);
}
static void barrier() { swapcontext(&fibers[threadIdx.x].context, &main_context); }

static void run(unsigned blocks, unsigned threads, std::function<void()> kernel) {
  body = kernel;
  fibers = std::vector<Fiber>(threads);
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx = {b, 0, 0};
    for (auto& f : fibers) {
      f.done = false;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, enter, 0);
    }
    for (unsigned phase = 0, left = threads; left;) {
      for (unsigned n = 0; n < threads; ++n) {
        threadIdx = {phase % 2 ? threads - 1 - n : n, 0, 0};
        if (fibers[threadIdx.x].done) {
          std::fprintf(stderr, "a barrier that not all threads reach\n");
          std::abort();
        }
        swapcontext(&main_context, &fibers[threadIdx.x].context);
        left -= fibers[threadIdx.x].done;
      }
      ++phase;
    }
  }
}
// cp.async: nothing is there before the thread has waited for it
struct Copy {
  void* to;
  const void* from;
  int bytes;
  bool inside;
};
static std::vector<Copy> copies[1024];
static void finish_copies() {
  for (auto& c : copies[threadIdx.x]) c.inside ? (void)std::memcpy(c.to, c.from, c.bytes) : (void)std::memset(c.to, 0, c.bytes);
  copies[threadIdx.x].clear();
}
struct Any {
  void* p;
  template <class T> operator T*() const { return static_cast<T*>(p); }
};
}  // namespace emulated

static void __syncthreads() { emulated::barrier(); }
template <class T> T __shfl_xor_sync(unsigned, T x, int mask) {
  const unsigned mine = threadIdx.x;
  std::memcpy(emulated::lanes[mine], &x, sizeof x);
  emulated::barrier();
  T other;
  std::memcpy(&other, emulated::lanes[mine ^ mask], sizeof x);
  emulated::barrier();
  return other;
}
static unsigned __float_as_uint(float x) { unsigned u; std::memcpy(&u, &x, 4); return u; }
static float __uint_as_float(unsigned u) { float x; std::memcpy(&x, &u, 4); return x; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __fdividef(float x, float y) { return x / y; }
static float __expf(float x) { return expf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
template <class T> T atomicAdd(T* to, T x) { T old = *to; *to = T(old + x); return old; }
