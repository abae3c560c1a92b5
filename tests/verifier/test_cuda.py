"""What of the judge's work on CUDA devices needs no device."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.conditions import LaunchBound, OtherClock, of
from kernellab.sandbox.caps import CAPS
from kernellab.task import load_task
from kernellab.verifier.cases import device
from kernellab.verifier.cases.judged import Comparison
from kernellab.verifier.compare import chunked as pieces_module
from kernellab.verifier.compare.chunked import compare_pieces
from kernellab.verifier.compare.compare import Limits, Reference, compare
from kernellab.verifier.cuda import batch as goes_cuda
from kernellab.verifier.cuda import driver as cuda_driver
from kernellab.verifier.cuda import pool as cuda_pool
from kernellab.verifier.cuda import timed as timed_cuda
from kernellab.verifier.cuda.clocks import (
    Reading,
    Tails,
    calls_at_a_go,
    clock_of,
    disagreement,
    handshake,
    left_running,
)
from kernellab.verifier.cuda.faults import device_fault
from kernellab.verifier.cuda.memory import DeviceArena, Segment, Window, flush_words, output_bytes, withhold
from kernellab.verifier.cuda.reports import TimedCalls, Traced
from kernellab.verifier.cuda.trace import Activity, Profiled, busy, framed, is_library, summary, without_frame
from kernellab.verifier.cuda.worker import DeviceWorker
from kernellab.verifier.cuda.worker_client import DeviceAccess
from kernellab.verifier.protocol.control import DONE, READY, Answer, Control, Output
from kernellab.verifier.protocol.memory import equal, lay_out
from kernellab.verifier.protocol.process_memory import Unreadable
from kernellab.verifier.protocol.rules import DEVICE
from kernellab.verifier.timing.contents import Contents
from kernellab.verifier.timing.sides import Side, WrongWhenTimed

LIMITS = Limits.of("float32")
HEADER = Path("/usr/local/cuda/include/cuda.h")


# -- clocks ------------------------------------------------------------------------------------------------------------

US = 1e-6


def reading(judge: float, events: float, device: float | None, calls: int = 1, spread: float = 15.0) -> Reading:
    """Clocks in us a call, behind a handshake of 200 us."""
    gross = judge * calls + 200
    return Reading(
        "mine", judge * US, gross * US, spread * US, events * US, None if device is None else device * US, calls
    )


def test_short_calls_are_many_at_a_go_and_long_ones_alone() -> None:
    free = 100 << 30
    assert calls_at_a_go(10e-6, 12e-6, 2 << 20, free) == 64
    assert calls_at_a_go(100e-6, 120e-6, 2 << 20, free) == 20
    assert calls_at_a_go(3e-3, 3e-3, 2 << 20, free) == 1
    # a side that takes no time at all
    assert calls_at_a_go(0.0, 1e-6, 2 << 20, free) == 64


def test_calls_at_a_go_fit_in_memory_and_in_time() -> None:
    free = 100 << 30
    assert calls_at_a_go(68e-6, 70e-6, 256 << 20, free) == 30
    assert calls_at_a_go(68e-6, 70e-6, 512 << 20, free) == 16
    assert calls_at_a_go(10e-6, 12e-6, 32 << 20, 8 * 100 << 20) == 3
    assert calls_at_a_go(10e-6, 12e-6, 12 << 30, free) == 1
    # a candidate that is slow, or says so, does not make the baseline's calls too few to be seen
    assert calls_at_a_go(10e-6, 1e-3, 2 << 20, free) == 50
    assert calls_at_a_go(10e-6, 1.0, 2 << 20, free) == 1


def test_a_handshake_is_the_median_and_differs_by_what_lies_between_the_tenths() -> None:
    cost, spread = handshake([(200 + i) * US for i in range(20)])
    assert cost == pytest.approx(210 * US) and spread == pytest.approx(15 * US)
    assert handshake([5 * US]) == (5 * US, 0.0)


def test_clocks_that_agree_say_nothing() -> None:
    tails = Tails(167e-6, 165e-6)
    assert disagreement(reading(11.0, 11.2, 9.5, 64), tails) == ""
    assert disagreement(reading(3030, 3040, 3020), Tails(195e-6, 165e-6)) == ""
    # launches take the host longer than the device works
    assert disagreement(reading(352, 410, 115), tails) == ""
    assert disagreement(reading(18.0, 17.5, 2.5, 64), None) == ""
    assert disagreement(reading(30, 33, None), None) == ""
    # nor does what the host does after the last launch, which the judge's clock counts
    assert disagreement(reading(58.4, 47, 2, 64, spread=270), None) == ""


@pytest.mark.parametrize(
    ("clocks", "tails", "word"),
    [
        (reading(20, 20, 18), Tails(330e-6, 165e-6), "after the answer"),
        # what may be left running does not grow with the call beyond a slice of the device's time
        (reading(3000, 3000, 3000), Tails(370e-6, 165e-6), "after the answer"),
        (reading(400, 200, 390), None, "judge's clock says"),
        # too short for the judge's clock, so that another would give the figure
        (reading(200, 5, 8, spread=60), None, "judge's clock says"),
        (reading(11, 2, 9.5, 64), None, "judge's clock says"),
        (reading(70, 400, 68), None, "events say"),
        (reading(400, 395, 900), None, "the device was busy"),
        (reading(6, 6, 8.5, 64), None, "of which its stream's events saw"),
    ],
)
def test_each_clock_that_contradicts_is_named(clocks: Reading, tails: Tails | None, word: str) -> None:
    assert word in disagreement(clocks, tails)


def test_what_a_long_go_leaves_after_its_answer_is_counted_and_refuses_nothing() -> None:
    """As on an H200: 64 calls of 20 launches each at a go, after which the judge's kernel took 61 us longer."""
    late = Tails(226e-6, 165e-6)
    assert disagreement(reading(400, 420, 115, 64), late) == ""
    assert "after the answer" in disagreement(reading(11, 11, 9.5, 32), late)
    assert left_running(late) == pytest.approx(31e-6)
    # what honest workers differ by is nobody's work
    assert left_running(Tails(190e-6, 165e-6)) == left_running(Tails(150e-6, 165e-6)) == left_running(None) == 0.0


def test_what_a_busy_machine_adds_to_all_sides_contradicts_nothing() -> None:
    """As on four H200 of one busy host: all sides' answers come 350 us late, and no stream has seen that."""
    ours, theirs = reading(1150, 783, 605, spread=302), reading(1170, 830, 816, spread=302)
    assert "judge's clock says" in disagreement(ours, None)
    assert disagreement(ours, None, [theirs]) == ""
    assert "judge's clock says" in disagreement(ours, None, [reading(830, 825, 816, spread=302)])


def test_the_judge_s_clock_gives_the_figure_where_it_can() -> None:
    assert clock_of([reading(11, 11.2, 9.5, 64), reading(13, 13, 12, 64)]) == ("judge", "")
    assert clock_of([reading(69, 70, 68, 4), reading(3030, 3040, None)]) == ("judge", "")


def test_what_cannot_be_told_from_a_handshake_is_no_time() -> None:
    """As on an H200: 16 MiB in 9.5 us of the device, a handshake that hides all of it, and no 1 us given as a time."""
    for judge in (-5.0, 0.0, 1.0, 60.0):
        clock, why = clock_of([reading(judge, 12.4, 9.5)])
        assert clock == "device" and "handshake that varies" in why
    # one side that is too short takes the clock from all; where the device has none, events are left
    assert clock_of([reading(400, 400, 390), reading(20, 12, 9.5)])[0] == "device"
    assert clock_of([reading(400, 400, 390), reading(20, 12, None)])[0] == "events"


def test_a_figure_is_never_below_what_the_device_worked() -> None:
    clock, why = clock_of([reading(70, 82, 80.3, 13)])
    assert clock == "device" and "busy for 80.3 us" in why
    assert clock_of([reading(9.2, 12, 9.5, 64)])[0] == "judge"
    assert clock_of([reading(8.0, 12, 9.5, 64)])[0] == "device"


def test_a_ranking_tells_kernels_apart_and_not_launches() -> None:
    """As on an H200: a norm of 4 us that an ordinary Triton call launches in 43 us. All candidates of a task are told
    apart by the same clock, be launches most of a call or not."""
    ours, eager = reading(43, 44, 4, 64), reading(170, 171, 20, 64)
    assert clock_of([ours, eager]) == ("judge", "")
    clock, why = clock_of([ours, eager], ranking=True)
    assert clock == "device" and "launches" in why
    assert clock_of([reading(43, 44, 40, 64), reading(170, 171, 160, 64)], ranking=True)[0] == "device"
    assert clock_of([ours, reading(170, 171, None, 64)], ranking=True) == ("judge", "")


def test_a_call_that_is_mostly_launches_is_called_so() -> None:
    assert reading(18, 18, 2.5, 64).launch_bound and reading(352, 410, 115).launch_bound
    assert not reading(11, 11, 9.5, 64).launch_bound and not reading(11, 11, None, 64).launch_bound


# -- the order of streams ----------------------------------------------------------------------------------------------

SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<unsigned char>>"
MS = 1e-3


def traced(start: float, *own: tuple[str, float, float, int]) -> list[Activity]:
    """A call behind a delay of 1 ms at ``start`` ms and before a marker, on stream 7, in ms."""
    end = max([1.0, *(t + n for _, t, n, stream in own if stream == 7)])
    found = [(SPIN, 0.0, 1.0, 7), *own, ("marker", end + 0.01, 0.002, 7)]
    activities = [Activity(name, (start + t) * MS, n * MS, stream) for name, t, n, stream in found]
    return sorted(activities, key=lambda a: a.start)


def test_a_stream_that_waits_for_nobody_and_one_that_nobody_waits_for_are_named() -> None:
    joined = [Activity(SPIN, 0.0, 1.0, 7), Activity("side", 1.1, 0.5, 13), Activity("marker", 1.7, 0.1, 7)]
    events, unordered = without_frame(joined)
    assert events == [("side", 1.1, 0.5, 13)] and unordered == ""
    assert without_frame(traced(0, ("side", 0.1, 0.5, 13)))[1] == "side"
    assert without_frame(traced(0, ("side", 1.005, 0.5, 13)))[1] == "side"
    assert without_frame(traced(0, ("mine", 1.1, 0.5, 7))) == ([("mine", 1.1 * MS, 0.5 * MS, 7)], "")
    # the device's stamps of two streams differ by a little
    assert without_frame(traced(0, ("side", 0.9995, 0.005, 13)))[1] == ""


def test_one_call_that_is_out_of_order_is_enough() -> None:
    """Where launching takes longer than the delay, a side stream looks ordered; the next call's delay is longer."""
    side, marker = Activity("side", 1.02 * MS, 0.005 * MS, 13), Activity("marker", 1.1 * MS, 0.002 * MS, 7)
    late = [Activity(SPIN, 0.0, MS, 7), side, marker]
    assert framed(Profiled(late, [False]), False)[1:] == ("", True)
    both = [*late, Activity(FILL, 9 * MS, 0.05 * MS, 7), *traced(10, ("side", 0.2, 0.005, 13))]
    samples, unordered, unseen = framed(Profiled(both, [False, True]), True)
    assert [[a.name for a in s] for s in samples] == [["side"], ["side"]]
    assert (unordered, unseen) == ("side", False)


def test_each_call_s_activities_are_its_own() -> None:
    calls: list[Activity] = []
    for i in range(3):
        calls += [Activity(FILL, (10 * i - 1) * MS, 0.05 * MS, 7)] if i else []
        calls += traced(10 * i, ("mine", 1.0, 0.5, 7), ("side", 1.6, 0.25, 13), ("end", 1.9, 0.1, 7))
    samples, unordered, unseen = framed(Profiled(calls, [True] * 3), True)
    assert [[a.name for a in s] for s in samples] == [["mine", "side", "end"]] * 3
    assert [busy(s) for s in samples] == pytest.approx([0.85 * MS] * 3) and (unordered, unseen) == ("", False)
    # a delay more than there were calls is the candidate's own
    assert framed(Profiled(calls, [True] * 2), True)[:2] == ([], "spin_kernel")
    assert framed(Profiled([], []), True) == ([], "", False)  # there is no CUPTI, or another profiler holds it


# -- one go ------------------------------------------------------------------------------------------------------------


class Clock:
    """An event of the host, in place of a device's."""

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: Clock) -> float:
        return (other.at - self.at) * 1e3


def worker_of(function: Any) -> tuple[DeviceWorker, Control]:
    fd = Control.create()
    control = Control(fd)
    worker = DeviceWorker(None, control, os.eventfd(0), {"role": "candidate", "threads": 1, "device": "cpu"})
    worker.function, worker.tiny, worker.events = function, torch.zeros(1), (Clock(), Clock())
    worker._on_device = lambda tensor: tensor  # type: ignore[method-assign]
    os.close(fd)
    return worker, control


def given_at_once(worker: DeviceWorker, *given: Any) -> Any:
    """What ``_at_go`` returns when the go comes as soon as it is ready."""
    nonce = Control.nonce()

    def judge() -> None:
        assert os.eventfd_read(worker.done) == READY
        worker.control.go(nonce)

    thread = threading.Thread(target=judge)
    thread.start()
    outputs = worker._at_go(*given)
    thread.join()
    assert os.eventfd_read(worker.done) == DONE and worker.control.proves(nonce)
    return outputs


def test_a_go_covers_calls_on_arguments_of_their_own_and_tells_of_all_outputs() -> None:
    worker, control = worker_of(lambda x: (x * 2, x.sum(0)))
    sets = [(torch.full((3, 4), float(i)),) for i in range(5)]
    outputs = given_at_once(worker, sets, worker.function, True, False)
    answer = control.read(5)
    turn = TimedCalls(answer, 1.0, 0.0, 5)
    assert len(answer.outputs) == 10 and answer.seconds > 0
    for i, given in enumerate(outputs):
        assert torch.equal(given[0], sets[i][0] * 2)
        told = turn.outputs_of(i)
        assert [o.data for o in told] == [t.data_ptr() for t in given]
        assert [o.shape for o in told] == [(3, 4), (4,)]
        assert [o.storage for o in told] == [t.untyped_storage().data_ptr() for t in given]
    with pytest.raises(ValueError, match="10 outputs"):
        control.read(3)


def test_outputs_that_differ_from_the_first_call_s_are_told_in_full() -> None:
    base = torch.zeros(8, 8)
    worker, control = worker_of(lambda n: base[n:, : 4 + n])
    outputs = given_at_once(worker, [(0,), (1,), (1,)], worker.function, False, True)
    for o, (t,) in zip(control.read(3).outputs, outputs, strict=True):
        assert (o.data, o.shape, o.strides) == (t.data_ptr(), tuple(t.shape), t.stride())
        assert o.storage == base.data_ptr()


def test_the_largest_go_s_outputs_leave_room_for_a_failure_s_words() -> None:
    control = Control(Control.create())
    most = DEVICE.go_calls * CAPS.outputs
    for i in range(most):
        control.write_output(i, 4096, 4096, 16, 0, (2, 2), (2, 1))
    control.write_done(most, 0.5)
    assert len(control.read(DEVICE.go_calls).outputs) == most
    control.write_error(1, "x" * 30_000)
    assert control.read().error == "x" * 30_000


def test_windows_of_one_arena_do_not_touch_each_other() -> None:
    args = [(torch.full((5, 7), float(i)), torch.arange(3) + i) for i in range(3)]
    layout = lay_out(args[0])
    arena = Host(3 * layout.size)
    windows = [Window(arena, i * layout.size, layout.size) for i in range(3)]
    for window, given in zip(windows, args, strict=True):
        window.write(layout, given)
    assert all(w.changed(a) is None and w.trespassed() is None for w, a in zip(windows, args, strict=True))
    views = windows[1].views()
    assert views[0] is not None
    views[0][0, 0] = 9.0
    assert windows[1].changed(args[1]) == 0 and windows[0].changed(args[0]) is None


def test_some_of_each_window_is_withheld_until_the_clock_runs() -> None:
    args = [(torch.randn(5, 7), torch.arange(3), 2.0) for _ in range(3)]
    layout = lay_out(args[0])
    arena = Host(3 * layout.size)
    windows = [Window(arena, i * layout.size, layout.size) for i in range(3)]
    for window, given in zip(windows, args, strict=True):
        window.write(layout, given)
    complete = withhold(arena.memory, windows, random.Random(3))
    assert [w.changed(a) for w, a in zip(windows, args, strict=True)] == [0, 0, 0]
    assert not any(torch.equal(w._views[1], a[1]) for w, a in zip(windows, args, strict=True))  # type: ignore[arg-type]
    complete()
    assert all(w.changed(a) is None and w.trespassed() is None for w, a in zip(windows, args, strict=True))


def test_a_flush_writes_twice_the_cache() -> None:
    assert flush_words(60 << 20) * 4 == 120 << 20


# -- contents ----------------------------------------------------------------------------------------------------------


def test_contents_are_new_in_every_place_and_stay_in_their_support() -> None:
    task = load_task("import torch\ndef reference(x, w):\n    return x * w\ndef inputs():\n"
                     "    return torch.rand(64, 33), torch.rand(33)\nSTATIC = ['w']\n", "scaled")  # fmt: skip
    base = (torch.rand(64, 33), torch.rand(33))
    contents = Contents(task, base, [True, True])
    one = contents.next(0)[0].clone()
    two = contents.next(0)[0]
    assert one.shape == base[0].shape and contents.next(1)[1] is base[1]
    assert float((one == base[0]).float().mean()) < 0.01 and float((one == two).float().mean()) < 0.01
    assert float(two.min()) >= 0.0 and float(two.max()) <= 1.0


# -- comparison in pieces ----------------------------------------------------------------------------------------------


def spoiled(kind: str, want: torch.Tensor) -> torch.Tensor:
    got = want.clone()
    if kind == "element":
        got[-1, 3, 5] += 10.0
    elif kind == "tile":
        got[0, :64, 64:128] *= 1 + 3e-4
    elif kind == "noise":
        got *= 1 + 1e-4 * torch.randn_like(got)
    elif kind == "nan":
        got[1, 2, 3] = float("nan")
    elif kind == "tau":
        got += 2e-6 * torch.randn_like(got)
    return got


@pytest.mark.parametrize("shape", [(3, 150, 131), (2, 64, 256), (2, 7, 300)])
@pytest.mark.parametrize("kind", ["right", "element", "tile", "noise", "nan", "tau"])
@pytest.mark.parametrize("doubled", [True, False])
def test_pieces_judge_as_the_whole_does(
    kind: str, shape: tuple[int, ...], doubled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces_module, "DEVICE", replace(DEVICE, piece_elements=1 << 13))
    torch.manual_seed(7)
    want = torch.randn(shape)
    reference = Reference(want, want.double() * (1 + 1e-8) if doubled else None)
    got = spoiled(kind, want)
    whole, error = compare(got, reference, LIMITS)
    parts, other = compare_pieces(got, reference, LIMITS)
    assert (whole is None) == (parts is None) == (kind == "right" or (whole is None and kind == "tau"))
    if whole is not None and parts is not None:
        assert (whole.rule, whole.message) == (parts.rule, parts.message)
        assert whole.wrong is not None and parts.wrong is not None
        # where a place is not finite the whole rule also marks elements that are far off
        assert bool((whole.wrong & parts.wrong == parts.wrong).all())
        assert kind == "nan" or torch.equal(whole.wrong, parts.wrong)
    assert error == pytest.approx(other, rel=1e-6, nan_ok=True) or whole is None


def test_a_large_output_goes_through_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernellab.verifier.compare import compare as compare_module

    monkeypatch.setattr(compare_module, "DEVICE", replace(DEVICE, whole_elements=1000))
    want = torch.randn(40, 50)
    got = want.clone()
    got[7, 8] = 30.0
    mismatch, _ = compare(got, Reference(want, want.double()), LIMITS)
    assert mismatch is not None and mismatch.rule == "elements"
    assert mismatch.wrong is not None and mismatch.wrong[7, 8] and int(mismatch.wrong.sum()) == 1
    assert compare(want, Reference(want, None), LIMITS)[0] is None


def test_equal_looks_at_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernellab.verifier.protocol import memory

    monkeypatch.setattr(memory, "_PIECE", 64)
    a = torch.arange(1000).reshape(50, 20)
    b = a.clone()
    assert equal(a, b)
    b[49, 19] = 0
    assert not equal(a, b) and not equal(a, b[:49])


# -- memory ------------------------------------------------------------------------------------------------------------


def output(data: int, shape: tuple[int, ...], strides: tuple[int, ...], storage: int, size: int) -> Output:
    return Output(data, storage, size, "float32", shape, strides)


def test_an_output_must_lie_in_its_storage() -> None:
    assert output_bytes(output(4096, (2, 3), (3, 1), 4096, 24)) == 24
    assert output_bytes(output(4096, (0, 3), (3, 1), 4096, 0)) == 0
    for wrong in (output(4096, (2, 3), (4, 1), 4096, 24), output(4098, (2,), (1,), 4096, 24)):
        with pytest.raises(Unreadable):
            output_bytes(wrong)


def test_a_segment_holds_what_is_wholly_inside() -> None:
    segment = Segment(1 << 20, 2 << 20, cuda_driver.Mapping(0, 2 << 20, 0, True))
    assert segment.holds(1 << 20, 2 << 20)
    assert not segment.holds(1 << 20, (2 << 20) + 1) and not segment.holds((1 << 20) - 1, 1)


@pytest.mark.skipif(not (shutil.which("g++") and HEADER.exists()), reason="needs g++ and CUDA's headers")
def test_the_driver_s_structures_are_those_of_the_header(tmp_path: Path) -> None:
    (tmp_path / "sizes.cpp").write_text(
        "#include <cuda.h>\n#include <cstddef>\n#include <cstdio>\n"
        'int main() { printf("%zu %zu %zu %zu %zu %zu", sizeof(CUmemAllocationProp),'
        " offsetof(CUmemAllocationProp, location), offsetof(CUmemAllocationProp, win32HandleMetaData),"
        " offsetof(CUmemAllocationProp, allocFlags), sizeof(CUmemAccessDesc), offsetof(CUmemAccessDesc, flags)); }\n"
    )
    program = str(tmp_path / "sizes")
    subprocess.run(["g++", f"-I{HEADER.parent}", str(tmp_path / "sizes.cpp"), "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    prop, access = cuda_driver.AllocationProperties, cuda_driver.Access
    ours = (ctypes.sizeof(prop), prop.location.offset, prop.win32.offset, prop.flags.offset,
            ctypes.sizeof(access), access.flags.offset)  # fmt: skip
    assert said == " ".join(map(str, ours))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_allocator_builds_once_and_gives_nothing_without_a_driver(tmp_path: Path) -> None:
    library = cuda_pool.build(tmp_path)
    assert library is not None and cuda_pool.build(tmp_path) == library
    loaded = ctypes.CDLL(str(library))
    loaded.kernellab_segments.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    table = (cuda_pool.Segment * 4)()
    assert loaded.kernellab_segments(0, 4, ctypes.byref(table)) == 0
    loaded.kernellab_alloc.restype = ctypes.c_void_p
    loaded.kernellab_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    assert loaded.kernellab_alloc(0, 0, None) is None


_DRIVER = """
#include <cstddef>
#include <fcntl.h>
extern "C" {
int live = 0;
static unsigned long long next = 1;
int cuMemGetAllocationGranularity(size_t* n, const void*, int) { *n = 2 << 20; return 0; }
int cuMemCreate(unsigned long long* handle, size_t, const void*, unsigned long long) {
  live++;
  *handle = next++;
  return 0;
}
int cuMemAddressReserve(unsigned long long* p, size_t, size_t, unsigned long long, unsigned long long) {
  *p = next << 24;
  return 0;
}
int cuMemMap(unsigned long long, size_t, size_t, unsigned long long, unsigned long long) { return 0; }
int cuMemSetAccess(unsigned long long, size_t, const void*, size_t) { return 0; }
int cuMemUnmap(unsigned long long, size_t) { return 0; }
int cuMemAddressFree(unsigned long long, size_t) { return 0; }
int cuMemRelease(unsigned long long) { live--; return 0; }
int cuMemExportToShareableHandle(void* fd, unsigned long long, int, unsigned long long) {
  *static_cast<int*>(fd) = open("/dev/null", O_RDONLY);
  return 0;
}
}
"""
_CHURN = """
import ctypes, os, sys
from kernellab.verifier.cuda.pool import Pool
driver = ctypes.CDLL(sys.argv[1])
pool = Pool.__new__(Pool)
pool.library = library = ctypes.CDLL(sys.argv[2])
library.kernellab_alloc.restype = ctypes.c_void_p
library.kernellab_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.kernellab_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
for _ in range(5000):
    library.kernellab_free(library.kernellab_alloc(1, 0, None), 1, 0, None)
kept = library.kernellab_alloc(1, 0, None)
segments = pool.segments()
assert ctypes.c_int.in_dll(driver, "live").value == 1
assert len(segments) == 5001 and [s.address for s in segments if s.live] == [kept]
assert [s.address for s in pool.segments(5000)] == [kept] and segments[-1].fd >= 0
places = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
descriptors = [os.readlink(place) for place in places if os.path.exists(place)]
assert descriptors.count("/dev/null") <= 2, descriptors
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_allocator_frees_each_piece_and_its_descriptor_however_many_there_were(tmp_path: Path) -> None:
    """An open descriptor keeps physical memory; 5,001 pieces are more than are read in one call."""
    (tmp_path / "driver.cpp").write_text(_DRIVER)
    driver, library = tmp_path / "libcuda.so.1", cuda_pool.build(tmp_path)
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["g++", *flags, str(tmp_path / "driver.cpp"), "-o", str(driver)], check=True)
    command = [sys.executable, "-c", _CHURN, str(driver), str(library)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- own code and faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AbsFunctor<float>>(int)", True),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(...)", True),
        ("triton_poi_fused_relu_0", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", False),
        ("Memcpy DtoD (Device -> Device)", False),
        ("void at::native::elementwise_kernel<at::native::direct_copy_kernel_cuda(...)>", False),
        ("matmul_kernel", False),
        ("my_softmax", False),
    ],
)
def test_kernels_of_libraries_are_known_by_name(name: str, library: bool) -> None:
    assert is_library(name) is library


def test_what_the_candidate_defines_is_its_own_whatever_its_name() -> None:
    assert not is_library("triton_poi_mine", frozenset({"triton_poi_mine"}))


def test_the_share_leaves_fills_and_copies_out() -> None:
    found = summary([
        Activity("mine", 1.0, 0.3, 7), Activity("Memset (Device)", 1.4, 5.0, 7),
        Activity("ampere_sgemm_128x64_nn", 6.5, 0.1, 7),
    ])  # fmt: skip
    assert found["total"] == pytest.approx(0.4) and found["library"] == {"ampere_sgemm_128x64_nn": 0.1}
    assert found["busy"] == pytest.approx(5.4) and found["kernels"]["mine"] == 1


def test_each_fault_of_the_device_has_one_name() -> None:
    assert device_fault("AcceleratorError: CUDA error: an illegal memory access was encountered") == (
        "crash", "reads or writes memory that is not its own (illegal memory access)",
    )  # fmt: skip
    assert (device_fault("OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB") or ("", ""))[0] == "memory"
    assert (device_fault("RuntimeError: CUDA error: device-side assert triggered") or ("", ""))[0] == "crash"
    assert device_fault("ValueError: the illegal memory access was mine") is None


# -- precision ---------------------------------------------------------------------------------------------------------

CONV = """
import torch
def reference(x, w):
    return torch.nn.functional.conv2d(x, w)
def inputs():
    return torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
"""


def test_a_convolution_is_of_tf32_s_class_on_a_device_and_a_product_is_not() -> None:
    conv = load_task(CONV, "conv")
    strict = load_task(CONV + "PRECISION = {'conv': 'ieee'}\n", "conv_ieee")
    product = load_task("import torch\ndef reference(a, b):\n    return a @ b\ndef inputs():\n"
                        "    return torch.randn(4, 5), torch.randn(5, 6)\n", "product")  # fmt: skip
    assert not device.runs_tf32(conv)
    with device.on("cuda"):
        assert device.runs_tf32(conv) and not device.runs_tf32(strict) and not device.runs_tf32(product)
    assert device.current() == "cpu"


# -- a whole run, on a device that only keeps time ---------------------------------------------------------------------


class Host(DeviceArena):
    """An arena in this process's memory."""

    device = "cpu"

    def __init__(self, size: int) -> None:
        self.memory = torch.zeros(size, dtype=torch.uint8)
        self.size = size

    def close(self) -> None: ...

    def _flat(self, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
        size = count * torch.empty(0, dtype=dtype).element_size()
        return self.memory[offset : offset + size].view(dtype)


class Simulated(DeviceAccess):
    """Calls ``function`` here; a go takes ``cost`` and ``seconds`` a call, and noise, by a clock that is made up."""

    def __init__(self, function: Any, seconds: float, *, device: float | None = None, tail: float = 165e-6) -> None:
        self.function, self.took, self.tail = function, seconds, tail
        process: Any = SimpleNamespace(pid=-1, stop=lambda: None, gone=lambda: False, access=self)
        super().__init__(process)
        #: did the judge have the device at first?
        self.led: list[bool] = []
        self.traced = Traced([device] * 8 if device else [], device, launching=2e-6)
        self.random, self.results, self.goes = random.Random(1), [], []
        #: were contents of a go to be seen before it?
        self.early: list[bool] = []

    def attach(self, slot: int, arena: Any, *, writable: bool) -> None:
        self.arenas[slot] = arena

    def release(self, slot: int) -> None:
        self.arenas.pop(slot, None)

    def timed_calls(
        self, layout: Any, slot: int, deadline: float, prepare: Any, probe: Any, *, calls: int = 1, echo: bool = False,
        warm: bool = True, lead: Any = None,
    ) -> TimedCalls:  # fmt: skip
        self.led.append(lead is not None)
        before = self._lie_there(layout, slot, calls)
        prepare()()
        if not echo:
            after = self._lie_there(layout, slot, calls)
            self.early.append(any(torch.equal(x, y) for x in before for y in after))
        seconds = 195e-6 + self.random.uniform(-8e-6, 8e-6) + (0.0 if echo else calls * self.took)
        if not echo:
            self.goes.append(calls)
            self.results = [self.function(*w.views()) for w in self._windows(layout, slot, calls)]
        told = tuple(
            Output(i * 1 << 20, i * 1 << 20, t.nbytes, "float32", tuple(t.shape), t.stride())
            for i, t in enumerate(self.results)
        )
        return TimedCalls(Answer(0, told, calls * self.took, ""), seconds, self.tail, calls)

    def _windows(self, layout: Any, slot: int, calls: int) -> list[Window]:
        arena: Any = self.arenas[slot]
        windows = [Window(arena, i * layout.size, layout.size) for i in range(calls)]
        for window in windows:
            window._views = [window._flat(getattr(torch, p.dtype), p.span, p.offset).view(p.shape)
                             for p in layout.places]  # fmt: skip
        return windows

    def _lie_there(self, layout: Any, slot: int, calls: int) -> list[torch.Tensor]:
        return [w.views()[0].clone() for w in self._windows(layout, slot, calls)]

    def can_read(self, outputs: Any) -> bool:
        return True

    def read(self, output: Output) -> torch.Tensor:
        result: torch.Tensor = self.results[output.data >> 20]
        return result.clone()

    def trace(self, layout: Any, slot: int, deadline: float) -> dict[str, Any]:
        return {}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Any:
    task = load_task("import torch\ndef reference(x):\n    return torch.relu(x) * 2\ndef inputs():\n"
                     "    return (torch.randn(8, 16),)\n", "relu2")  # fmt: skip
    zeros = torch.zeros
    monkeypatch.setattr(goes_cuda, "DeviceArena", Host)
    monkeypatch.setattr(goes_cuda, "Flush", lambda: lambda: None)
    monkeypatch.setattr(goes_cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch, "zeros", lambda *a, device=None, **k: zeros(*a, **k))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (64 << 30, 80 << 30))

    def run(candidate: Simulated, eager: Simulated, budget: float = 0.3) -> timed_cuda.Result:
        other = Simulated(eager.function, eager.took, device=eager.traced.activity)
        sides = [Side("eager", eager.worker), Side("eager", other.worker)]
        return timed_cuda.measure(
            task,
            (torch.randn(8, 16),),
            Side("candidate", candidate.worker),
            sides,
            Comparison(task),
            budget=budget,
            deadline=5.0,
        )

    return run


def right(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


def median(side: Side) -> float:
    return sorted(side.seconds)[len(side.seconds) // 2]


@pytest.mark.parametrize(("took", "calls"), [(9.5e-6, 64), (80e-6, 26), (3e-3, 1)])
def test_a_known_time_is_found_again(timed: Any, took: float, calls: int) -> None:
    candidate = Simulated(right, took, device=took * 0.98)
    result = timed(candidate, Simulated(right, 1.5 * took, device=1.5 * took))
    assert median(result.candidate) == pytest.approx(took, rel=0.05)
    assert median(result.baselines[0]) / median(result.candidate) == pytest.approx(1.5, rel=0.05)
    assert not result.conditions and abs(candidate.goes[-1] - calls) <= 2
    assert result.checked == sum(candidate.goes[-len(result.candidate.seconds) :])


def test_what_a_candidate_is_timed_on_is_never_there_before_its_go(timed: Any) -> None:
    candidate, baseline = Simulated(right, 80e-6, device=79e-6), Simulated(right, 90e-6, device=89e-6)
    # time enough for the rounds that are wanted, on a busy machine too
    timed(candidate, baseline, budget=10.0)
    # the first goes, before contents are drawn, find the task's own
    assert len(candidate.early) > 20 and not any(candidate.early[2:])
    assert any(baseline.early), "what the candidate had is not written again for a baseline"


def test_a_slow_candidate_keeps_a_baseline_in_sight_or_the_device_s_clock_is_named(timed: Any) -> None:
    result = timed(Simulated(right, 1e-3, device=1e-3), Simulated(right, 10e-6, device=9e-6))
    assert median(result.baselines[0]) == pytest.approx(10e-6, rel=0.1) and not result.conditions
    result = timed(Simulated(right, 40e-3, device=39e-3), Simulated(right, 10e-6, device=9e-6))
    assert result.conditions == (OtherClock(clock="device"),) and "handshake that varies" in result.note
    assert (median(result.candidate), median(result.baselines[0])) == (39e-3, 9e-6)


@pytest.mark.parametrize(("launching", "led"), [(2e-6, True), (9e-6, False), (None, False)])
def test_launches_hide_behind_the_judge_s_kernel_only_where_they_hide_anyway(
    timed: Any, launching: float | None, led: bool
) -> None:
    candidate, eager = Simulated(right, 10e-6, device=9e-6), Simulated(right, 15e-6, device=14e-6)
    candidate.traced = replace(candidate.traced, launching=launching)
    timed(candidate, eager)
    assert candidate.led[-1] is eager.led[-1] is led and not candidate.led[0]


class Disturbed(Simulated):
    """Somebody else's calls are on the device during its first burst of traced calls."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.quiet = self.traced.activity or 0.0
        self.traced = replace(self.traced, activity=2 * self.quiet, samples=[2 * self.quiet] * 8)
        self.bursts = 0

    def trace(self, layout: Any, slot: int, deadline: float) -> dict[str, Any]:
        self.bursts += 1
        activity = self.quiet * (1 + 0.01 * self.bursts)
        self.traced = replace(self.traced, activity=activity, samples=[self.quiet] * 8)
        return {}


def test_traced_calls_that_others_disturbed_are_traced_again(timed: Any) -> None:
    candidate, eager = Disturbed(right, 3e-3, device=2.9e-3), Simulated(right, 4.5e-3, device=4.4e-3)
    result = timed(candidate, eager)
    assert candidate.bursts == 2 and not result.conditions
    assert median(result.baselines[0]) / median(result.candidate) == pytest.approx(1.5, rel=0.05)
    # by the device's clock the burst that was disturbed would be the figure
    candidate, eager = Disturbed(right, 40e-3, device=39e-3), Disturbed(right, 10e-6, device=9e-6)
    result = timed(candidate, eager)
    assert result.conditions == (OtherClock(clock="device"),)
    assert (median(result.candidate), median(result.baselines[0])) == (39e-3, 9e-6)
    assert 0 < result.noise < 0.03


def test_one_wrong_call_of_a_go_is_found(timed: Any) -> None:
    count = iter(range(10**6))

    def lazy(x: torch.Tensor) -> torch.Tensor:
        return right(x) * (1.0 if next(count) % 97 else 1.01)

    with pytest.raises(WrongWhenTimed):
        timed(Simulated(lazy, 10e-6, device=9e-6), Simulated(right, 10e-6, device=9e-6))


def test_a_result_of_another_call_of_the_go_is_wrong(timed: Any) -> None:
    kept: list[torch.Tensor] = []

    def memoised(x: torch.Tensor) -> torch.Tensor:
        kept[:] = kept or [right(x)]
        return kept[0]

    with pytest.raises(WrongWhenTimed):
        timed(Simulated(memoised, 10e-6, device=9e-6), Simulated(right, 10e-6, device=9e-6))


def test_a_go_ends_when_the_device_does_not_when_its_worker_says_so(timed: Any) -> None:
    eager = Simulated(right, 10e-6, device=9e-6)
    result = timed(Simulated(right, 400e-6, device=115e-6, tail=226e-6), eager)
    assert of(result.conditions, LaunchBound)
    early = timed(Simulated(right, 3e-3, device=3.1e-3, tail=315e-6), Simulated(right, 3e-3, device=3e-3))
    assert median(early.candidate) == pytest.approx(3e-3 + 120e-6, abs=15e-6) and "120 us of it counted" in early.note


def test_work_after_the_answer_and_streams_without_order_are_refused(timed: Any) -> None:
    eager = Simulated(right, 10e-6, device=9e-6)
    with pytest.raises(timed_cuda.Inconsistent, match="after the answer") as found:
        timed(Simulated(right, 10e-6, device=9e-6, tail=400e-6), eager)
    assert found.value.signature == "inconsistent-clocks"
    aside = Simulated(right, 10e-6, device=9e-6)
    aside.traced = replace(aside.traced, unordered="body")
    with pytest.raises(timed_cuda.Inconsistent, match="does not order") as found:
        timed(aside, eager)
    assert found.value.signature == "unordered-stream"
