/* Linked into each object of a candidate that is built to see which of its code runs (kernellab/verifier/coverage).
 *
 * GCC calls the functions below with both operands of each comparison (-fsanitize-coverage=trace-cmp); a few operands of
 * each are kept, for inputs that decide it the other way. The counts of the blocks are GCC's own. Nothing allocates;
 * threads may overwrite each other's operands, which loses one and invents none that matters. All but the two functions
 * that the worker calls are local to the object: a candidate that defines one of them does not link. */
#include <stdint.h>
#include <string.h>

#define LOCAL __attribute__((visibility("hidden")))
#define SHOWN __attribute__((visibility("default")))
#define PLACES 2048 /* a power of two */
#define PAIRS 8
#define MOST 512 /* operands that are looked at in each place between two calls of kernellab_compared */

extern void __gcov_dump(void);
extern void __gcov_reset(void);

struct place {
  uintptr_t at;
  uint32_t kind; /* bytes of an integer; 16: the bits of a double */
  uint32_t looked;
  uint64_t pairs[PAIRS][2];
  uint32_t count;
};

static struct place places[PLACES];

static void seen(uintptr_t at, uint32_t kind, uint64_t a, uint64_t b) {
  for (uintptr_t probe = 0, i = at * 0x9E3779B97F4A7C15u >> 40; probe < 32; probe++, i++) {
    struct place *place = &places[i & (PLACES - 1)];
    if (place->at != at && place->at != 0) continue;
    if (place->looked >= MOST) return;
    place->looked++;
    place->at = at;
    place->kind = kind;
    for (uint32_t k = 0; k < PAIRS && k < place->count; k++)
      if (place->pairs[k][0] == a && place->pairs[k][1] == b) return;
    /* the first half stays, the second half is overwritten */
    uint32_t next = place->count < PAIRS ? place->count : PAIRS / 2 + place->count % (PAIRS / 2);
    place->pairs[next][0] = a;
    place->pairs[next][1] = b;
    place->count++;
    return;
  }
}

#define HERE ((uintptr_t)__builtin_return_address(0))
#define INTEGERS(bytes, type, wide)                                                                                    \
  LOCAL void __sanitizer_cov_trace_cmp##bytes(type a, type b) {                                                        \
    seen(HERE, bytes, (uint64_t)(int64_t)(wide)a, (uint64_t)(int64_t)(wide)b);                                         \
  }                                                                                                                    \
  LOCAL void __sanitizer_cov_trace_const_cmp##bytes(type a, type b) {                                                  \
    seen(HERE, bytes, (uint64_t)(int64_t)(wide)b, (uint64_t)(int64_t)(wide)a);                                         \
  }
INTEGERS(1, uint8_t, int8_t)
INTEGERS(2, uint16_t, int16_t)
INTEGERS(4, uint32_t, int32_t)
INTEGERS(8, uint64_t, int64_t)

LOCAL void __sanitizer_cov_trace_cmpd(double a, double b) {
  uint64_t bits[2];
  memcpy(&bits[0], &a, 8);
  memcpy(&bits[1], &b, 8);
  seen(HERE, 16, bits[0], bits[1]);
}

LOCAL void __sanitizer_cov_trace_cmpf(float a, float b) {
  double wide[2] = {a, b};
  uint64_t bits[2];
  memcpy(bits, wide, 16);
  seen(HERE, 16, bits[0], bits[1]);
}

LOCAL void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases) {
  for (uint64_t i = 0; i < cases[0] && i < PAIRS; i++) seen(HERE, 8, value, cases[2 + i]);
}

/* Write the counts so far to the files next to the object code. */
SHOWN void kernellab_counted(void) {
  __gcov_dump();
  __gcov_reset();
}

/* Move what was compared since the last call into `out`: for each place its address within the object, kind, number of
 * operand pairs, and the pairs, 8 bytes each. Returns the number of 8-byte words. */
SHOWN uint64_t kernellab_compared(uint64_t *out, uint64_t most, uintptr_t base) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < PLACES; i++) {
    struct place *place = &places[i];
    uint32_t count = place->count < PAIRS ? place->count : PAIRS;
    if (place->at != 0 && n + 3 + 2 * PAIRS <= most) {
      out[n++] = place->at - base;
      out[n++] = place->kind;
      out[n++] = count;
      memcpy(&out[n], place->pairs, 16 * count);
      n += 2 * count;
    }
    memset(place, 0, sizeof *place);
  }
  return n;
}
