"""The machine's facts, chips from files, and the Target of a DSL; nothing of it needs torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.content import content
from kernellab.doctor import diagnose, report
from kernellab.dsls import ADAPTERS
from kernellab.dsls import machine as target_detect
from kernellab.dsls.base import Readiness
from kernellab.dsls.machine import Rates, cpu_chip, detect_target, keep_judged, measure_rates, named_chip, usable_cores
from kernellab.errors import KernellabError, TargetError
from kernellab.records import Environment
from kernellab.target import Backend
from kernellab.target.chips import find_chip, known_chips, read_chip


def test_the_cpu_has_cores_caches_and_measured_rates() -> None:
    chip = cpu_chip()
    assert chip.kind == "cpu"
    assert chip.cores == usable_cores() >= 1
    assert chip.simd_bits in (128, 256, 512)
    assert 2**14 <= chip.l1_bytes <= chip.l2_bytes
    assert chip.bandwidth > 1e8
    assert chip.peak_flops["f32"] > 1e8
    assert chip.source
    assert chip.on_chip_bytes == chip.l2_bytes


def test_measured_rates_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kernellab.dsls.rates.busy", lambda: False)
    cpu_chip.cache_clear()
    first = cpu_chip()
    assert len(list((tmp_path / "kernellab").glob("rates-*.json"))) == 1
    cpu_chip.cache_clear()
    assert cpu_chip() == first


def test_a_damaged_cache_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kernellab.dsls.rates.busy", lambda: False)
    cpu_chip.cache_clear()
    cpu_chip()
    (file,) = (tmp_path / "kernellab").glob("rates-*.json")
    file.write_text("{")
    cpu_chip.cache_clear()
    assert cpu_chip().bandwidth > 0
    assert file.read_text() != "{"
    cpu_chip.cache_clear()


def test_rates_that_a_judge_measured_are_the_chips_from_the_next_process_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cpu_chip.cache_clear()
    before = cpu_chip()
    assert not before.judged
    where = Environment(
        chip=before.name, threads=before.cores, bandwidth=1e10, flops=2e11, doubles=1e11, rated="2026-01-02"
    )
    keep_judged(where.model_copy(update={"threads": before.cores + 1}))
    keep_judged(where.model_copy(update={"load": 8.0 * before.cores}))
    cpu_chip.cache_clear()
    assert not cpu_chip().judged, "rates of other threads, or of a busy machine, are not the chip's"
    keep_judged(where)
    assert not cpu_chip().judged, "a process keeps the rates that it began with"
    cpu_chip.cache_clear()
    found = cpu_chip()
    assert found.judged and (found.bandwidth, dict(found.peak_flops)) == (1e10, {"f32": 2e11, "f64": 1e11})
    assert "2026-01-02" in found.source
    cpu_chip.cache_clear()


def test_rates_of_a_busy_machine_are_rough_and_no_lower_than_its_class_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kernellab.dsls.rates.busy", lambda: True)
    # what a loaded machine leaves over
    monkeypatch.setattr("kernellab.dsls.rates.measure_rates", lambda cores: Rates(1e8, 1e8, 1e15, "measured"))
    cpu_chip.cache_clear()
    chip = cpu_chip()
    cpu_chip.cache_clear()
    assert chip.rough and "busy" in chip.source and "estimated from" in chip.source
    assert chip.bandwidth > 1e9 and chip.peak_flops["f32"] > 1e9 and chip.peak_flops["f64"] == 1e15
    assert not list(tmp_path.rglob("rates-*.json")), "they are no facts of the chip"
    assert not chip.at_rates(1e10, 1e11).rough


def test_rates_name_how_they_were_measured() -> None:
    rates = measure_rates(1)
    assert min(rates.bandwidth, rates.f32, rates.f64) > 0
    assert "measured here" in rates.source


def test_detecting_never_imports_torch() -> None:
    code = "import sys; from kernellab.dsls.machine import detect_target; from kernellab.doctor import report;"
    code += "detect_target(); report(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_cpp_runs_on_the_cpu() -> None:
    target = detect_target("cpp")
    assert (target.dsl, target.backend, target.chip.kind) == ("cpp", Backend.CPU, "cpu")
    assert target.default_extent == 16


def test_without_a_gpu_cpp_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_detect, "gpu_products", lambda: ())
    assert detect_target().dsl == "cpp"


def test_with_a_gpu_triton_is_the_default_and_its_facts_come_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_detect, "gpu_products", lambda: ("NVIDIA H200",))
    monkeypatch.setattr(ADAPTERS["triton"], "readiness", lambda: Readiness(True, backend=Backend.CUDA))
    monkeypatch.setitem(sys.modules, "torch", None)
    target = detect_target()
    assert (target.dsl, target.backend, target.chip.name) == ("triton", Backend.CUDA, "NVIDIA H200")
    assert target.chip.bandwidth == 4.28e12
    assert target.default_extent == 128


@pytest.mark.parametrize(
    ("named", "seen"),
    [(None, "AB"), ("", ""), ("-1", ""), ("1", "B"), ("1, 0", "BA"), ("0,7,1", "A"), ("GPU-5f", "A"), ("none", "")],
)
def test_a_hidden_gpu_is_none(monkeypatch: pytest.MonkeyPatch, named: str | None, seen: str) -> None:
    monkeypatch.setattr(target_detect, "_driver_products", lambda: ("A", "B"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert target_detect.gpu_products() == tuple(seen)
    assert detect_target().dsl == ("triton" if seen else "cpp")
    assert (detect_target("triton").backend is Backend.INTERPRETER) == (not seen)


def test_an_unknown_dsl_names_the_nearest() -> None:
    with pytest.raises(TargetError, match="Did you mean 'triton'"):
        detect_target("tritn")


def test_a_dsl_that_is_not_ready_says_why_and_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ADAPTERS["cpp"], "readiness", lambda: Readiness(False, "No C++ compiler.", "Install g++."))
    with pytest.raises(TargetError, match=r"No C\+\+ compiler\. Install g\+\+\."):
        detect_target("cpp")


def test_a_dsl_without_its_hardware_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_detect, "gpu_products", lambda: ())
    monkeypatch.setattr(ADAPTERS["triton"], "readiness", lambda: Readiness(True, backend=Backend.CUDA))
    with pytest.raises(TargetError, match="CUDA device"):
        detect_target("triton")


def test_another_chip_can_be_designed_for() -> None:
    assert detect_target("cpp", chip="x86-avx512").chip.name == "x86-64 server with AVX-512"
    assert named_chip("NVIDIA A100-SXM4-80GB") == named_chip("NVIDIA A100") == named_chip("a100")
    with pytest.raises(TargetError, match="NVIDIA H200 is not one"):
        detect_target("cpp", chip="h200")
    with pytest.raises(TargetError, match="describes the chip 'h1000'"):
        named_chip("h1000")
    with pytest.raises(TargetError, match="describes the chip 'b900'"):
        named_chip("b900")


def test_every_chip_file_has_its_numbers_and_their_source() -> None:
    for entry in known_chips():
        chip = entry.chip
        assert chip.bandwidth > 0, entry.path
        assert chip.peak_flops["f32"] > 0, entry.path
        assert chip.on_chip_bytes > 0, entry.path
        assert chip.source, entry.path
        assert not entry.unsourced, entry.path


def test_a_product_name_finds_its_chip() -> None:
    found = find_chip("NVIDIA A100-SXM4-80GB")
    assert found is not None
    assert found.name == "NVIDIA A100"
    assert find_chip("Matrox G200") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no front matter", "no front matter"),
        ("---\nname: x\nspeed: 3\n---\n", "is not a fact"),
        ("---\nname: x\ncores: many\n---\n", "not a number"),
    ],
)
def test_a_faulty_chip_file_names_its_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(text)
    with pytest.raises(KernellabError, match=words):
        read_chip(tmp_path / "x.md")


def test_content_is_found_and_a_missing_folder_is_named() -> None:
    assert (content("knowledge") / "hardware" / "h200.md").is_file()
    with pytest.raises(KernellabError, match="'nowhere'"):
        content("nowhere")


def test_the_doctor_tells_of_every_dsl_and_the_sandbox() -> None:
    found = diagnose()
    assert set(found.dsls) == set(ADAPTERS)
    assert all(dsl.ready or (dsl.reason and dsl.remedy) for dsl in found.dsls.values())
    assert found.sandbox
    text = report()
    assert all(name in text for name in (*ADAPTERS, "sandbox", "models", cpu_chip().name))


def test_the_doctor_prints_the_line_that_installs_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = diagnose()
    # the environment's own ninja is found without PATH
    assert found.compilers.keys() <= {"ninja"}
    assert any("g++" in line or "xcode-select" in line for line in found.install)
