"""Readers of texts that need no compiler, and counters."""

from __future__ import annotations

import pytest

from kernellab.errors import SessionError
from kernellab.lens.counters import preflight as permission
from kernellab.lens.counters import read
from kernellab.lens.counters.preflight import Preflight, preflight
from kernellab.lens.counters.read import count, counted, facts_of, rows, time_summary
from kernellab.lens.gpu.facts import static_shared
from kernellab.lens.read import llvm, mlir, ptx, sass
from kernellab.records import Source
from kernellab.records.counters import KernelCounters
from kernellab.task import load_task

LLVM = """define void @f() !dbg !6 {
  %1 = fadd float 1.0, 2.0, !dbg !13
  ret void
}
!1 = !DIFile(filename: "kernel.py", directory: "/tmp")
!6 = distinct !DISubprogram(name: "f", file: !1, line: 9, unit: !0)
!13 = !DILocation(line: 3, column: 1, scope: !20, inlinedAt: !14)
!14 = !DILocation(line: 13, column: 1, scope: !6)
!20 = distinct !DILexicalBlockFile(scope: !6, file: !21, discriminator: 0)
!21 = !DIFile(filename: "standard.py", directory: "/lib")
"""


def test_places_of_inlined_code_are_all_places_of_the_chain() -> None:
    found = llvm.rows(LLVM)
    assert [row.text for row in found][:2] == ["define void @f() {", "  %1 = fadd float 1.0, 2.0"]
    assert found[0].places == {("kernel.py", 9)}
    assert found[1].places == {("standard.py", 3), ("kernel.py", 13)}
    text = '%0 = tt.load %x : !tt.ptr<f32> loc("a (b".py":1:2)\n%1 = a.b %0 : f32 loc(#loc2)\n'
    text += '#loc1 = loc("k.py":4:1)\n#loc2 = loc(callsite("h.py":7:1 at #loc1))\n'
    assert mlir.rows(text)[1].text == "%1 = a.b %0 : f32"
    assert mlir.rows(text)[1].places == {("k.py", 4), ("h.py", 7)}
    lines = '//## File "/x/h.py", line 7 inlined at "/x/k.py", line 4\n//## File "/x/k.py", line 4\n'
    found = sass.rows(f"k:\n{lines}  /*0000*/  LDC R1, c[0x0] ;\n  /*0010*/  EXIT ;\n")
    assert [row.text for row in found] == ["k:", "    LDC R1, c[0x0]", "    EXIT"]
    assert found[1].places == found[2].places == {("h.py", 7), ("k.py", 4)}


def test_marks_within_an_inline_assembly_are_its_first() -> None:
    text = '\t.file 1 "/x/k.py"\n\t.loc 1 12 14\n\t// begin inline asm\n\t.loc 1 12 14\n\tmov.u32 %r1, 0;\n'
    text += "\t.loc 1 13 14\n\tmov.u32 %r2, 0;\n\t// end inline asm\n\t.loc 1 20 1\n\tret;\n"
    found = {row.text.strip(): row.places for row in ptx.rows(text)}
    assert found == {"mov.u32 %r1, 0;": {("k.py", 12)}, "mov.u32 %r2, 0;": {("k.py", 12)}, "ret;": {("k.py", 20)}}
    assert ".loc 1 13 14" not in ptx.relined(text) and ".loc 1 20 1" in ptx.relined(text)


def test_shared_memory_is_what_is_declared_with_a_size() -> None:
    text = (
        "\t.extern .shared .align 16 .b8 all[];\n\t.shared .align 4 .f32 part[32];\n\t.shared .align 1 .b8 one[16];\n"
    )
    assert static_shared(text) == 144


def recorded(*launches: dict[str, str]) -> str:
    """What ncu prints of some launches."""
    names = ["ID", "Kernel Name", *dict.fromkeys(name for launch in launches for name in launch if name != "name")]
    table = [names, [""] * len(names)]
    table += [[str(n), one["name"], *(one.get(x, "n/a") for x in names[2:])] for n, one in enumerate(launches)]
    return "==PROF== Connected\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in table)


STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
#: a copy bound by memory
SCALED = {
    "name": "scaled(float *)", "gpu__time_duration.sum": "50,000",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "91.2",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "20.1",
    "dram__bytes_read.sum": "134217728", "dram__bytes_write.sum": "134,217,728",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "43.7",
    "launch__registers_per_thread": "96", "launch__occupancy_limit_registers": "5",
    "launch__occupancy_limit_shared_mem": "32", "launch__occupancy_limit_warps": "16",
    STALLED.format("barrier"): "7.5", STALLED.format("wait"): "1.25",
}  # fmt: skip
#: a short launch after it
SMALL = {"name": "finish", "gpu__time_duration.sum": "2000", STALLED.format("long_scoreboard"): "30"}


def test_a_table_of_ncu_becomes_facts() -> None:
    (row,) = rows(recorded(SCALED))
    found = {fact.name: fact for fact in facts_of(counted(row))}
    assert found["time under ncu"].value == "50.0 us" and found["busy"].value == "91 %"
    assert "memory bound it" in found["busy"].sentence
    assert "5369 GB/s" in found["memory traffic"].sentence
    assert "held 44 % of its warps" in found["occupancy reached"].sentence
    assert "registers limit the blocks of an SM (96 registers a thread)" in found["occupancy reached"].sentence
    assert "at a barrier" in found["waits for"].sentence and found["waits for"].kernel == "scaled(float *)"
    assert list(rows("no table")) == []


def test_counters_are_told_in_three_sentences_about_the_launch_that_takes_the_time() -> None:
    launches = [counted(row) for row in rows(recorded(SMALL, SCALED))]
    bandwidth, occupancy, stall = time_summary(launches)
    assert "GPU kernel scaled(float *), 50.0 us under ncu, 96% of the 2 launches' time." in bandwidth
    assert "Memory runs at 91 % of its peak" in bandwidth and "5,369 GB/s" in bandwidth
    assert "44 % of its warps" in occupancy and "the other warps at a barrier: 7.5 cycles" in stall
    # what this GPU does not count is left out
    (only,) = time_summary([counted({"Kernel Name": "k", "gpu__time_duration.sum": "1000"})])
    assert only == "GPU kernel k, 1.0 us under ncu."
    assert time_summary([]) == [] and time_summary([counted({"Kernel Name": "k"})]) == []


def test_tensor_cores_that_bound_a_kernel_and_time_outside_the_kernels_come_last() -> None:
    product = KernelCounters(
        kernel="matmul", us=27.9, memory=13, sm=69, tensor=77.4, occupancy=12, stalls={"long_scoreboard": 2.8}
    )
    assert time_summary([product])[-1] == "The tensor cores worked in 77 % of the cycles; they bound it."
    idle = product.model_copy(update={"tensor": 20.0})
    assert time_summary([idle])[-1].startswith("A warp waits longest for data from memory")
    assert time_summary([idle], call_ms=0.030)[-1].startswith("A warp waits longest")
    *_, last = time_summary([idle, idle], call_ms=0.2)
    assert last == "A call takes 200.0 us, its kernels 55.8 us: most goes to the host's code and the launches."


def test_the_preflight_says_why_counters_cannot_be_read_and_how_they_could(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "has_cuda_device", lambda: True)
    monkeypatch.setattr(permission, "ncu_path", lambda: None)
    assert "not installed" in preflight().reason and "nsight-compute" in preflight().remedy
    monkeypatch.setattr(permission, "ncu_path", lambda: "/usr/bin/ncu")
    monkeypatch.setattr(permission, "_restricted", lambda: True)
    monkeypatch.setattr(permission, "_is_admin", lambda: False)
    assert "administrators" in preflight().reason and "--cap-add=SYS_ADMIN" in preflight().remedy
    monkeypatch.setattr(permission, "_is_admin", lambda: True)
    assert preflight() == Preflight(ncu="/usr/bin/ncu")


def test_counters_run_outside_the_sandbox_only_on_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "preflight", lambda: Preflight(ncu="/usr/bin/ncu"))
    text = "import torch\ndef reference(x: torch.Tensor): return x\ndef inputs(): return torch.randn(4)\n"
    with pytest.raises(SessionError, match="own rights"):
        count(Source(dsl="triton", files={"kernel.py": ""}), load_task(text, "same"))
