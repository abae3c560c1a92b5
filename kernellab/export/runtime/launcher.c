/* Launches what a host function launched before, without running the host function again.
 *
 * A Table maps what a call looks like (dtypes, shapes, strides, devices and alignment of its tensors, values of its
 * numbers) to a Plan: which tensors to make, which kernels to launch with which parameters, and what to return. A call
 * that looks like no Plan goes to `slow`. Tensors are read through DLPack's C exchange table, which torch.Tensor has
 * from 2.10 on; kernels are launched by the CUDA driver's own functions. launcher.py writes the Plans.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* a whole network's parameters, and what its launches hand on */
#define MOST_ARGS 2048
#define MOST_MADE 2048
#define MOST_WORDS 24576
#define MOST_BYTES 1024
#define MOST_PARAMS 256
#define CUDA 2
#define COOPERATIVE 2 /* CU_LAUNCH_ATTRIBUTE_COOPERATIVE */

/* -- DLPack 1.x, as its specification lays it out -------------------------------------------------------------------- */

typedef struct { int32_t kind, id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } DType;
typedef struct {
  void *data; Device device; int32_t ndim; DType dtype; int64_t *shape, *strides; uint64_t byte_offset;
} Tensor;
typedef struct {
  uint32_t major, minor; void *previous; void *allocate, *from_object, *to_object;
  int (*read)(void *object, Tensor *out);
  int (*stream)(int32_t kind, int32_t id, void **out);
} Exchange;

/* -- the driver's functions, found by name --------------------------------------------------------------------------- */

typedef struct {
  void *function; unsigned grid[3], block[3], shared; void **params, **extra; void *kernel, *context;
} KernelNode;
typedef struct { uint64_t dst; size_t pitch; unsigned value, element; size_t width, height; } MemsetNode;
typedef struct {
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  int (*launch_together)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
  int (*device)(int *);
  int (*context)(void **);
  int (*error)(int, const char **);
  int (*fill8)(uint64_t, unsigned char, size_t, void *);
  int (*fill16)(uint64_t, unsigned short, size_t, void *);
  int (*fill32)(uint64_t, unsigned, size_t, void *);
  int (*capturing)(void *, int *);
  int (*graph_create)(void **, unsigned);
  int (*graph_kernel)(void **, void *, void *const *, size_t, const KernelNode *);
  int (*graph_attribute)(void *, int, const void *);
  int (*graph_memset)(void **, void *, void *const *, size_t, const MemsetNode *, void *);
  int (*graph_instantiate)(void **, void *, unsigned long long);
  int (*graph_set_kernel)(void *, void *, const KernelNode *);
  int (*graph_set_memset)(void *, void *, const MemsetNode *, void *);
  int (*graph_launch)(void *, void *);
  int (*graph_drop_exec)(void *);
  int (*graph_drop)(void *);
} Driver;

static const struct { const char *name; size_t place; int needed; } SYMBOLS[] = {
  {"cuLaunchKernel", offsetof(Driver, launch), 1},
  {"cuLaunchCooperativeKernel", offsetof(Driver, launch_together), 0},
  {"cuCtxGetDevice", offsetof(Driver, device), 1},
  {"cuCtxGetCurrent", offsetof(Driver, context), 1},
  {"cuGetErrorString", offsetof(Driver, error), 1},
  {"cuMemsetD8Async", offsetof(Driver, fill8), 1},
  {"cuMemsetD16Async", offsetof(Driver, fill16), 1},
  {"cuMemsetD32Async", offsetof(Driver, fill32), 1},
  {"cuStreamIsCapturing", offsetof(Driver, capturing), 0},
  {"cuGraphCreate", offsetof(Driver, graph_create), 0},
  {"cuGraphAddKernelNode_v2", offsetof(Driver, graph_kernel), 0},
  {"cuGraphKernelNodeSetAttribute", offsetof(Driver, graph_attribute), 0},
  {"cuGraphAddMemsetNode", offsetof(Driver, graph_memset), 0},
  {"cuGraphInstantiateWithFlags", offsetof(Driver, graph_instantiate), 0},
  {"cuGraphExecKernelNodeSetParams_v2", offsetof(Driver, graph_set_kernel), 0},
  {"cuGraphExecMemsetNodeSetParams", offsetof(Driver, graph_set_memset), 0},
  {"cuGraphLaunch", offsetof(Driver, graph_launch), 0},
  {"cuGraphExecDestroy", offsetof(Driver, graph_drop_exec), 0},
  {"cuGraphDestroy", offsetof(Driver, graph_drop), 0},
};

/* -- plans ----------------------------------------------------------------------------------------------------------- */

typedef struct { int place, buffer; int64_t shift; } Patch;
typedef struct {
  int is_fill, together;                  /* together: its programs wait for each other, so all must run at once */
  uint64_t function;                      /* a kernel's handle */
  unsigned grid[3], threads, shared;
  int bytes, params, patches;             /* parameters lie in `data`, each at an offset; addresses are patched in */
  char data[MOST_BYTES];
  int offsets[MOST_PARAMS];
  Patch *patch;
  unsigned value, width;                  /* a fill: its element's bits and bytes */
  size_t items;
  uint64_t at;                            /* a graph's node holds these: its fill's address, or its parameters */
  char baked[MOST_BYTES];
  void *node;
} Step;
typedef struct { PyObject *size, *stride, *dtype; } Made;
typedef struct { int made; PyObject *size, *stride, *offset; } Out;
typedef struct Plan {
  uint64_t hash; int words; int64_t *key;
  int makes, steps, outs, container;      /* container: 0 a tensor, 1 a tuple, 2 a list, 3 None */
  Made *make; Step *step; Out *out;
  PyObject *keep;
  void *graph, *exec; int graphed;        /* 0 not yet, 1 there, -1 cannot be */
  int busy, dropped;                      /* calls that use it now; it was taken out of the table meanwhile */
} Plan;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *slow, *empty, *as_strided, *quiet, *grad, *types;
  const Exchange *exchange;
  Driver driver; void *library;
  int graph, capacity, count;
  Plan **plans;
  unsigned long long hits;
} Table;

static PyObject *REQUIRES_GRAD;

static void plan_free(Table *t, Plan *p) {
  if (!p) return;
  if (p->busy) {
    p->dropped = 1;
    return;
  }
  if (p->exec && t->driver.graph_drop_exec) t->driver.graph_drop_exec(p->exec);
  if (p->graph && t->driver.graph_drop) t->driver.graph_drop(p->graph);
  for (int i = 0; i < p->makes; i++) {
    Py_XDECREF(p->make[i].size); Py_XDECREF(p->make[i].stride); Py_XDECREF(p->make[i].dtype);
  }
  for (int i = 0; i < p->outs; i++) {
    Py_XDECREF(p->out[i].size); Py_XDECREF(p->out[i].stride); Py_XDECREF(p->out[i].offset);
  }
  for (int i = 0; i < p->steps; i++) PyMem_Free(p->step[i].patch);
  Py_XDECREF(p->keep);
  PyMem_Free(p->key); PyMem_Free(p->make); PyMem_Free(p->step); PyMem_Free(p->out); PyMem_Free(p);
}

/* -- what a call looks like ------------------------------------------------------------------------------------------ */

/* Words of the key, or -1 where no plan can stand for such arguments. `device` is that of the first CUDA tensor. */
static int look(Table *t, PyObject *const *args, Py_ssize_t n, int64_t *key, void **data, Device *device) {
  int words = 0;
  Py_ssize_t types = PyTuple_GET_SIZE(t->types);
  device->kind = 0; device->id = -1;
  if (n > MOST_ARGS) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *a = args[i];
    int is_tensor = 0;
    if (words + 8 > MOST_WORDS) return -1;
    for (Py_ssize_t k = 0; k < types; k++) is_tensor |= (PyObject *)Py_TYPE(a) == PyTuple_GET_ITEM(t->types, k);
    data[i] = NULL;
    if (is_tensor) {
      Tensor x;
      if (t->exchange->read(a, &x) != 0) { PyErr_Clear(); return -1; }
      if (x.dtype.code == 5 || words + 4 + 2 * x.ndim > MOST_WORDS) return -1; /* complex: may be conjugated lazily */
      data[i] = (char *)x.data + x.byte_offset;
      key[words++] = 1 | (int64_t)x.dtype.code << 8 | (int64_t)x.dtype.bits << 16 | (int64_t)x.dtype.lanes << 24 |
                     (int64_t)x.ndim << 40;
      key[words++] = (int64_t)x.device.kind << 32 | (uint32_t)x.device.id;
      key[words++] = (int64_t)((uintptr_t)data[i] & 15);
      for (int d = 0; d < x.ndim; d++) key[words++] = x.shape[d];
      for (int d = 0; d < x.ndim; d++) key[words++] = x.strides ? x.strides[d] : -1;
      if (device->kind != CUDA) *device = x.device;
    } else if (a == Py_None) {
      key[words++] = 2;
    } else if (PyBool_Check(a)) {
      key[words++] = 3; key[words++] = a == Py_True;
    } else if (PyLong_CheckExact(a)) {
      int overflow;
      key[words++] = 4; key[words++] = PyLong_AsLongLongAndOverflow(a, &overflow);
      if (overflow) return -1;
    } else if (PyFloat_CheckExact(a)) {
      double v = PyFloat_AS_DOUBLE(a);
      key[words++] = 5; memcpy(&key[words++], &v, sizeof v);
    } else {
      return -1;
    }
  }
  return device->id < 0 && device->kind == 0 ? -1 : words;
}

static uint64_t mixed(const int64_t *key, int words) {
  uint64_t h = 0x9E3779B97F4A7C15ull ^ (uint64_t)words;
  for (int i = 0; i < words; i++) { h = (h ^ (uint64_t)key[i]) * 0xFF51AFD7ED558CCDull; h ^= h >> 29; }
  return h;
}

static Plan **slot_of(Table *t, uint64_t hash, const int64_t *key, int words) {
  for (int at = (int)(hash & (t->capacity - 1));; at = (at + 1) & (t->capacity - 1)) {
    Plan *p = t->plans[at];
    if (!p || (p->hash == hash && p->words == words && !memcmp(p->key, key, words * sizeof *key))) return &t->plans[at];
  }
}

/* -- launching ------------------------------------------------------------------------------------------------------- */

static int filled(Driver *d, const Step *s, uint64_t at, void *stream) {
  if (s->width == 1) return d->fill8(at, (unsigned char)s->value, s->items, stream);
  if (s->width == 2) return d->fill16(at, (unsigned short)s->value, s->items, stream);
  return d->fill32(at, s->value, s->items, stream);
}

static void patched(const Step *s, void *const *data, char *params, void **pointers) {
  memcpy(params, s->data, s->bytes);
  for (int k = 0; k < s->patches; k++) {
    uint64_t address = (uint64_t)data[s->patch[k].buffer] + (uint64_t)s->patch[k].shift;
    memcpy(params + s->patch[k].place, &address, 8);
  }
  for (int k = 0; k < s->params; k++) pointers[k] = params + s->offsets[k];
}

static int one_by_one(Table *t, Plan *p, void *const *data, void *stream) {
  int code = 0;
  _Alignas(16) char params[MOST_BYTES];
  void *pointers[MOST_PARAMS];
  for (int i = 0; i < p->steps && !code; i++) {
    const Step *s = &p->step[i];
    if (s->is_fill) {
      code = filled(&t->driver, s, (uint64_t)data[s->patch[0].buffer] + (uint64_t)s->patch[0].shift, stream);
    } else {
      patched(s, data, params, pointers);
      code = s->together
                 ? t->driver.launch_together((void *)s->function, s->grid[0], s->grid[1], s->grid[2], s->threads, 1, 1,
                                             s->shared, stream, pointers)
                 : t->driver.launch((void *)s->function, s->grid[0], s->grid[1], s->grid[2], s->threads, 1, 1,
                                    s->shared, stream, pointers, NULL);
    }
  }
  return code;
}

/* The plan as one graph, whose nodes get the addresses that have changed since. -1: it must go one by one. */
static int as_graph(Table *t, Plan *p, void *const *data, void *stream) {
  Driver *d = &t->driver;
  _Alignas(16) char params[MOST_BYTES];
  void *pointers[MOST_PARAMS], *context = NULL, *before = NULL;
  int state = 1, code = 0;
  if (p->graphed < 0 || !d->graph_launch || !d->graph_kernel || !d->graph_set_kernel || !d->graph_instantiate ||
      !d->graph_create || !d->graph_memset || !d->graph_set_memset || !d->capturing)
    return -1;
  if (d->capturing(stream, &state) || state) return -1;
  int fresh = !p->graphed;
  if (d->context(&context)) return -1;
  if (fresh && d->graph_create(&p->graph, 0)) { p->graphed = -1; return -1; }
  for (int i = 0; i < p->steps && !code; i++) {
    Step *s = &p->step[i];
    if (s->is_fill) {
      uint64_t at = (uint64_t)data[s->patch[0].buffer] + (uint64_t)s->patch[0].shift;
      if (!fresh && at == s->at) continue;
      MemsetNode node = {at, 0, s->value, s->width, s->items, 1};
      code = fresh ? d->graph_memset(&s->node, p->graph, &before, i > 0, &node, context)
                   : d->graph_set_memset(p->exec, s->node, &node, context);
      s->at = at;
    } else {
      patched(s, data, params, pointers);
      if (!fresh && !memcmp(params, s->baked, s->bytes)) continue;
      KernelNode node = {(void *)s->function, {s->grid[0], s->grid[1], s->grid[2]}, {s->threads, 1, 1}, s->shared,
                         pointers, NULL, NULL, NULL};
      code = fresh ? d->graph_kernel(&s->node, p->graph, &before, i > 0, &node)
                   : d->graph_set_kernel(p->exec, s->node, &node);
      if (!code && fresh && s->together) {
        const union { int on; char room[64]; } together = {1};
        code = d->graph_attribute ? d->graph_attribute(s->node, COOPERATIVE, &together) : -1;
      }
      memcpy(s->baked, params, s->bytes);
    }
    before = s->node;
  }
  if (!code && fresh) code = d->graph_instantiate(&p->exec, p->graph, 0);
  if (!code) code = d->graph_launch(p->exec, stream);
  p->graphed = code ? -1 : 1;
  return code ? -1 : 0;
}

static PyObject *result_of(Table *t, Plan *p, PyObject **made) {
  PyObject *found[MOST_MADE];
  if (p->container == 3) Py_RETURN_NONE;
  for (int i = 0; i < p->outs; i++) {
    Out *o = &p->out[i];
    if (o->size == Py_None) {
      found[i] = made[o->made];
      Py_INCREF(found[i]);
      continue;
    }
    PyObject *given[4] = {made[o->made], o->size, o->stride, o->offset};
    found[i] = PyObject_Vectorcall(t->as_strided, given, 4, NULL);
    if (!found[i]) {
      while (i--) Py_DECREF(found[i]);
      return NULL;
    }
  }
  if (p->container == 0) return found[0];
  PyObject *all = p->container == 1 ? PyTuple_New(p->outs) : PyList_New(p->outs);
  for (int i = 0; i < p->outs; i++) {
    if (!all) Py_DECREF(found[i]);
    else if (p->container == 1) PyTuple_SET_ITEM(all, i, found[i]);
    else PyList_SET_ITEM(all, i, found[i]);
  }
  return all;
}

/* Does something watch or differentiate the call? 1 yes, 0 no, -1 an error. */
static int watched(Table *t, PyObject *const *args, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->quiet); i++) {
    PyObject *said = PyObject_CallNoArgs(PyTuple_GET_ITEM(t->quiet, i));
    int loud = said ? PyObject_IsTrue(said) : -1;
    Py_XDECREF(said);
    if (loud) return loud;
  }
  if (t->grad == Py_None) return 0;
  PyObject *enabled = PyObject_CallNoArgs(t->grad);
  int on = enabled ? PyObject_IsTrue(enabled) : -1;
  Py_XDECREF(enabled);
  if (on <= 0) return on;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (args[i] == Py_None || PyLong_Check(args[i]) || PyFloat_Check(args[i])) continue;
    PyObject *wanted = PyObject_GetAttr(args[i], REQUIRES_GRAD);
    if (!wanted) return -1;
    on = wanted == Py_True;
    Py_DECREF(wanted);
    if (on) return 1;
  }
  return 0;
}

/* A new reference, NULL with an error set, or NULL without one where no plan fits. */
static PyObject *attempt(Table *t, PyObject *const *args, Py_ssize_t n) {
  int64_t key[MOST_WORDS];
  void *data[MOST_ARGS + MOST_MADE], *stream = NULL;
  PyObject *made[MOST_MADE], *result = NULL;
  Device device;
  int done = 0, code = 0, current = -1;
  if (!t->count) return NULL;
  int words = look(t, args, n, key, data, &device);
  if (words < 0) return NULL;
  Plan *p = *slot_of(t, mixed(key, words), key, words);
  if (!p) return NULL;
  int loud = watched(t, args, n);
  if (loud) return NULL;
  if (device.kind == CUDA) {
    if (t->driver.device(&current) || current != device.id) return NULL;
    if (t->exchange->stream(device.kind, device.id, &stream)) return NULL;
  }
  p->busy++;
  for (; done < p->makes; done++) {
    PyObject *given[3] = {p->make[done].size, p->make[done].stride, p->make[done].dtype};
    Tensor x;
    made[done] = PyObject_Vectorcall(t->empty, given, 3, NULL);
    if (!made[done]) goto out;
    if (t->exchange->read(made[done], &x)) { done++; goto out; }
    data[n + done] = (char *)x.data + x.byte_offset;
  }
  code = t->graph && p->steps > 1 ? as_graph(t, p, data, stream) : -1;
  if (code < 0) {
    Py_BEGIN_ALLOW_THREADS
    code = one_by_one(t, p, data, stream);
    Py_END_ALLOW_THREADS
  }
  if (code) {
    const char *words_ = NULL;
    t->driver.error(code, &words_);
    PyErr_Format(PyExc_RuntimeError, "CUDA refused a kernel's launch: %s (error %d).", words_ ? words_ : "?", code);
  } else {
    t->hits++;
    result = result_of(t, p, made);
  }
out:
  while (done--) Py_DECREF(made[done]);
  p->busy--;
  if (p->dropped) plan_free(t, p);
  return result;
}

static PyObject *table_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
  Table *t = (Table *)self;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (!names || !PyTuple_GET_SIZE(names)) {
    PyObject *result = attempt(t, args, n);
    if (result || PyErr_Occurred()) return result;
  }
  return PyObject_Vectorcall(t->slow, args, nargsf, names);
}

static PyObject *table_hit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  PyObject *result = attempt((Table *)self, args, n);
  if (result || PyErr_Occurred()) return result;
  Py_RETURN_NOTIMPLEMENTED;
}

/* -- writing plans --------------------------------------------------------------------------------------------------- */

static PyObject *table_key(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  int64_t key[MOST_WORDS];
  void *data[MOST_ARGS + MOST_MADE];
  Device device;
  int words = look((Table *)self, args, n, key, data, &device);
  if (words < 0) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize((char *)key, words * sizeof *key);
}

static int take_step(PyObject *given, Step *s) {
  const char *data;
  Py_ssize_t bytes;
  PyObject *offsets, *patches;
  unsigned long long items;
  if (!PyArg_ParseTuple(given, "ppKIIIIIy#O!O!IIK", &s->is_fill, &s->together, &s->function, &s->grid[0], &s->grid[1], &s->grid[2],
                        &s->threads, &s->shared, &data, &bytes, &PyTuple_Type, &offsets, &PyTuple_Type, &patches,
                        &s->value, &s->width, &items))
    return -1;
  s->items = items;
  s->params = (int)PyTuple_GET_SIZE(offsets);
  s->patches = (int)PyTuple_GET_SIZE(patches);
  if (bytes > (Py_ssize_t)sizeof s->data || s->params > MOST_PARAMS) {
    PyErr_SetString(PyExc_ValueError, "too many parameters");
    return -1;
  }
  s->bytes = (int)bytes;
  memcpy(s->data, data, bytes);
  for (int i = 0; i < s->params; i++) s->offsets[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(offsets, i));
  s->patch = PyMem_Calloc(s->patches + 1, sizeof *s->patch);
  if (!s->patch) return -1;
  for (int i = 0; i < s->patches; i++) {
    long long shift;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(patches, i), "iiL", &s->patch[i].place, &s->patch[i].buffer, &shift))
      return -1;
    s->patch[i].shift = shift;
  }
  return PyErr_Occurred() ? -1 : 0;
}

static int grown(Table *t) {
  if (2 * (t->count + 1) < t->capacity) return 0;
  int before = t->capacity;
  Plan **old = t->plans;
  Plan **plans = PyMem_Calloc(2 * before, sizeof *plans);
  if (!plans) return -1;
  t->plans = plans;
  t->capacity = 2 * before;
  for (int i = 0; i < before; i++)
    if (old[i]) *slot_of(t, old[i]->hash, old[i]->key, old[i]->words) = old[i];
  PyMem_Free(old);
  return 0;
}

static PyObject *table_add(PyObject *self, PyObject *given) {
  Table *t = (Table *)self;
  const char *key;
  Py_ssize_t bytes;
  PyObject *makes, *steps, *outs, *keep;
  int container;
  if (!PyArg_ParseTuple(given, "y#O!O!iO!O", &key, &bytes, &PyTuple_Type, &makes, &PyTuple_Type, &steps, &container,
                        &PyTuple_Type, &outs, &keep))
    return NULL;
  Plan *p = PyMem_Calloc(1, sizeof *p);
  if (!p) return PyErr_NoMemory();
  p->words = (int)(bytes / sizeof *p->key);
  p->key = PyMem_Malloc(bytes + 1);
  p->makes = (int)PyTuple_GET_SIZE(makes);
  p->steps = (int)PyTuple_GET_SIZE(steps);
  p->outs = (int)PyTuple_GET_SIZE(outs);
  p->container = container;
  p->make = PyMem_Calloc(p->makes + 1, sizeof *p->make);
  p->step = PyMem_Calloc(p->steps + 1, sizeof *p->step);
  p->out = PyMem_Calloc(p->outs + 1, sizeof *p->out);
  if (!p->key || !p->make || !p->step || !p->out) { PyErr_NoMemory(); goto wrong; }
  if (p->makes > MOST_MADE || p->outs > MOST_MADE) { PyErr_SetString(PyExc_ValueError, "too many tensors"); goto wrong; }
  memcpy(p->key, key, bytes);
  p->hash = mixed(p->key, p->words);
  for (int i = 0; i < p->makes; i++) {
    Made *m = &p->make[i];
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(makes, i), "OOO", &m->size, &m->stride, &m->dtype)) {
      p->makes = i;
      goto wrong;
    }
    Py_INCREF(m->size); Py_INCREF(m->stride); Py_INCREF(m->dtype);
  }
  for (int i = 0; i < p->steps; i++) {
    if (take_step(PyTuple_GET_ITEM(steps, i), &p->step[i])) goto wrong;
    if (p->step[i].together && !t->driver.launch_together) {
      PyErr_SetString(PyExc_ValueError, "this driver cannot start programs together that wait for each other");
      goto wrong;
    }
  }
  for (int i = 0; i < p->outs; i++) {
    Out *o = &p->out[i];
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(outs, i), "iOOO", &o->made, &o->size, &o->stride, &o->offset)) {
      p->outs = i;
      goto wrong;
    }
    Py_INCREF(o->size); Py_INCREF(o->stride); Py_INCREF(o->offset);
  }
  Py_INCREF(keep);
  p->keep = keep;
  if (grown(t)) { PyErr_NoMemory(); goto wrong; }
  Plan **slot = slot_of(t, p->hash, p->key, p->words);
  if (*slot) plan_free(t, *slot);
  else t->count++;
  *slot = p;
  Py_RETURN_NONE;
wrong:
  plan_free(t, p);
  return NULL;
}

static PyObject *table_clear(PyObject *self, PyObject *unused) {
  Table *t = (Table *)self;
  (void)unused;
  for (int i = 0; i < t->capacity; i++) {
    plan_free(t, t->plans[i]);
    t->plans[i] = NULL;
  }
  t->count = 0;
  Py_RETURN_NONE;
}

static PyObject *table_hits(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(((Table *)self)->hits);
}

static PyObject *table_count(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLong(((Table *)self)->count);
}

static int table_init(PyObject *self, PyObject *args, PyObject *keywords) {
  Table *t = (Table *)self;
  PyObject *capsule;
  const char *library;
  (void)keywords;
  if (t->plans) { PyErr_SetString(PyExc_RuntimeError, "a Table is made once"); return -1; }
  if (!PyArg_ParseTuple(args, "OsOO!OOOO!p", &capsule, &library, &t->slow, &PyTuple_Type, &t->types, &t->empty,
                        &t->as_strided, &t->grad, &PyTuple_Type, &t->quiet, &t->graph)) {
    t->slow = t->types = t->empty = t->as_strided = t->grad = t->quiet = NULL;
    return -1;
  }
  Py_INCREF(t->slow); Py_INCREF(t->types); Py_INCREF(t->empty); Py_INCREF(t->as_strided); Py_INCREF(t->grad);
  Py_INCREF(t->quiet);
  t->vectorcall = table_call;
  t->exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!t->exchange) return -1;
  if (t->exchange->major != 1 || !t->exchange->read || !t->exchange->stream) {
    PyErr_SetString(PyExc_OSError, "torch's DLPack exchange table is of another version");
    return -1;
  }
  t->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!t->library) { PyErr_SetString(PyExc_OSError, dlerror()); return -1; }
  for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
    void *found = dlsym(t->library, SYMBOLS[i].name);
    if (!found && SYMBOLS[i].needed) {
      PyErr_Format(PyExc_OSError, "%s has no %s", library, SYMBOLS[i].name);
      return -1;
    }
    memcpy((char *)&t->driver + SYMBOLS[i].place, &found, sizeof found);
  }
  t->capacity = 16;
  t->plans = PyMem_Calloc(t->capacity, sizeof *t->plans);
  return t->plans ? 0 : -1;
}

static int table_traverse(PyObject *self, visitproc visit, void *arg) {
  Table *t = (Table *)self;
  Py_VISIT(t->slow); Py_VISIT(t->empty); Py_VISIT(t->as_strided); Py_VISIT(t->quiet); Py_VISIT(t->grad);
  Py_VISIT(t->types);
  for (int i = 0; t->plans && i < t->capacity; i++)
    if (t->plans[i]) Py_VISIT(t->plans[i]->keep);
  return 0;
}

static int table_drop(PyObject *self) {
  Table *t = (Table *)self;
  if (t->plans) Py_XDECREF(table_clear(self, NULL));
  Py_CLEAR(t->slow); Py_CLEAR(t->empty); Py_CLEAR(t->as_strided); Py_CLEAR(t->quiet); Py_CLEAR(t->grad);
  Py_CLEAR(t->types);
  return 0;
}

static void table_free(PyObject *self) {
  PyObject_GC_UnTrack(self);
  table_drop(self);
  PyMem_Free(((Table *)self)->plans);
  Py_TYPE(self)->tp_free(self);
}

static PyMethodDef METHODS[] = {
  {"hit", (PyCFunction)(void (*)(void))table_hit, METH_FASTCALL, "The result by a plan, or NotImplemented."},
  {"key", (PyCFunction)(void (*)(void))table_key, METH_FASTCALL, "What a call looks like, or None."},
  {"add", table_add, METH_VARARGS, "A plan for a key."},
  {"clear", table_clear, METH_NOARGS, "Forget all plans."},
  {NULL, NULL, 0, NULL},
};
static PyGetSetDef ATTRIBUTES[] = {
  {"hits", table_hits, NULL, "calls that a plan served", NULL},
  {"plans", table_count, NULL, "how many plans there are", NULL},
  {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject TableType = {
  PyVarObject_HEAD_INIT(NULL, 0)
  .tp_name = "kernel_launcher.Table",
  .tp_basicsize = sizeof(Table),
  .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
  .tp_vectorcall_offset = offsetof(Table, vectorcall),
  .tp_call = PyVectorcall_Call,
  .tp_new = PyType_GenericNew,
  .tp_init = table_init,
  .tp_dealloc = table_free,
  .tp_traverse = table_traverse,
  .tp_clear = table_drop,
  .tp_methods = METHODS,
  .tp_getset = ATTRIBUTES,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "kernel_launcher", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_kernel_launcher(void) {
  REQUIRES_GRAD = PyUnicode_InternFromString("requires_grad");
  if (!REQUIRES_GRAD || PyType_Ready(&TableType) < 0) return NULL;
  PyObject *module = PyModule_Create(&MODULE);
  if (!module) return NULL;
  Py_INCREF(&TableType);
  if (PyModule_AddObject(module, "Table", (PyObject *)&TableType) < 0) return NULL;
  return module;
}
