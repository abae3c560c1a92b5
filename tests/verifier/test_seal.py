"""What a record holds, what it refuses, and that a bundle is read as data that may lie."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.records import Trust
from kernellab.target import Backend
from kernellab.verifier import VerifyOptions
from kernellab.verifier.seal import Unsealable, bundle, record
from kernellab.verifier.seal.bundle import Argument, Bundle, Fill, Launch, Place, Relocation
from kernellab.verifier.seal.record import Recorder

CUBIN = b"\x7fELF a device binary"


class Device:
    """Stands for a launcher: ``launch`` tells the recorder of a kernel, as a hook of a DSL does."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None

    @contextmanager
    def hook(self, recorder: Recorder) -> Iterator[None]:
        self.recorder = recorder
        yield
        self.recorder = None

    def launch(self, *args: Any, grid: int = 4, name: str = "k") -> None:
        if self.recorder is None:
            return
        arguments = [
            self.recorder.argument(
                (a.data_ptr() if isinstance(a, torch.Tensor) else a).to_bytes(8, "little"), lambda word: word > 1 << 40
            )
            for a in args
        ]
        self.recorder.add(
            Launch(module=self.recorder.binary(CUBIN, "cubin"), name=name, grid=(grid, 1, 1), block=(128, 1, 1),
                   arguments=tuple(arguments))
        )  # fmt: skip


@pytest.fixture
def device() -> Device:
    return Device()


def sealed(device: Device, function: Callable[..., Any], folder: Path, *shape: int) -> Bundle:
    sets = [(torch.randn(shape or (8, 16)),) for _ in range(2)]
    record.seal(function, sets, sets, "cpu", folder, device.hook)
    return bundle.read(folder)[0]


def test_pointers_become_places_and_scalars_stay(device: Device, tmp_path: Path) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        part = torch.zeros(4)
        y = torch.empty_like(x)
        device.launch(x[2:], part, y, 77)
        return y.t()

    found = sealed(device, kernel, tmp_path / "b")
    assert [b.input for b in found.buffers] == [0, None, None]
    fill, launch = found.steps
    assert fill == Fill(place=Place(buffer=1), count=16, width=1, value=0)
    assert isinstance(launch, Launch)
    places = [[(p.place.buffer, p.place.offset) for p in a.pointers] for a in launch.arguments]
    assert places == [[(0, 2 * 16 * 4)], [(1, 0)], [(2, 0)], []]
    assert launch.arguments[3].data == (77).to_bytes(8, "little").hex()
    assert (found.outputs[0].shape, found.outputs[0].strides) == ((16, 8), (1, 16))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = x @ x.t(); launch(x, y)", "calls the library operator aten.mm"),
        ("y = torch.relu(x); launch(x, y)", "calls the library operator aten.relu"),
        ("y = torch.empty_like(x); launch(x, y, grid=1 + int(x.sum().item() > 0))", "library operator aten.sum"),
        ("y = torch.empty_like(x); launch(x, y, int(x[0, 0] > 0))", "aten.gt"),
        ("y = kept; launch(x, y)", "made before the call"),
        ("y = torch.empty_like(x); launch(x, kept, y)", "made before the call"),
        ("y = torch.empty_like(x)", "no launch was seen"),
        ("y = x.t().contiguous(); launch(x, y)", "copies layouts"),
        ("y = x.half(); launch(x, y)", "converts in torch"),
        ("y = torch.empty_like(x); launch(x, y, count.append(0) or len(count))", "argument 2 of k changes"),
        ("y = torch.empty_like(x); count.append(0); launch(x, y, grid=len(count))", "the grid of k changes"),
        ("y = torch.empty_like(x); count.append(0); [launch(x, y) for _ in count]", "what it launches changes"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_reason(
    device: Device, body: str, reason: str, tmp_path: Path
) -> None:
    names = {"torch": torch, "launch": device.launch, "kept": torch.empty(8, 16), "count": []}
    exec(f"def kernel(x):\n    {body}\n    return y", names)
    with pytest.raises(Unsealable, match=reason):
        sealed(device, names["kernel"], tmp_path / "b")  # type: ignore[arg-type]
    assert not (tmp_path / "b").exists()


def test_a_models_parameters_are_arguments_too(device: Device, tmp_path: Path) -> None:
    weight = torch.randn(16)

    def kernel(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        device.launch(x, weight, y)
        return y

    sets = [(torch.randn(8, 16),) for _ in range(2)]
    record.seal(kernel, sets, [[*s, weight] for s in sets], "cpu", tmp_path / "b", device.hook)
    found, _ = bundle.read(tmp_path / "b")
    launch = found.steps[0]
    assert isinstance(launch, Launch)
    assert [a.pointers[0].place.buffer for a in launch.arguments] == [0, 1, 2]
    assert [b.input for b in found.buffers] == [0, 1, None]


def test_plain_copies_and_fills_of_any_width_are_sealed(device: Device, tmp_path: Path) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        low = torch.full((3,), float("-inf"))
        flags = torch.ones(5, dtype=torch.int16)
        device.launch(y, low, flags)
        return y

    copy, low, flags, _ = sealed(device, kernel, tmp_path / "b").steps
    assert copy.kind == "copy" and copy.bytes == 8 * 16 * 4
    assert isinstance(low, Fill) and (low.width, low.value, low.count) == (4, 0xFF800000, 3)
    assert isinstance(flags, Fill) and (flags.width, flags.value, flags.count) == (2, 1, 5)


def test_one_content_has_one_hash(device: Device, tmp_path: Path) -> None:
    def kernel(x: torch.Tensor, number: int = 1) -> torch.Tensor:
        y = torch.empty_like(x)
        device.launch(x, y, number)
        return y

    one, again = (sealed(device, kernel, tmp_path / name) for name in "ab")
    other = sealed(device, lambda x: kernel(x, 2), tmp_path / "c")
    assert one.hash == again.hash != other.hash


# -- a bundle that somebody else wrote -------------------------------------------------------------------------------


@pytest.fixture
def written(device: Device, tmp_path: Path) -> Path:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        device.launch(x, y)
        return y

    sealed(device, kernel, tmp_path / "bundle")
    return tmp_path / "bundle"


def rewrite(folder: Path, **fields: Any) -> None:
    path = folder / bundle.FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_places_outside_their_buffers_are_refused(written: Path) -> None:
    found, _ = bundle.read(written)
    launch = found.steps[0]
    assert isinstance(launch, Launch)
    beyond = Argument(data="00" * 8, pointers=(Relocation(at=0, place=Place(buffer=1, offset=8 * 16 * 4 + 1)),))
    rewrite(written, steps=[launch.model_copy(update={"arguments": (beyond,)}).model_dump()])
    with pytest.raises(Unsealable, match="outside its buffers"):
        bundle.read(written)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"steps": [{"kind": "python", "code": "import os"}]}, "malformed"),
        ({"binaries": []}, "binary that is not there"),
        ({"buffers": [{"bytes": 512, "input": 0}, {"bytes": 1 << 39}]}, "GiB of memory"),
        ({"buffers": [{"bytes": 512, "input": 3}]}, "names an argument|outside its buffers"),
        ({"outputs": []}, "malformed"),
        ({"more": 1}, "malformed"),
    ],
)
def test_nonsense_is_refused(written: Path, fields: dict[str, Any], reason: str) -> None:
    rewrite(written, **fields)
    with pytest.raises(Unsealable, match=reason):
        bundle.read(written)


def test_another_binary_under_its_name_is_refused(written: Path) -> None:
    (written / hashlib.sha256(CUBIN).hexdigest()).write_bytes(b"something else")
    with pytest.raises(Unsealable, match="hash that it states"):
        bundle.read(written)


def test_links_and_pipes_are_not_followed(written: Path, tmp_path: Path) -> None:
    file = written / hashlib.sha256(CUBIN).hexdigest()
    (tmp_path / "elsewhere").write_bytes(CUBIN)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unsealable, match="cannot be read"):
        bundle.read(written)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Unsealable, match="not a plain file"):
        bundle.read(written)


class Maps:
    """Stands for the CUDA driver, which only a machine with a GPU has: a map is the address, then its other facts."""

    def tensor_map(self, address: int, kind: int, swizzle: int, shape: Any, strides: Any, box: Any, nan: bool) -> bytes:
        return struct.pack("<Q8I", address, kind, swizzle, *shape, *strides, *box, nan).ljust(128, b"\0")[:128]

    def is_address(self, word: int) -> bool:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="Triton has no build for this system")
def test_a_tensor_descriptor_is_a_map_at_the_tensors_place_with_its_sizes_and_strides() -> None:
    from kernellab.verifier.seal.triton import _Launches

    x = torch.randn(96, 64, dtype=torch.bfloat16)
    launches = _Launches.__new__(_Launches)
    launches.recorder, launches.driver = Recorder((x,), "cpu"), Maps()  # type: ignore[assignment]
    meta = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [32, 64], "fp4_padded": False}
    descriptor = SimpleNamespace(base=x[8:], shape=[88, 64], strides=[64, 1], padding="zero")
    signature = {"x": "tensordesc<bf16[32, 64],L>", "n": "i32", "B": "constexpr"}
    kernel = SimpleNamespace(src=SimpleNamespace(signature=signature), metadata=SimpleNamespace(tensordesc_meta=[meta]))
    described, *extents, n = launches._arguments(kernel, (descriptor, 7, 32))

    assert not launches.recorder.reason
    assert described.pointers == (Relocation(at=0, place=Place(buffer=0, offset=8 * 64 * 2)),)
    rest = struct.unpack_from("<7I", bytes.fromhex(described.data), 8)
    assert rest == (9, 3, 88, 64, 128, 32, 64) and len(described.data) == 2 * 128
    assert [a.data for a in extents] == [
        struct.pack(f, v).hex() for f, v in (("<i", 88), ("<i", 64), ("<q", 64), ("<q", 1))
    ]
    assert n.data == struct.pack("<i", 7).hex()

    kernel.metadata.tensordesc_meta = None
    launches._arguments(kernel, (descriptor, 7, 32))
    assert "tensor descriptor" in launches.recorder.reason


def test_a_report_of_the_sanitizer_is_one_line_and_its_own_errors_are_none() -> None:
    from kernellab.verifier.seal.sanitizer import first_report

    said = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at row_sum+0x2b0 in kernel.cu:9
=========     by thread (9,0,0) in block (999,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
========= ERROR SUMMARY: 3 errors
"""
    where = "at row_sum+0x2b0 in kernel.cu:9 by thread (9,0,0) in block (999,0,0)"
    assert first_report(said) == f"Invalid __global__ read of size 4 bytes {where}"
    assert first_report("========= Internal Sanitizer Error\n========= ERROR SUMMARY: 1 error\n") == ""


@pytest.mark.parametrize(
    ("level", "asked", "backend", "is_sealed", "installed", "tools"),
    [
        (Trust.T3, False, Backend.CUDA, True, "there", ("memcheck",)),
        (Trust.T4, False, Backend.CUDA, True, "there", ("memcheck",)),
        (Trust.T3, False, Backend.CUDA, True, "", ()),
        (Trust.T3, False, Backend.CUDA, False, "there", ()),
        (Trust.T3, False, Backend.CPU, True, "there", ()),
        (Trust.T2, False, Backend.CUDA, True, "there", ()),
        (Trust.T2, True, Backend.CUDA, False, "", ("memcheck", "racecheck")),
    ],
)
def test_from_t3_on_the_sanitizer_looks_for_accesses_by_itself_where_it_is_installed(
    level: Trust, asked: bool, backend: Backend, is_sealed: bool, installed: str, tools: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from kernellab.verifier.seal import sanitizer

    monkeypatch.setattr(sanitizer, "tool", lambda: installed)
    assert sanitizer.tools_for(VerifyOptions(level=level, sanitize=asked), backend, is_sealed) == tools


@pytest.mark.parametrize("asked", [True, False])
def test_a_look_of_the_sanitizer_that_fails_is_a_label_where_it_was_asked_for(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernellab.verifier.seal import Unsealable, sanitizer

    def fails(*_: object) -> str:
        raise Unsealable("no time")

    monkeypatch.setattr(sanitizer, "_sanitized", fails)
    added: list[Any] = []
    findings = SimpleNamespace(add=added.append)
    options = VerifyOptions(level=Trust.T3, sanitize=asked)
    stages: Any = SimpleNamespace(context=SimpleNamespace(findings=findings, options=options))
    assert sanitizer.sanitized(stages, ("memcheck",)) == "not sanitized: no time"
    assert [c.label for c in added] == (["not sanitized: no time"] if asked else [])


def test_contents_of_an_argument_with_gaps_lie_as_they_were_recorded(tmp_path: Path) -> None:
    from kernellab.verifier.seal import again, sanitizer

    content = Bundle(
        inputs=(bundle.Input(dtype="float32", shape=(2, 3), strides=(4, 1)), None),
        outputs=(bundle.Output(place=Place(buffer=1), dtype="float32", shape=(2,), strides=(1,)),),
        buffers=(bundle.Buffer(bytes=28, input=0), bundle.Buffer(bytes=8)), steps=(), binaries=(),
    )  # fmt: skip
    case: Any = SimpleNamespace(args=(torch.arange(6.0).reshape(2, 3), 7))
    sanitizer._contents(tmp_path, content, case)
    found = (tmp_path / again.CONTENT.format(0)).read_bytes()
    assert struct.unpack("7f", found) == (0, 1, 2, 0, 3, 4, 5)
    assert [p.name for p in tmp_path.iterdir()] == [again.CONTENT.format(0)]
