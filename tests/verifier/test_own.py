"""Whose code does the work, as the judge sees it from outside."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernellab.verifier.attribution.counters import Places, Sample, Unseen, executable, rounding_modes
from kernellab.verifier.attribution.objects import Kind, is_of, kind_of, library_of, makes_code, symbol_at
from kernellab.verifier.attribution.profile import ProfiledLooks
from kernellab.verifier.attribution.proof import Build, is_of_file
from kernellab.verifier.attribution.share import LookCounts, _builtins, _handling, _launching, own_seconds
from kernellab.verifier.judge.worker_client import Call, Worker
from kernellab.verifier.protocol.rules import HONEST


@pytest.fixture(scope="module")
def framework() -> str:
    """The path of the framework's own object of operators, as this process has it mapped."""
    import torch  # noqa: F401

    found = next((m.path for m in executable(os.getpid()) if "libtorch_cpu" in m.path), "")
    if not found:
        pytest.skip("this torch has no libtorch_cpu")
    return found


def test_code_that_is_not_installed_is_its_own() -> None:
    assert kind_of("/scratch/cache/k.so", 64, "/scratch") is Kind.OWN
    assert kind_of("/dev/shm/k.so", 64, "/scratch") is Kind.UNKNOWN
    assert kind_of("/usr/lib/libgmp.so.10", 64, "/scratch") is Kind.LIBRARY, "what is no runtime computes"
    assert kind_of(os.path.realpath(sys.executable), 64, "/scratch") is Kind.INTERPRETER
    assert kind_of("/usr/lib/libm.so.6", 64, "/scratch") is Kind.OTHER
    assert kind_of("/scratch/cache/inductor/ab/k.so", 64, "/scratch") is Kind.LIBRARY


def test_packages_that_pythonpath_names_are_installed(tmp_path: Path) -> None:
    """``pip install --target``, or a user's site: a runtime there is no stranger, and a library there computes."""
    (tmp_path / "some-1.0.dist-info").mkdir()
    words = (
        "from kernellab.verifier.attribution.objects import kind_of; "
        f"print(*(kind_of('{tmp_path}' + path, 64, '/scratch').value for path in "
        "('/tvm_ffi/lib/libtvm_ffi.so', '/some/lib/libblas.so')))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["other", "library"]


def test_the_framework_computes_and_an_interpreter_does_not(framework: str) -> None:
    binding = os.path.join(os.path.dirname(framework), "libtorch_python.so")
    assert kind_of(framework, 0, "/scratch") is Kind.LIBRARY
    assert kind_of(binding, 4096, "/scratch") is Kind.OTHER
    assert kind_of("/usr/lib/libopenblas.so.0", 4096, "/scratch") is Kind.LIBRARY
    assert kind_of("[vdso]", 4096, "/scratch") is Kind.OTHER


def test_what_computes_under_the_name_of_a_copy_computes(framework: str) -> None:
    """Kernels for contiguous numbers, transposed convolutions and the merges of a sort are no moves."""
    from kernellab.verifier.attribution import objects

    def moves(name: str) -> bool:
        return bool(objects._MOVES.search(name)) and not objects._COMPUTES.search(name)

    computing = (
        "batch_norm_cpu_contiguous_impl searchsorted_cpu_contiguous slow_conv_transpose2d_out_cpu omp_parallel_acopy "
        "histogramdd_cpu_contiguous 18masked_fill_kernel 17index_copy_kernel __merge_adaptive_resize_stable_sort"
    )
    assert not [name for name in computing.split() if moves(name)]
    moving = "18direct_copy_kernel 11fill_kernel 17cat_serial_kernel 17empty_strided_cpu 18transpose_copy_int"
    assert all(map(moves, moving.split()))
    # code without a file is that library's which called it, where the library writes code
    assert makes_code(framework)
    import numpy

    assert not makes_code(str(Path(numpy.__file__).parent / "_core" / "_multiarray_umath.cpython-312.so"))
    assert not makes_code("")
    # bindings of the framework compute nothing; what others name alike may
    packages = Path(framework).parents[2]
    for name, is_work in {
        "torch/_C.cpython-311-x86_64-linux-gnu.so": False, "torchvision/_C.so": True, "vllm/_C.abi3.so": True,
        "scipy/special/cython_special.so": True, "scipy/linalg/cython_blas.so": False, "torch/lib/libc10.so": False,
    }.items():  # fmt: skip
        assert objects.computes(f"{packages}/{name}") == is_work, name
    # but its DSL's, where that calls it
    assert is_of(framework, ("warp", "torch")) and not is_of(framework, ("warp",)) and not is_of("", ("torch",))


def test_one_look_at_unknown_code_says_nothing_whatever_it_stands_for() -> None:
    one = LookCounts(own=60.0, total=21, unknown_objects=(("k", 12.0),), unknown_looks=1)
    assert one.unknown_share == 0 and replace(one, unknown_looks=3).unknown_share == pytest.approx(1 / 6)
    assert replace(one, own=900.0, unknown_looks=3).unknown_share == 0
    many = tuple((f"k{i}", 1.0) for i in range(40))
    assert replace(one, unknown_objects=many, unknown_looks=40).unknown_share == pytest.approx(0.4), (
        "under however many names"
    )


@pytest.mark.parametrize(("together", "is_loop"), [(15, False), (60, True)])
def test_a_loop_of_the_interpreter_s_own_is_told_from_what_it_interprets(together: int, is_loop: bool) -> None:
    places = [*range(9000, 9000 + together), *range(100_000, 100_000 + 600 * (100 - together), 600)]
    looks = [[Sample("/usr/bin/python3", place, place, 1)] for place in places]
    kinds = {sample: Kind.INTERPRETER for look in looks for sample in look}
    assert len(_builtins(looks, kinds, 1e-3)) == together * is_loop


@pytest.mark.parametrize(("step", "is_handling"), [(5000, True), (500, False)])
def test_a_library_s_loop_is_told_from_what_handles_tensors_once(step: int, is_handling: bool) -> None:
    looks: list[list[Sample]] = [[Sample("/usr/lib/libtorch_cpu.so", 9000 + i * step, 1, 1)] for i in range(12)] + [
        []
    ] * 8
    looked = ProfiledLooks(cast(Worker, None), looks, [1.0] * 20)
    named = {sample: "torch_cpu" for look in looks for sample in look}
    assert bool(_handling(looked, named, 100e-6)) is is_handling
    assert not _handling(looked, named, 1e-3), "of a millisecond that is all in a library, none is handling"


def test_what_a_worker_does_once_it_has_answered_is_no_part_of_its_call() -> None:
    done = os.eventfd(0)
    worker = object.__new__(Worker)
    worker.done, worker.computing = done, True
    assert worker.at_work
    os.eventfd_write(done, 1)
    assert not worker.at_work, "the thread that waits has not seen the answer yet"
    os.close(done)


def test_code_is_judged_as_it_stood_when_it_was_looked_at(tmp_path: Path) -> None:
    right, other = bytes(range(256)) * 16, bytes(range(255, -1, -1)) * 16
    file = tmp_path / "k.so"
    file.write_bytes(right)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    with file.open("rb") as held:
        low = libc.mmap(None, len(right), 7, mmap.MAP_PRIVATE, held.fileno(), 0)
    ctypes.memmove(low, other, len(other))
    ran = Places().sample(os.getpid(), low + 200)
    ctypes.memmove(low, right, len(right))
    assert ran.path == str(file) and not is_of_file(ran), "it was put back later"
    assert is_of_file(Places().sample(os.getpid(), low + 200))
    assert not Build(str(tmp_path)).holds(ran)
    # at the seam of two blocks that are read
    (tmp_path / "k.o").write_bytes(bytes((1 << 20) - 195) + other)
    assert Build(str(tmp_path)).holds(ran)


def test_a_function_is_named_by_its_place_in_a_file() -> None:
    libc = next((m.path for m in executable(os.getpid()) if "/libc.so" in m.path), "")
    if not libc:
        pytest.skip("no libc of that name")
    maps = next(m for m in executable(os.getpid()) if m.path == libc)
    address = ctypes.cast(ctypes.CDLL(libc).qsort, ctypes.c_void_p).value or 0
    assert symbol_at(libc, address - maps.low + maps.offset).startswith("qsort")
    assert symbol_at(__file__, 10) == ""


def test_few_samples_say_nothing_and_many_say_whose_code_it_is() -> None:
    few = LookCounts(own=0, libraries=(("blas", HONEST.min_samples - 1),), total=80, seconds=1e-3)
    assert not few.is_conclusive and not few.is_mostly_library
    much = LookCounts(own=2, libraries=(("blas", 78),), total=80, seconds=1e-3)
    assert much.is_mostly_library and much.share < 0.05
    handling = LookCounts(own=10, libraries=(("torch_cpu", 8),), total=80, seconds=50e-6)
    assert handling.is_conclusive and not handling.is_mostly_library, "dispatching a short call is no work"
    assert not LookCounts(own=79, libraries=(("torch_cpu", 1),), total=80, seconds=1e-3).is_mostly_library


def test_rare_looks_count_for_the_calls_that_they_stand_for() -> None:
    # 16 looks at own code while every second call is looked at, then five at a library's where each stands for three
    found = LookCounts(own=16, libraries=(("blas", 15),), total=21, seconds=1e-3, effective=31**2 / (16 + 5 * 9))
    assert found.share < 0.52 and found.is_mostly_library


def test_a_thread_that_ends_while_it_is_looked_at_is_no_refusal() -> None:
    import subprocess

    from kernellab.verifier.attribution import counters

    child = subprocess.Popen([sys.executable, "-c", ""])
    while b"Z" not in (Path("/proc") / str(child.pid) / "stat").read_bytes().rpartition(b")")[2][:3]:
        time.sleep(0.01)
    # ended and not yet gone: the system says EPERM
    with counters._held(child.pid) as held:
        assert not held
    child.wait()
    with counters._held(child.pid) as held:
        assert not held


def test_modes_of_rounding_are_read_from_a_halted_process() -> None:
    import subprocess

    code = "import sys; print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        modes = rounding_modes(child.pid)
    except Unseen as unseen:
        pytest.skip(str(unseen))
    finally:
        child.communicate()
    assert modes == {child.pid: 0x1F80}, "the processor's own default"


def test_a_mapped_file_may_have_any_name(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and characters at which Python would end a line."""
    name = os.fsencode(tmp_path) + b"/lib\xff\x0c\xe2\x80\xa8.so"
    Path(os.fsdecode(name)).write_bytes(bytes(mmap.PAGESIZE))
    rights = mmap.PROT_READ | mmap.PROT_EXEC
    with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, rights) as held:
        assert len(held) == mmap.PAGESIZE
        paths = [m.path for m in executable(os.getpid())]
    assert os.fsdecode(name) in paths
    # what is told of it can be sent
    assert library_of(os.fsdecode(name)).encode()


@pytest.mark.parametrize(
    ("wall", "waited", "used", "told"),
    [
        (1e-3, 0.0, 1e-3, 1e-3),  # nothing else runs
        (5e-3, 4e-3, 1e-3, 1e-3),  # something else has the cores
        (1e-3, 0.0, 8e-3, 1e-3),  # eight threads
        (1e-3, 9e-4, 8e-3, 1e-3),  # its own threads have each other's cores: the wait hides nothing
        (1e-3, 0.0, 1e-5, 1e-3),  # what computed has ended, and its processor time with it
    ],
)
def test_what_a_call_takes_is_moved_by_other_work_and_by_none_of_its_own(
    wall: float, waited: float, used: float, told: float
) -> None:
    call = Call(cast(Any, None), wall, waited, used=used)
    assert own_seconds(call) == pytest.approx(told)


@pytest.mark.parametrize(
    ("share", "places", "seconds", "launches"),
    [
        (0.2, 5, 1e-3, True),
        (0.5, 1, 1e-3, False),
        (0.2, 5, 1e-1, False),
        (0.2, 1, 1e-3, False),  # 0.2 ms in one loop
        (0.02, 1, 1e-2, True),  # two looks of a hundred are chance
        (0.03, 1, 9e-3, False),
    ],
)
def test_a_runtime_may_launch_and_what_takes_longer_or_stays_in_a_loop_is_a_library(
    framework: str, share: float, places: int, seconds: float, launches: bool
) -> None:
    apart = [Sample(framework, 64 + 8192 * n, 64, 1) for n in range(places)]
    inside = round(100 * share)
    looks = [[apart[n % places]] for n in range(inside)] + [[Sample("", 0, 0, 1)]] * (100 - inside)
    named = dict.fromkeys(apart, "torch_cpu")

    def seen(*packages: str) -> set[Sample]:
        worker = SimpleNamespace(runtime=packages)
        looked = SimpleNamespace(worker=worker, looks=looks, weights=[1.0] * 100, refused="")
        return _launching(looked, named, seconds)  # type: ignore[arg-type]

    assert seen("torch") == (set(apart) if launches else set())
    assert seen() == seen("taichi") == set(), "a library that the spec does not name has no such time"


@pytest.mark.parametrize(("seconds", "launches"), [(2e-3, True), (6e-3, False)])
def test_a_slow_launch_is_one_that_stays_nowhere(framework: str, seconds: float, launches: bool) -> None:
    apart = [Sample(framework, 64 + 8192 * n, 64, 1) for n in range(50)]
    worker = SimpleNamespace(runtime=("torch",))
    looks = [[s] for s in apart] + [[Sample("", 0, 0, 1)]] * 50
    looked = SimpleNamespace(worker=worker, looks=looks, weights=[1.0] * 100, refused="")
    found = _launching(looked, dict.fromkeys(apart, "torch_cpu"), seconds)  # type: ignore[arg-type]
    assert found == (set(apart) if launches else set())


@pytest.mark.parametrize(("looked_at", "launches"), [(60, True), (12, False)])
def test_two_looks_at_a_runtime_s_loop_are_chance_among_many_alone(
    framework: str, looked_at: int, launches: bool
) -> None:
    loop = Sample(framework, 64, 64, 1)
    looks = [[loop]] * 2 + [[Sample("", 0, 0, 1)]] * (looked_at - 2)
    worker = SimpleNamespace(runtime=("torch",))
    looked = SimpleNamespace(worker=worker, looks=looks, weights=[1.0] * looked_at, refused="")
    # 0.28 ms of the call in one place
    found = _launching(looked, {loop: "torch_cpu"}, 0.14e-3 * looked_at)  # type: ignore[arg-type]
    assert found == ({loop} if launches else set())


def test_views_are_no_work_of_the_framework() -> None:
    import torch

    from kernellab.verifier.worker.dispatch import library_report

    def turned(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x).diagonal()).unfold(0, 2, 1)

    assert library_report(turned, [torch.randn(4, 4, 2)], lambda: None)["library"] == {}
    assert set(library_report(lambda x: turned(x).sum(), [torch.randn(4, 4, 2)], lambda: None)["library"]) == {"sum"}
    with torch.inference_mode():  # where torch leaves operators whole that may copy
        found = library_report(lambda x: x.t().contiguous(), [torch.randn(64, 32)], lambda: None)  # type: ignore[arg-type]
    assert set(found["moves"]) == {"clone"}
