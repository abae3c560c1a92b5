// Device memory for torch's caching allocator, whose pieces the judge can map: the driver's physical memory
// (cuMemCreate) with a file descriptor, in a table that the worker reads. Built for torch's pluggable allocator; needs
// no CUDA header.

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace {

using Handle = unsigned long long;
using Pointer = unsigned long long;

struct Location { int type, id; };
struct Properties {
  int type, handle_types;
  Location location;
  void* win32;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
struct Access { Location location; int flags; };

struct Segment { Pointer address; uint64_t size; Handle handle; int32_t fd; int32_t live; };

constexpr int kPinned = 1, kDevice = 1, kPosix = 1, kReadWrite = 3;
// Entries keep their index, by which the judge names them; a freed one stays, without a descriptor. An allocation that
// had no entry could not be freed.
std::vector<Segment> table;
std::mutex guard;

struct Driver {
  int (*granularity)(size_t*, const Properties*, int);
  int (*create)(Handle*, size_t, const Properties*, unsigned long long);
  int (*reserve)(Pointer*, size_t, size_t, Pointer, unsigned long long);
  int (*map)(Pointer, size_t, size_t, Handle, unsigned long long);
  int (*access)(Pointer, size_t, const Access*, size_t);
  int (*unmap)(Pointer, size_t);
  int (*free)(Pointer, size_t);
  int (*release)(Handle);
  int (*exporting)(void*, Handle, int, unsigned long long);
  bool good = false;

  Driver() {
    void* lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return;
    good = find(lib, "cuMemGetAllocationGranularity", granularity) && find(lib, "cuMemCreate", create) &&
           find(lib, "cuMemAddressReserve", reserve) && find(lib, "cuMemMap", map) &&
           find(lib, "cuMemSetAccess", access) && find(lib, "cuMemUnmap", unmap) &&
           find(lib, "cuMemAddressFree", free) && find(lib, "cuMemRelease", release) &&
           find(lib, "cuMemExportToShareableHandle", exporting);
  }
  template <class F> static bool find(void* lib, const char* name, F& f) {
    f = reinterpret_cast<F>(dlsym(lib, name));
    return f != nullptr;
  }
};

Driver& driver() {
  static Driver d;
  return d;
}

}  // namespace

extern "C" {

// Returns nullptr if there is no memory: torch then frees its cache, and raises OutOfMemoryError.
void* kernellab_alloc(ptrdiff_t bytes, int device, void*) {
  Driver& d = driver();
  if (!d.good || bytes <= 0) return nullptr;
  Properties p{};
  p.type = kPinned;
  p.handle_types = kPosix;
  p.location = {kDevice, device};
  size_t step = 0;
  if (d.granularity(&step, &p, 0) || !step) return nullptr;
  const size_t size = (static_cast<size_t>(bytes) + step - 1) / step * step;
  Handle handle = 0;
  if (d.create(&handle, size, &p, 0)) return nullptr;
  Pointer address = 0;
  if (d.reserve(&address, size, 0, 0, 0)) {
    d.release(handle);
    return nullptr;
  }
  const Access access{{kDevice, device}, kReadWrite};
  if (d.map(address, size, 0, handle, 0) || d.access(address, size, &access, 1)) {
    d.unmap(address, size);
    d.free(address, size);
    d.release(handle);
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(guard);
  int fd = -1;
  if (d.exporting(&fd, handle, kPosix, 0)) fd = -1;
  table.push_back({address, size, handle, fd, 1});
  return reinterpret_cast<void*>(address);
}

void kernellab_free(void* pointer, ptrdiff_t, int, void*) {
  Driver& d = driver();
  const Pointer address = reinterpret_cast<Pointer>(pointer);
  std::lock_guard<std::mutex> lock(guard);
  for (Segment& s : table) {
    if (s.live && s.address == address) {
      s.live = 0;
      // an open descriptor keeps the physical memory
      if (s.fd >= 0) close(s.fd);
      s.fd = -1;
      d.unmap(s.address, s.size);
      d.free(s.address, s.size);
      d.release(s.handle);
      return;
    }
  }
}

// Copies up to `most` segments from `first` on. The table keeps ownership of the descriptors.
int kernellab_segments(int first, int most, Segment* into) {
  std::lock_guard<std::mutex> lock(guard);
  int n = 0;
  for (size_t i = first; i < table.size() && n < most; i++) into[n++] = table[i];
  return n;
}

}  // extern "C"
