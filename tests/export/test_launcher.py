"""The C half of the launcher on host memory: a small library stands where the CUDA driver is on a GPU machine.

Its "kernels" are C functions that work on the parameters they are launched with, so that keys, addresses and results
are seen for real. ``tests/gpu/launcher_gpu.py`` does the same with the driver.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.errors import SessionError
from kernellab.export.runtime import launcher as runtime
from kernellab.export.runtime import recording
from kernellab.export.runtime.launcher import Launcher
from kernellab.export.runtime.recording import Refused, Unavailable, watched
from kernellab.export.runtime.steps import Recording, Step
from kernellab.model_integration import install, profile, uninstall
from kernellab.records import Author, Candidate, Source, Verdict
from kernellab.session.kernel import BestKernel
from kernellab.session.record.standings import Best
from kernellab.target import Backend
from kernellab.task import load_task

DRIVER = """
#include <stdint.h>
#include <string.h>
typedef void (*Kernel)(void **, unsigned);
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned s,
                   void *st, void **p, void **e) {
  if (!f) return 700;
  ((Kernel)f)(p, x);
  return 0;
}
static int together;
int launched_together(void) { return together; }
int cuLaunchCooperativeKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                              unsigned s, void *st, void **p) {
  together++;
  return cuLaunchKernel(f, x, y, z, a, b, c, s, st, p, 0);
}
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxGetCurrent(void **c) { *c = 0; return 0; }
int cuGetErrorString(int c, const char **s) { *s = "an illegal memory access was encountered"; return 0; }
int cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, void *s) { memset((void *)p, v, n); return 0; }
int cuMemsetD16Async(uint64_t p, unsigned short v, size_t n, void *s) { return 1; }
int cuMemsetD32Async(uint64_t p, unsigned v, size_t n, void *s) {
  for (size_t i = 0; i < n; i++) ((unsigned *)p)[i] = v;
  return 0;
}
/* y += a * x, grid elements */
void scaled(void **p, unsigned n) {
  const float *x = *(float **)p[0]; float *y = *(float **)p[1]; float a = *(float *)p[2];
  for (unsigned i = 0; i < n; i++) y[i] += a * x[i];
}
/* y = x by way of scratch, 4 bytes a program */
void by_scratch(void **p, unsigned n) {
  memcpy(*(float **)p[2], *(float **)p[0], 4 * n);
  memcpy(*(float **)p[1], *(float **)p[2], 4 * n);
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(DRIVER, tmp_path_factory.mktemp("driver"))


def _built(text: str, folder: Path) -> Path:
    (folder / "driver.c").write_text(text)
    built = folder / "libdriver.so"
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", str(folder / "driver.c"), "-o", str(built)], check=True)
    return built


@pytest.fixture
def table(driver: Path) -> Callable[..., Any]:
    """A launcher's table whose slow way says "slow", with one plan: y = 2 + 3 x, made in the call."""

    def make(together: bool = False, library: Path = driver, **options: Any) -> Any:
        launcher = Launcher(lambda *args, **named: "slow", device="cpu", library=str(library), **options)
        x = torch.arange(6.0).reshape(2, 3)
        function = ctypes.cast(ctypes.CDLL(str(driver)).scaled, ctypes.c_void_p).value
        assert function is not None
        two = struct.unpack("<I", struct.pack("<f", 2.0))[0]
        fill = Step(fill=True, patches=((0, 2, 0),), value=two, width=4, items=6)
        data = bytes(16) + struct.pack("<f", 3.0)
        launch = Step(function=function, grid=(6, 1, 1), threads=32, data=data, offsets=(0, 8, 16),
                      patches=((0, 0, 0), (8, 2, 0)), cooperative=together)  # fmt: skip
        key = launcher.table.key(x, 0.5)
        makes = (((2, 3), (3, 1), torch.float32),)
        launcher.table.add(
            key, makes, (fill.as_tuple(), launch.as_tuple()), 1, ((0, None, None, None), (0, (3,), (1,), 3)), x
        )
        return launcher.table

    return make


def test_a_call_that_looks_the_same_is_done_by_its_plan(table: Callable[..., Any]) -> None:
    found = table()
    for scale in (1.0, -2.0):
        x = torch.randn(2, 3) * scale
        y, row = found(x, 0.5)
        torch.testing.assert_close(y, 2 + 3 * x)
        torch.testing.assert_close(row, 2 + 3 * x[1])
    assert found.hits == 2 and found.plans == 1


def test_programs_that_wait_for_each_other_are_launched_together(table: Callable[..., Any], driver: Path) -> None:
    count, x = ctypes.CDLL(str(driver)).launched_together, torch.randn(2, 3)
    before = count()
    table()(x, 0.5)
    assert count() == before
    y, _ = table(together=True)(x, 0.5)
    torch.testing.assert_close(y, 2 + 3 * x)
    assert count() == before + 1


def test_a_driver_that_cannot_launch_them_together_gets_no_such_plan(table: Callable[..., Any], tmp_path: Path) -> None:
    old = _built(DRIVER.replace("cuLaunchCooperativeKernel", "cuLaunchSomethingElse"), tmp_path)
    with pytest.raises(ValueError, match="programs together that wait"):
        table(together=True, library=old)
    assert table(library=old).plans == 1


def test_every_other_call_goes_the_slow_way(table: Callable[..., Any]) -> None:
    found = table(differentiable=True)
    x = torch.randn(2, 3)
    others: list[tuple[Any, ...]] = [
        (x, 0.25), (x, 1), (x, True), (x, None), (x.double(), 0.5), (torch.randn(3, 2), 0.5),
        (torch.randn(3, 2).t(), 0.5), (torch.randn(7)[1:].view(2, 3), 0.5), (x,), (x, 0.5, 0.5), (x, "0.5"),
        (x.requires_grad_(), 0.5), (torch.empty(2, 3, device="meta"), 0.5), (1.0, 0.5),
    ]  # fmt: skip
    for given in others:
        assert found(*given) == "slow", given
    with torch.no_grad():
        assert found(x, 0.5) != "slow"
    assert found(x.detach(), s=0.5) == "slow"
    assert torch.vmap(lambda row: torch.zeros(()) if found(x.detach(), 0.5) == "slow" else row.sum())(x).sum() == 0
    assert found.hit(x, 0.5) is NotImplemented


def test_a_refused_launch_is_an_error_that_says_why(table: Callable[..., Any]) -> None:
    found = table()
    x = torch.randn(4)
    step = Step(function=0, grid=(1, 1, 1), threads=32, offsets=(), data=b"")
    found.add(found.key(x), (), (step.as_tuple(),), 3, (), None)
    with pytest.raises(RuntimeError, match=r"an illegal memory access was encountered \(error 700\)"):
        found(x)


def test_many_plans_are_kept_apart_and_let_go(table: Callable[..., Any]) -> None:
    found = table()
    step = Step(fill=True, patches=((0, 1, 0),), value=0, width=1, items=4)
    for n in range(1, 100):
        x = torch.zeros(n)
        bits = struct.unpack("<I", struct.pack("<f", float(n)))[0]
        fill = Step(fill=True, patches=step.patches, value=bits, width=4, items=n)
        found.add(found.key(x), (((n,), (1,), torch.float32),), (fill.as_tuple(),), 0, ((0, None, None, None),), None)
    assert all(found(torch.randn(n)).tolist() == [float(n)] * n for n in range(1, 100))
    found.clear()
    assert found.plans == 0 and found(torch.zeros(3)) == "slow"
    del found
    gc.collect()


def test_a_call_of_a_whole_network_has_hundreds_of_tensors(table: Callable[..., Any]) -> None:
    found, many = table(), 700
    args = [torch.zeros(1 + n % 3, 2) for n in range(many)]
    makes = (((1,), (1,), torch.float32),) * many
    fills = tuple(
        Step(fill=True, patches=((0, many + n, 0),), value=n, width=4, items=1).as_tuple() for n in range(many)
    )  # fmt: skip
    found.add(found.key(*args), makes, fills, 2, ((many - 1, None, None, None), (0, None, None, None)), None)
    last, first = found(*args)
    assert (last.view(torch.int32).item(), first.view(torch.int32).item()) == (many - 1, 0)
    assert found.key(*args * 4) is None and found(*args * 4) == "slow"


def test_a_plan_of_more_than_a_table_holds_leaves_the_call_as_it_is(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(lambda *args: None, device="cpu", library=str(driver))
    made = Recording((((1,), (1,), torch.float32),) * 3000, (), 3, ())
    monkeypatch.setattr(runtime, "watched", lambda function, args: (function(*args), made, None))
    x = torch.ones(2)
    for _ in range(4):
        assert launcher.run(torch.neg, x).equal(-x)
    assert launcher.notes[torch.neg] == "too many tensors"


def test_a_function_that_cannot_be_repeated_runs_as_it_is(driver: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    launcher = Launcher(lambda *args: None, device="cpu", library=str(driver))
    x = torch.randn(3)
    assert launcher.run(function, x).equal(x.relu())
    # where Triton has no driver nothing can be watched; where it has one, relu is no launch of Triton's
    assert function in launcher.notes
    with pytest.raises((Refused, Unavailable)):
        watched(function, (x,))
    with pytest.raises(Unavailable):
        Launcher(function, library="libnowhere.so")


TWO_PLUS = """
import torch

def reference(x):
    return 3.0 * x + 2.0

def inputs():
    return torch.ones(2, 3)
"""


def _best(origin: Author = Author.RULES) -> BestKernel:
    """A kernel that the launcher may repeat, had it been verified on a GPU: its host function runs on any device."""
    source = Source(dsl="triton", files={"kernel.py": "def kernel(x):\n    return 3.0 * x + 2.0\n"}, origin=origin)
    verdict = Verdict(passed=True, stage="fast", reason="Right.")
    best = Best(turn=None, number=3, candidate=Candidate(id="c", source=source), verdict=verdict)  # type: ignore[arg-type]
    task = load_task(TWO_PLUS, "two_plus")
    return BestKernel(best, "two_plus", Backend.CUDA, lambda: task)


@pytest.fixture
def here(driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The small library in the place of the CUDA driver, for every launcher that is made."""
    from kernellab.session import kernel

    kernel._table.cache_clear()
    monkeypatch.setattr(runtime, "Launcher", partial(Launcher, device="cpu", library=str(driver)))
    yield
    kernel._table.cache_clear()


def _plan(table: Any, driver: Path, x: torch.Tensor) -> None:
    """``table`` does 3 x + 2 from C for tensors like ``x``."""
    function = ctypes.cast(ctypes.CDLL(str(driver)).scaled, ctypes.c_void_p).value
    assert function is not None
    two = struct.unpack("<I", struct.pack("<f", 2.0))[0]
    fill = Step(fill=True, patches=((0, 1, 0),), value=two, width=4, items=x.numel())
    data = bytes(16) + struct.pack("<f", 3.0)
    launch = Step(function=function, grid=(x.numel(), 1, 1), threads=32, data=data, offsets=(0, 8, 16),
                  patches=((0, 0, 0), (8, 1, 0)))  # fmt: skip
    made = ((tuple(x.shape), x.stride(), torch.float32),)
    table.add(table.key(x), made, (fill.as_tuple(), launch.as_tuple()), 0, ((0, None, None, None),), None)


def test_a_sessions_best_goes_through_one_launcher_however_often_it_is_asked_for(here: None, driver: Path) -> None:
    x = torch.randn(2, 3)
    first, again = _best(), _best()
    # no driver of Triton's is here, so nothing was watched: the host function ran
    assert first(x).equal(3.0 * x + 2.0) and again(x).equal(3.0 * x + 2.0)
    assert first.quick is again.quick and first.quick is not first.function
    _plan(again.quick, driver, x)
    torch.testing.assert_close(first(x), 3.0 * x + 2.0)
    assert first.quick.hits == 1
    with pytest.raises(SessionError, match="argument"):
        first(x, x)


def test_an_installed_kernel_is_launched_from_c(here: None, driver: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 3.0 * x + 2.0

    x, model, best = torch.randn(64, 48), Model(), _best()
    found = profile(model, x, device="cpu")
    swap = install(found, next(row for row in found.rows if row.words == "mul + add"), best, measure=False)
    assert swap.label == "two_plus"
    _plan(best.quick, driver, x)
    before = best.quick.hits
    torch.testing.assert_close(model(x), 3.0 * x + 2.0)
    assert best.quick.hits == before + 1
    leaf = x.clone().requires_grad_()
    model(leaf).sum().backward()
    assert leaf.grad is not None and leaf.grad.eq(3.0).all()
    uninstall(model)


def test_without_a_driver_the_kernels_own_function_is_what_is_called() -> None:
    from kernellab.session import kernel

    kernel._table.cache_clear()
    best, x = _best(), torch.randn(2, 3)
    if not torch.cuda.is_available():
        assert best.quick is best.function
    assert best(x).equal(3.0 * x + 2.0)
    kernel._table.cache_clear()
    with pytest.raises(SessionError, match="written by a model"):
        _best(Author.MODEL)(x)


def test_what_a_first_call_does_is_recorded_without_torchs_compiler() -> None:
    """Its import was 1.3 s of the first call of an exported Triton operator."""
    script = (
        "import sys, torch\n"
        "from kernellab.export.runtime import recording\n"
        "watch = recording._Watch()\n"
        "with recording._Ops(watch):\n"
        "    torch.ones(3)\n"
        "print(len(watch.made), len(watch.events), 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "False"]


def launched_with_scratch(driver: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> tuple[Any, Any, Any]:
    """What was noted of a launch whose scratch memory ``make`` makes, its argument and its result."""
    import triton  # type: ignore[import-untyped]
    from triton.backends.nvidia.driver import CudaLauncher  # type: ignore[import-untyped]
    from triton.runtime._allocation import NullAllocator  # type: ignore[import-untyped]

    class OnTheHost(CudaLauncher):  # type: ignore[misc]
        """Triton's launcher of a kernel with 4 bytes of scratch a program, up to the launch."""

        num_ctas, global_scratch_size, global_scratch_align, profile_scratch_size, profile_scratch_align = 1, 4, 8, 0, 1
        launch_cooperative_grid = launch_pdl = gsan_enabled = False
        arg_annotations = kernel_signature = None

        def __init__(self) -> None:
            pass

        def launch(self, *args: Any) -> None:
            pass

    active = SimpleNamespace(launcher_cls=OnTheHost, allocate_default_profile_scratch=None)
    monkeypatch.setattr(triton.runtime.driver, "_active", active)
    function = ctypes.cast(ctypes.CDLL(str(driver)).by_scratch, ctypes.c_void_p).value
    triton.set_allocator(lambda size, *_: make(size, dtype=torch.int8))
    try:
        x, watch = torch.arange(6.0), recording._Watch()
        with recording._launches(watch), recording._Ops(watch):
            made = torch.empty(6)
            OnTheHost()(6, 1, 1, 0, function, None, None, None, None, x, made)
    finally:
        triton.set_allocator(NullAllocator())
    metadata = SimpleNamespace(num_warps=1, shared=0, num_ctas=1)
    watch.events[0].kernel = SimpleNamespace(
        metadata=metadata, src=SimpleNamespace(signature={"x": "*fp32", "y": "*fp32"})
    )
    return watch, x, made


def test_scratch_that_an_allocator_fills_is_not_replayed(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, x, made = launched_with_scratch(driver, monkeypatch, torch.zeros)
    with pytest.raises(recording.Refused, match=r"torch\.empty"):
        recording._recorded(watch, (x,), made)


def test_memory_that_triton_gives_a_kernel_is_made_in_each_call(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors that a kernel makes lie in such memory: a decode's call was launched by Triton for its sake."""
    watch, x, made = launched_with_scratch(driver, monkeypatch, torch.empty)
    seen = recording._recorded(watch, (x,), made)
    launcher = Launcher(lambda *args: "slow", device="cpu", library=str(driver))
    steps = tuple(step.as_tuple() for step in seen.steps)
    launcher.table.add(launcher.table.key(x), seen.makes, steps, seen.container, seen.outs, x)
    again = torch.randn(6)
    assert torch.equal(launcher.table(again), again) and launcher.table.hits == 1
