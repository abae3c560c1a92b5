"""A sealed bundle: binaries and the list of steps that use them, as pure data with caps.

A folder with ``bundle.json`` and one file per binary, named after its SHA-256. Pointers are never addresses but places
in numbered buffers; offsets and sizes are in bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from kernellab.errors import refused
from kernellab.records import Record
from kernellab.verifier.protocol.control import span_elements
from kernellab.verifier.seal import Unsealable

FILE = "bundle.json"
MIB = 1 << 20
#: limits of a bundle: far more than any honest one needs, far less than would harm the judge
MAX_JSON, MAX_BINARY, MAX_BINARIES, MAX_STEPS, MAX_ARGUMENT = 8 * MIB, 256 * MIB, 64, 4096, 4096

Count = Annotated[int, Field(ge=0, le=1 << 40)]
Extent = tuple[Annotated[int, Field(ge=1, le=1 << 31)], Annotated[int, Field(ge=1, le=65535)],
               Annotated[int, Field(ge=1, le=65535)]]  # fmt: skip
Block = tuple[Annotated[int, Field(ge=1, le=1024)], Annotated[int, Field(ge=1, le=1024)],
              Annotated[int, Field(ge=1, le=64)]]  # fmt: skip


class Place(Record):
    """A byte of a buffer."""

    buffer: Count
    offset: Count = 0


class Buffer(Record):
    """Memory that the steps use: argument ``input`` of the call, or memory that the call allocates."""

    bytes: Count
    input: Count | None = None


class Input(Record):
    """A tensor argument as it was when recorded: the bundle is valid for this shape and layout only."""

    dtype: str = Field(max_length=32)
    shape: tuple[Count, ...] = Field(max_length=12)
    strides: tuple[Count, ...] = Field(max_length=12)


class Output(Record):
    """A result and its place; strides are in elements."""

    place: Place
    dtype: str = Field(max_length=32)
    shape: tuple[Count, ...] = Field(max_length=12)
    strides: tuple[Count, ...] = Field(max_length=12)


class Relocation(Record):
    """Eight bytes at ``at`` of an argument are the address of ``place``."""

    at: Count
    place: Place


class Argument(Record):
    """One parameter of a kernel: its bytes in hexadecimal, and which of them are addresses."""

    data: str = Field(max_length=2 * MAX_ARGUMENT, pattern="^([0-9a-f]{2})*$")
    pointers: tuple[Relocation, ...] = Field(default=(), max_length=MAX_ARGUMENT // 8)


class Launch(Record):
    """A kernel of binary ``module`` on the device. ``grid`` is in blocks, ``cluster`` blocks a cluster."""

    kind: Literal["launch"] = "launch"
    module: Count
    name: str = Field(max_length=8192)
    grid: Extent
    block: Block
    shared: Count = 0
    cluster: Block | None = None
    cooperative: bool = False
    #: may begin before its predecessor has ended (programmatic dependent launch)
    overlapping: bool = False
    arguments: tuple[Argument, ...] = Field(default=(), max_length=1024)


class Fill(Record):
    """``count`` elements of ``width`` bytes get the pattern ``value``."""

    kind: Literal["fill"] = "fill"
    place: Place
    count: Count
    width: Literal[1, 2, 4]
    value: Annotated[int, Field(ge=0, lt=1 << 32)]


class Copy(Record):
    """Bytes from one buffer to another."""

    kind: Literal["copy"] = "copy"
    source: Place
    target: Place
    bytes: Count


class Value(Record):
    """One argument of an object's function: an address, a tensor at a place, or a constant."""

    place: Place | None = None
    #: with ``place``: a tensor's dtype, shape and strides; without: only the address
    dtype: str = Field(default="", max_length=32)
    shape: tuple[Count, ...] = Field(default=(), max_length=12)
    strides: tuple[Count, ...] = Field(default=(), max_length=12)
    constant: bool | int | float | str | None = None


class Call(Record):
    """A function that the shared object ``module`` exports through tvm-ffi."""

    kind: Literal["call"] = "call"
    module: Count
    name: str = Field(max_length=8192)
    arguments: tuple[Value, ...] = Field(default=(), max_length=256)


Step = Annotated[Launch | Fill | Copy | Call, Field(discriminator="kind")]


class Binary(Record):
    """A binary by its content: a device binary, or a shared object of the host."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    kind: Literal["cubin", "object"]


class Bundle(Record):
    """One call of a candidate at one shape."""

    inputs: tuple[Input | None, ...] = Field(max_length=256)
    outputs: tuple[Output, ...] = Field(min_length=1, max_length=64)
    buffers: tuple[Buffer, ...] = Field(max_length=MAX_STEPS)
    steps: tuple[Step, ...] = Field(max_length=MAX_STEPS)
    binaries: tuple[Binary, ...] = Field(max_length=MAX_BINARIES)

    @property
    def hash(self) -> str:
        """A name for the bundle with all its binaries."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that everything is within its bounds. Raises Unsealable."""
        for buffer in self.buffers:
            if buffer.input is not None and (buffer.input >= len(self.inputs) or self.inputs[buffer.input] is None):
                raise Unsealable("its bundle names an argument that is not a tensor")
        for place, size in self._places():
            if place.buffer >= len(self.buffers) or place.offset + size > self.buffers[place.buffer].bytes:
                raise Unsealable("its bundle points outside its buffers")
        for step in self.steps:
            if isinstance(step, (Launch, Call)):
                if step.module >= len(self.binaries):
                    raise Unsealable("its bundle names a binary that is not there")
                expected_kind = "cubin" if isinstance(step, Launch) else "object"
                if self.binaries[step.module].kind != expected_kind:
                    raise Unsealable("its bundle calls a binary of another kind")
            if isinstance(step, Launch):
                for argument in step.arguments:
                    if any(p.at + 8 > len(argument.data) // 2 for p in argument.pointers):
                        raise Unsealable("its bundle has an address outside its argument")
        own = sum(b.bytes for b in self.buffers if b.input is None)
        if own > 64 << 30:
            raise Unsealable(f"its bundle asks for {own >> 30} GiB of memory")

    def _places(self) -> Iterator[tuple[Place, int]]:
        """Every place with the number of bytes known to be used there."""
        for output in self.outputs:
            if len(output.shape) != len(output.strides):
                raise Unsealable("its bundle has an output with more strides than a tensor may have")
            yield output.place, span(output.shape, output.strides, output.dtype)
        for step in self.steps:
            if isinstance(step, Fill):
                yield step.place, step.count * step.width
            elif isinstance(step, Copy):
                yield step.source, step.bytes
                yield step.target, step.bytes
            elif isinstance(step, Launch):
                for argument in step.arguments:
                    yield from ((p.place, 0) for p in argument.pointers)
            else:
                for value in step.arguments:
                    if value.place is not None:
                        yield value.place, span(value.shape, value.strides, value.dtype) if value.dtype else 0


#: bytes of an element; a bundle supports no other dtypes
SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def span(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> int:
    """Bytes from a tensor's first element to the end of its last. Raises Unsealable for an unknown dtype."""
    if dtype not in SIZES:
        raise Unsealable(f"the dtype {dtype[:32]} cannot be in a bundle")
    return span_elements(shape, strides) * SIZES[dtype]


def write(folder: Path, bundle: Bundle, binaries: Mapping[str, bytes]) -> None:
    """Write the bundle and its ``binaries`` (by SHA-256) into ``folder``, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for binary in bundle.binaries:
        (folder / binary.sha256).write_bytes(binaries[binary.sha256])
    (folder / FILE).write_text(bundle.model_dump_json(), encoding="utf-8")


def read(folder: Path) -> tuple[Bundle, dict[str, bytes]]:
    """A bundle and its binaries by SHA-256, from an untrusted folder. Raises Unsealable."""
    try:
        bundle = Bundle.model_validate_json(_content(folder / FILE, MAX_JSON))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unsealable(f"its bundle is malformed ({refused(first, where)})") from None
    bundle.check()
    binaries: dict[str, bytes] = {}
    for binary in bundle.binaries:
        content = _content(folder / binary.sha256, MAX_BINARY - sum(map(len, binaries.values())))
        if hashlib.sha256(content).hexdigest() != binary.sha256:
            raise Unsealable("a binary of its bundle does not have the hash that it states")
        binaries[binary.sha256] = content
    return bundle, binaries


def _content(path: Path, most: int) -> bytes:
    """A plain file's bytes; refuses links, pipes and files that are too large."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        raise Unsealable("its bundle cannot be read") from None
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Unsealable("its bundle is not a plain file")
        content = stream.read(most + 1)
    if len(content) > most:
        raise Unsealable(f"its bundle holds more than {most >> 20} MiB")
    return content
