/* The C library's allocator with guards, preloaded into the workers on a CPU.

   While a worker has armed it, during its checked calls, each piece that the candidate's own code allocates ends at an
   inaccessible page (up to the alignment of its kind) and begins after one. The gaps between a piece and these pages
   hold a pattern, which is checked when the piece is freed and when the call has returned; a new piece is filled with
   it too. No address is reused, so freed memory cannot be accessed either. All other allocations, and those of timed
   calls, go directly to the C library.

   It can also watch memory: each instruction that accesses it is single-stepped, and its thread then sleeps at random
   for a moment, so that the time between the read and the write of a non-atomic update is long enough for another
   thread to interfere. And it can set the clocks of the C library forward. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

#define PAGE ((size_t)4096)
/* address space for all pieces of a worker's life; without memory until a piece is allocated */
#define REGION ((size_t)32 << 30)
#define PATTERN 0xFE
/* largest number of live pieces: each uses two entries of the system's table of mappings */
#define MOST 8192
#define RANGES 128
#define LEAST 16
#define CALLER ((uintptr_t)__builtin_return_address(0))

typedef struct {
  size_t size, pages;
  unsigned char *at;
  size_t place; /* index in the list of live pieces */
} Piece;

static unsigned char *base;
static Piece *pieces; /* by the page in which a piece begins */
static size_t living[MOST], alive, next_page = 1, damaged, ranges_known;
static struct { uintptr_t low, high; } ranges[RANGES];
static atomic_flag busy = ATOMIC_FLAG_INIT;
static atomic_int armed;
static struct sigaction before;
static const char *folder, *also;

static void lock(void) { while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)); }
static void unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

static inline int ours(const void *p) { return base && (size_t)((const unsigned char *)p - base) < REGION; }

static int guards(uintptr_t caller) {
  for (size_t i = 0; i < ranges_known; i++)
    if (caller >= ranges[i].low && caller < ranges[i].high) return 1;
  return 0;
}

/* Allocates a piece between guards; null if there is no room, then the C library is used. */
static void *made(size_t size, size_t align, int zero) {
  align = align < LEAST ? LEAST : align;
  if (align > PAGE || size > REGION / 8) return NULL;
  size_t room = ((size ? size : 1) + align - 1) / align * align, pages = (room + PAGE - 1) / PAGE;
  lock();
  size_t first = next_page;
  int fits = alive < MOST && (first + pages + 1) * PAGE <= REGION;
  if (fits) next_page += pages + 1;
  unlock();
  unsigned char *start = base + first * PAGE;
  if (!fits || mprotect(start, pages * PAGE, PROT_READ | PROT_WRITE)) return NULL;
  unsigned char *at = start + pages * PAGE - room;
  memset(start, PATTERN, (size_t)(at - start) + (zero ? 0 : size));
  memset(at + size, PATTERN, room - size);
  lock();
  fits = alive < MOST;
  if (fits) {
    pieces[first] = (Piece){size, pages, at, alive};
    living[alive++] = first;
  }
  unlock();
  return fits ? at : NULL;
}

static int is(const unsigned char *from, const unsigned char *to) {
  for (; from < to; from++)
    if (*from != PATTERN) return 0;
  return 1;
}

static void look(size_t first) {
  Piece *piece = &pieces[first];
  unsigned char *start = base + first * PAGE;
  if (!is(start, piece->at) || !is(piece->at + piece->size, start + piece->pages * PAGE)) damaged = piece->size + 1;
}

static Piece *piece_at(void *p) {
  Piece *piece = &pieces[(size_t)((unsigned char *)p - base) / PAGE];
  return piece->pages && piece->at == p ? piece : NULL;
}

static void give_back(void *p) {
  Piece *piece = piece_at(p);
  if (!piece) {
    static const char words[] = "kernellab-heap: frees memory twice, or from its middle\n";
    if (write(2, words, sizeof words - 1)) {}
    abort();
  }
  size_t first = (size_t)(piece - pieces), pages = piece->pages;
  lock();
  look(first);
  size_t last = living[--alive];
  living[piece->place] = last;
  pieces[last].place = piece->place;
  piece->pages = 0;
  unlock();
  mmap(base + first * PAGE, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

#ifdef __x86_64__
#define TRAP 0x100
#define SPANS 64
#define AT_ONCE 16
/* number of faults after which watching stops, and up to which a thread may sleep */
#define FAULTS 2000
#define SLEEPS 120
static struct { uintptr_t low, high; } watched[SPANS];
static size_t spans;
static atomic_int watching, faults;
static __thread __attribute__((tls_model("initial-exec"))) struct { uintptr_t page[AT_ONCE]; int count; unsigned draw; } step;

static void rights(int how) {
  for (size_t i = 0; i < spans; i++) mprotect((void *)watched[i].low, watched[i].high - watched[i].low, how);
}

/* Lets the faulting instruction run, and traps after it. */
static int stepped(uintptr_t at, ucontext_t *context) {
  size_t i = 0;
  while (i < spans && !(at >= watched[i].low && at < watched[i].high)) i++;
  if (i == spans || mprotect((void *)(at & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE)) return 0;
  if (atomic_load(&watching) && step.count < AT_ONCE) {
    step.page[step.count++] = at & ~(PAGE - 1);
    context->uc_mcontext.gregs[REG_EFL] |= TRAP;
  }
  return 1;
}

static void trapped(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
  int seen = atomic_fetch_add(&faults, 1), kept = errno;
  if (seen >= FAULTS) atomic_store(&watching, 0);
  for (; step.count; step.count--)
    if (atomic_load(&watching)) mprotect((void *)step.page[step.count - 1], PAGE, PROT_NONE);
  if (seen == FAULTS) rights(PROT_READ | PROT_WRITE);
  step.draw = (step.draw ? step.draw : (unsigned)(uintptr_t)&step | 1) * 1664525u + 1013904223u;
  if (seen < SLEEPS && step.draw >> 31) {
    struct timespec moment = {0, step.draw >> 13 & 0x7ffff};
    nanosleep(&moment, NULL);
  }
  errno = kept;
}

/* Watches whole pages, which no system call may write into meanwhile. Returns 0 on failure. */
int kernellab_heap_watch(void *at, size_t size) {
  if (!base || spans == SPANS) return 0;
  watched[spans].low = (uintptr_t)at;
  watched[spans++].high = (uintptr_t)at + size;
  atomic_store(&watching, 1);
  return !mprotect(at, size, PROT_NONE);
}

/* Stops all watching. A thread inside an instruction may still fault once more, so the ranges are kept for it. */
void kernellab_heap_unwatch(void) {
  atomic_store(&watching, 0);
  rights(PROT_READ | PROT_WRITE);
  atomic_store(&faults, 0);
}

void kernellab_heap_forget(void) { spans = 0; }
#else
static int stepped(uintptr_t at, ucontext_t *context) { return (void)at, (void)context, 0; }
static void trapped(int number, siginfo_t *info, void *context) { (void)number, (void)info, (void)context; }
int kernellab_heap_watch(void *at, size_t size) { return (void)at, (void)size, 0; }
void kernellab_heap_unwatch(void) {}
void kernellab_heap_forget(void) {}
#endif

/* Reports a fault in the region, then lets it happen. judge/process.py parses the text. */
static void fault(int number, siginfo_t *info, void *context) {
  unsigned char *at = info->si_addr;
  if (stepped((uintptr_t)at, context)) return;
  if (ours(at)) {
    char words[160];
    size_t page = (size_t)(at - base) / PAGE, first = page;
    while (first && !pieces[first].pages && page - first < 64) first--;
    Piece *piece = &pieces[first], *behind = &pieces[page + 1];
    int length;
    if (piece->pages && at >= piece->at + piece->size)
      length = snprintf(words, sizeof words, "kernellab-heap: beyond the end of memory of %zu bytes\n", piece->size);
    else if (behind->pages)
      length = snprintf(words, sizeof words, "kernellab-heap: before the beginning of memory of %zu bytes\n", behind->size);
    else
      length = snprintf(words, sizeof words, "kernellab-heap: in memory that it has freed, or far from any\n");
    if (write(2, words, (size_t)length)) {}
  }
  sigaction(number, &before, NULL);
}

static int known(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size, (void)data;
  const char *name = info->dlpi_name;
  /* only the candidate loads objects by a path that begins with a dot */
  if (!name || (*name != '.' && strncmp(name, folder, strlen(folder)) && !strstr(name, also))) return 0;
  for (int i = 0; i < info->dlpi_phnum && ranges_known < RANGES; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && (part->p_flags & PF_X)) {
      ranges[ranges_known].low = info->dlpi_addr + part->p_vaddr;
      ranges[ranges_known++].high = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
  }
  return 0;
}

/* Guards all further allocations of objects below `in`, or with `name` in their path. Returns 0 if unavailable. */
int kernellab_heap_arm(const char *in, const char *name) {
  if (!base) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *table = mmap(NULL, REGION / PAGE * sizeof(Piece), PROT_READ | PROT_WRITE, flags, -1, 0);
    void *region = mmap(NULL, REGION, PROT_NONE, flags, -1, 0);
    if (table == MAP_FAILED || region == MAP_FAILED) return 0;
    pieces = table;
    base = region;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before);
    /* always installed, so that the visible signal handlers are the same in all calls */
    action.sa_sigaction = trapped;
    sigaction(SIGTRAP, &action, NULL);
  }
  folder = in, also = name, ranges_known = 0;
  dl_iterate_phdr(known, NULL);
  atomic_store(&armed, 1);
  return 1;
}

/* Disarms. Returns the size plus one of a piece whose guards were overwritten meanwhile, 0 if there is none. */
size_t kernellab_heap_disarm(void) {
  atomic_store(&armed, 0);
  lock();
  for (size_t i = 0; i < alive; i++) look(living[i]);
  size_t found = damaged;
  damaged = 0;
  unlock();
  return found;
}

static inline void *allocate(size_t size, size_t align, uintptr_t caller) {
  if (__builtin_expect(atomic_load_explicit(&armed, memory_order_relaxed), 0) && guards(caller)) {
    void *p = made(size, align, 0);
    if (p) return p;
  }
  return align > LEAST ? __libc_memalign(align, size) : __libc_malloc(size);
}

void *malloc(size_t size) { return allocate(size, LEAST, CALLER); }

void free(void *p) {
  if (__builtin_expect(ours(p), 0)) {
    int kept = errno;
    give_back(p);
    errno = kept;
  } else {
    __libc_free(p);
  }
}

void *calloc(size_t count, size_t size) {
  size_t whole;
  if (__builtin_expect(atomic_load_explicit(&armed, memory_order_relaxed), 0) && guards(CALLER) &&
      !__builtin_mul_overflow(count, size, &whole)) {
    void *p = made(whole, LEAST, 1);
    if (p) return p;
  }
  return __libc_calloc(count, size);
}

static void *again(void *p, size_t size, uintptr_t caller) {
  int guarded = atomic_load_explicit(&armed, memory_order_relaxed) && guards(caller);
  if (!ours(p) && (p || !guarded)) return __libc_realloc(p, size);
  if (p && !size) {
    free(p);
    return NULL;
  }
  void *to = allocate(size, LEAST, caller);
  if (to && p) {
    Piece *piece = piece_at(p);
    size_t held = piece ? piece->size : 0;
    memcpy(to, p, held < size ? held : size);
    free(p);
  }
  return to;
}

void *realloc(void *p, size_t size) { return again(p, size, CALLER); }

void *reallocarray(void *p, size_t count, size_t size) {
  size_t whole;
  if (__builtin_mul_overflow(count, size, &whole)) {
    errno = ENOMEM;
    return NULL;
  }
  return again(p, whole, CALLER);
}

void *memalign(size_t align, size_t size) { return allocate(size, align, CALLER); }
void *aligned_alloc(size_t align, size_t size) { return allocate(size, align, CALLER); }

int posix_memalign(void **to, size_t align, size_t size) {
  if (align < sizeof(void *) || (align & (align - 1))) return EINVAL;
  int kept = errno;
  void *p = allocate(size, align, CALLER);
  errno = kept;
  if (!p) return ENOMEM;
  *to = p;
  return 0;
}

size_t malloc_usable_size(void *p) {
  if (ours(p)) return piece_at(p) ? piece_at(p)->size : 0;
  static size_t (*theirs)(void *);
  if (!theirs) theirs = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
  return theirs ? theirs(p) : 0;
}

/* C++'s operators, since only their return address shows the caller; delete calls free. If memory runs out, the
   library's own operator reports it. */
static void *theirs(const char *name, size_t size, size_t align) {
  void *(*next)(size_t, size_t) = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, name);
  return next ? next(size, align) : NULL;
}
#define NEW(name)                                                                                                      \
  void *name(size_t size) {                                                                                            \
    void *p = allocate(size ? size : 1, LEAST, CALLER);                                                                \
    return p ? p : theirs(#name, size, 0);                                                                             \
  }
#define NEW_QUIET(name)                                                                                                \
  void *name(size_t size, const void *quiet) {                                                                         \
    (void)quiet;                                                                                                       \
    return allocate(size ? size : 1, LEAST, CALLER);                                                                   \
  }
#define NEW_ALIGNED(name)                                                                                              \
  void *name(size_t size, size_t align) {                                                                              \
    void *p = allocate(size ? size : 1, align, CALLER);                                                                \
    return p ? p : theirs(#name, size, align);                                                                         \
  }
NEW(_Znwm)
NEW(_Znam)
NEW_QUIET(_ZnwmRKSt9nothrow_t)
NEW_QUIET(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t)
NEW_ALIGNED(_ZnamSt11align_val_t)

/* The clocks of the C library, which a worker sets forward by some seconds. */
static atomic_long forward;
void kernellab_heap_forward(long seconds) { atomic_store(&forward, seconds); }

int clock_gettime(clockid_t which, struct timespec *to) {
  static int (*next)(clockid_t, struct timespec *);
  if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = next(which, to);
  if (!failed) to->tv_sec += atomic_load_explicit(&forward, memory_order_relaxed);
  return failed;
}

/* The processor time of this process is shifted in the same way. */
clock_t clock(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now)) return -1;
  return now.tv_sec * CLOCKS_PER_SEC + now.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}

int getrusage(int who, struct rusage *to) {
  static int (*next)(int, struct rusage *);
  if (!next) next = (int (*)(int, struct rusage *))dlsym(RTLD_NEXT, "getrusage");
  int failed = next(who, to);
  if (!failed) to->ru_utime.tv_sec += atomic_load_explicit(&forward, memory_order_relaxed);
  return failed;
}

/* Converts a deadline on these clocks to the system's own, for functions that wait. */
static struct timespec of_system(const struct timespec *until) {
  struct timespec found = *until;
  found.tv_sec -= atomic_load_explicit(&forward, memory_order_relaxed);
  return found;
}

int clock_nanosleep(clockid_t which, int how, const struct timespec *until, struct timespec *left) {
  static int (*next)(clockid_t, int, const struct timespec *, struct timespec *);
  if (!next) next = (int (*)(clockid_t, int, const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "clock_nanosleep");
  struct timespec at = how & TIMER_ABSTIME ? of_system(until) : *until;
  return next(which, how, &at, left);
}

int pthread_cond_timedwait(pthread_cond_t *what, pthread_mutex_t *held, const struct timespec *until) {
  static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!next)
    next = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlvsym(
        RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  struct timespec at = of_system(until);
  return next ? next(what, held, &at) : ENOSYS;
}

int pthread_cond_clockwait(pthread_cond_t *what, pthread_mutex_t *held, clockid_t which, const struct timespec *until) {
  static int (*next)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
  if (!next)
    next = (int (*)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *))dlsym(
        RTLD_NEXT, "pthread_cond_clockwait");
  struct timespec at = of_system(until);
  return next ? next(what, held, which, &at) : ENOSYS;
}

int gettimeofday(struct timeval *to, void *zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  to->tv_sec = now.tv_sec, to->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
