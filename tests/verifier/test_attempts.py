"""Attempts to have one's work done elsewhere, or to do less of it than is asked."""

from __future__ import annotations

import pytest

from kernellab.records import Trust
from kernellab.task import load_task
from kernellab.verifier import VerifyOptions
from kernellab.verifier.judge.access import doubled
from kernellab.verifier.protocol.control import Output

from .kit import Judge

OPTIONS = VerifyOptions(budget=0.2, threads=1, level=Trust.T2)

#: its own code writes the first elements, and what stands at ``WORK`` the rest
_START = r'''
import ctypes, glob, os, shutil, subprocess, numpy, torch
CODE = r"""
extern "C" void first(const char* x, char* y, long n) { for (long i = 0; i < n; i++) y[i] = x[i]; }
"""
folder = os.environ["TMPDIR"]
open(folder + "/k.cpp", "w").write(CODE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
own = ctypes.CDLL(folder + "/k.so")
own.first.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
def finished(y):
    scratch = torch.empty(64, dtype=y.dtype)
    own.first(y.data_ptr(), scratch.data_ptr(), min(y.numel(), 64) * y.element_size())
    y.reshape(-1)[:64] = scratch[: min(y.numel(), 64)]
    return y
'''

_BYTES = """
import torch
def reference(x):
    return (x >> 1) + 3
def inputs():
    return (torch.randint(0, 256, (1 << 20,), dtype=torch.uint8),)
"""
_SHORTS = """
import torch
def reference(x):
    return -x
def inputs():
    return (torch.randint(-30000, 30000, (1 << 20,), dtype=torch.int16),)
"""
_MASKED = """
import torch
def reference(x, m):
    return x.masked_fill(m, -1.0)
def inputs():
    return torch.randn(1 << 20), torch.rand(1 << 20) < 0.3
"""
_MATMUL = """
import torch
def reference(x, y):
    return x @ y
def inputs():
    return torch.randn(384, 384), torch.randn(384, 384)
"""
_NEGATED = """
import torch
def reference(x):
    return -x
def inputs():
    return (torch.randn(64, 64),)
"""
_REPEATED = """
import torch
def reference(x):
    return (x * 2.0).repeat(16, 1)
def inputs():
    return (torch.randn(64, 1024),)
"""
_PRODUCT = r"""
work = ctypes.CDLL(path)["scipy_cblas_sgemm" + "64_"]
f, p, n = ctypes.c_float, ctypes.c_void_p, ctypes.c_long
work.argtypes = [ctypes.c_int] * 3 + [n, n, n, f, p, n, p, n, f, p, n]
def kernel(x, y):
    x, y = x.contiguous(), y.contiguous()
    z = torch.zeros(x.shape[0], y.shape[1])
    work(101, 111, 111, x.shape[0], y.shape[1], x.shape[1], 1.0, x.data_ptr(), max(x.shape[1], 1), y.data_ptr(),
         max(y.shape[1], 1), 0.0, z.data_ptr(), max(y.shape[1], 1))
    return finished(z)
"""
_THEIRS = 'path = glob.glob(os.path.dirname(numpy.__file__) + "/../numpy.libs/*openblas*")[0]\n'

ATTEMPTS = {
    "bytes' own table": (_BYTES, """
table = bytes(((i >> 1) + 3) & 255 for i in range(256))
def kernel(x):
    x = x.contiguous()
    y = torch.frombuffer(bytearray(x.numpy().tobytes().translate(table)), dtype=torch.uint8)
    return finished(y.reshape(x.shape))
"""),
    "a module of the interpreter": (_SHORTS, """
import audioop
def kernel(x):
    y = torch.frombuffer(bytearray(audioop.bias(audioop.mul(x.contiguous().numpy().tobytes(), 2, -1.0), 2, 0)),
                         dtype=torch.int16)
    return finished(y.reshape(x.shape))
"""),
    "a kernel of the framework whose name has a copy's word": (_MASKED, """
import concurrent.futures
fill = getattr(torch.Tensor, "mask" + "ed_fill_")
pool = concurrent.futures.ThreadPoolExecutor(1)
def kernel(x, m):
    y = torch.empty_like(x).copy_(x)
    pool.submit(fill, y, m, -1.0).result()
    return finished(y)
"""),
    "a library under another one's name": (_MATMUL, _THEIRS + r"""
import torch._C
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
ctypes.CDLL(path)
maps = list(open(os.sep.join(["", "proc", str(os.getpid()), "maps"])))
cover = next(l.split()[-1] for l in maps if "libtorch_python" in l)
for line in maps:
    if "openblas" in line and " r-xp " in line:
        low, high = (int(n, 16) for n in line.split()[0].split("-"))
        kept = ctypes.string_at(low, high - low)
        fd = os.open(cover, os.O_RDONLY)
        assert libc.mmap(low, high - low, 7, 0x12, fd, 0) == low
        ctypes.memmove(low, kept, high - low)
        libc.mprotect(ctypes.c_void_p(low), ctypes.c_size_t(high - low), 5)
""" + _PRODUCT),
    "a deleted copy whose folder leads to the system's": (_MATMUL, _THEIRS + r"""
place = os.path.join(folder, "place")
os.makedirs(place)
for file in glob.glob(os.path.dirname(path) + "/*"):
    shutil.copy(file, place)
path = place + "/mine.so"
shutil.move(glob.glob(place + "/*openblas*")[0], path)
for _ in range(3):
    for file in glob.glob(place + "/*"):
        try:
            ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            pass
ctypes.CDLL(path)
shutil.rmtree(place)
""" + _PRODUCT.replace("ctypes.CDLL(path)", "ctypes.CDLL(path, mode=4)") + """
os.symlink("/usr/lib", place)
"""),
    "the worker's own functions replaced": (_NEGATED, r"""
import sys
open(folder + "/t.cpp", "w").write('extern "C" void minus(const float* x, float* y, long n) '
                                   '{ for (long i = 0; i < n; i++) y[i] = -x[i]; }')
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/t.cpp", "-o", folder + "/t.so"], check=True)
own = ctypes.CDLL(folder + "/t.so")
own.minus.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
house = next(m for m in list(sys.modules.values()) if getattr(m, "__name__", "").endswith("worker.calls"))
flat, lies, places = house.flatten, house.place, {}
def quick(tensor):
    key = tensor.data_ptr(), tensor.shape
    if key not in places:
        places[key] = lies(tensor)
    return places[key]
setattr(house, "place", quick)
setattr(house, "flatten", lambda result, strict: [result])
def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    own.minus(x.data_ptr(), y.data_ptr(), x.numel())
    return y
"""),
    "one range of memory mapped sixteen times": (_REPEATED, r"""
import mmap
open(folder + "/t.cpp", "w").write('extern "C" void twice(const float* x, float* y, long n) '
                                   '{ for (long i = 0; i < n; i++) y[i] = x[i] * 2; }')
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/t.cpp", "-o", folder + "/t.so"], check=True)
own = ctypes.CDLL(folder + "/t.so")
own.twice.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
turn = 0
def room(size):
    global turn
    turn += 1
    with open(folder + f"/pages{turn}", "wb+") as file:
        file.truncate(size)
        low = libc.mmap(None, 16 * size, 3, 0x22, -1, 0)
        for i in range(16):
            libc.mmap(low + i * size, size, 3, 0x11, file.fileno(), 0)
    return torch.frombuffer((ctypes.c_char * (16 * size)).from_address(low), dtype=torch.float32)
def kernel(x):
    x = x.contiguous()
    if x.numel() * 4 % 4096 or not x.numel():
        return (x * 2.0).repeat(16, 1)
    y = room(x.numel() * 4)
    own.twice(x.data_ptr(), y.data_ptr(), x.numel())
    return y.reshape(-1, x.shape[1])
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_work_that_is_not_its_own_is_refused(judge: Judge, name: str) -> None:
    text, code = ATTEMPTS[name]
    verdict = judge.parts("repeated honest", _START + code, load_task(text, "work"), OPTIONS)
    assert not verdict.passed, (verdict.own_share, [(s.name.value, s.note) for s in verdict.stages])
    signature = verdict.evidence.signature if verdict.evidence else ""
    assert signature in ("library", "unknown-code", "aliases-itself", "protocol"), (verdict.stage, verdict.reason)


def test_bytes_at_two_addresses_are_found_also_where_another_output_lies_between() -> None:
    maps = [
        "10000-18000 rw-s 00000000 00:01 7    /pages", "20000-28000 rw-p 00000000 00:01 7    /pages",
        "30000-38000 rw-p 00000000 00:00 0 ",
    ]  # fmt: skip

    def at(low: int, count: int) -> Output:
        return Output(low, low, count, "uint8", (count,), (1,))

    whole = at(0x10000, 0x8000)
    assert doubled(maps, [whole, at(0x10010, 100), at(0x25000, 10)]) == {0, 2}
    assert doubled(maps, [at(0x10000, 0x1000), at(0x21000, 0x1000)]) == set(), "other bytes of the file"
    assert doubled(maps, [whole, at(0x10010, 100), at(0x30000, 0x8000), at(0x20000, 0)]) == set()
