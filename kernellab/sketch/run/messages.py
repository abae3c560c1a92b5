"""Messages between a process and the worker that computes its sketches, on a stream of bytes.

Each is two lengths (8 bytes, the high one first), two texts of JSON, and the bytes of tensors: the first text lists the
tensors' dtypes and shapes, the second is the message, where ``{"$tensor": 0}`` is the first of them. A call names a
function and classes of ours, and lists each object once. An answer names nothing: the worker has run what a stranger
wrote."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from importlib import import_module
from math import prod
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kernellab.sketch.program.program import Program

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

_LENGTHS = struct.Struct(">QQ")
#: most bytes of a part that is sent with others
SMALL = 1 << 16
#: most bytes of the JSON of an answer
_MOST_TEXT = 64 << 20
#: key of the place of a tensor in an answer; no name of a sketch is like it
_TENSOR = "$tensor"

#: sends all of the bytes; fills all of the bytes
Send = Callable[[memoryview], None]
Fill = Callable[[memoryview], None]


class Malformed(Exception):
    """An answer that is too long, or that is none."""


#: an object as it is sent: its class, the names of its fields, and their values
_Object = tuple[str, list[str], list[Any]]


class SentPrograms:
    """The programs that one side of a stream has sent or received: each is sent once."""

    def __init__(self) -> None:
        self.programs: list[Program] = []

    def number(self, program: Program) -> int | None:
        """The program's place; None if it has not been sent."""
        return next((n for n, one in enumerate(self.programs) if one is program), None)


def send_call(send: Send, sent: SentPrograms, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Send a call of a module's function: ``arguments`` of numbers, texts, tuples, lists, sets, dictionaries, tensors,
    and of our dataclasses and enumerations.

    Raises:
        RecursionError: the arguments are nested too deeply.
    """
    writer = _Writer(sent)
    value = writer.written((function, list(arguments)))
    body = json.dumps([writer.programs, writer.objects, value], separators=(",", ":")).encode()
    _send_all(send, (_specs(writer.tensors), body), writer.tensors)


def take_call(fill: Fill, sent: SentPrograms) -> tuple[Callable[..., Any], list[Any]]:
    """Read a call that :func:`send_call` has sent."""
    head, body = _read_texts(fill)
    tensors = [_read_tensor(fill, *_spec(*one)) for one in json.loads(head)]
    programs, objects, value = json.loads(body)
    for parts, number in programs:
        sent.programs.append(_Reader((), sent, parts).objects[number])
    function, arguments = _Reader(tensors, sent, objects).read(value)
    return function, arguments


#: places of what JSON has no form for
_OBJECT, _LIST, _DICT, _SET, _ENUM, _FUNCTION = "$object", "$list", "$dict", "$set", "$enum", "$function"
_PROGRAM = "$program"


class _Writer:
    """Writes values for JSON. An object that occurs twice is written once: expressions share their parts.

    It calls itself by ``map``: before Python 3.12 comprehensions are frames, and sums of many terms are deep.
    """

    def __init__(self, sent: SentPrograms) -> None:
        self.sent = sent
        self.tensors: list[Tensor] = []
        self.objects: list[_Object] = []
        #: programs that are sent for the first time: their objects, and the place of the program among them
        self.programs: list[tuple[list[Any], int]] = []
        self._seen: dict[int, tuple[Any, int]] = {}

    def written(self, value: Any) -> Any:
        import torch

        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, tuple):
            return list(map(self.written, value))
        if isinstance(value, FunctionType):
            return {_FUNCTION: _name(value)}
        if isinstance(value, Enum):
            return {_ENUM: [_name(type(value)), value.value]}
        if isinstance(value, list):
            return {_LIST: list(map(self.written, value))}
        if isinstance(value, (set, frozenset)):
            return {_SET: list(map(self.written, value))}
        if isinstance(value, Mapping):
            return {_DICT: [[self.written(k), self.written(v)] for k, v in value.items()]}
        if isinstance(value, torch.Tensor):
            self.tensors.append(_plain(value))
            return {_TENSOR: len(self.tensors) - 1}
        if isinstance(value, Program):
            return {_PROGRAM: self._program(value)}
        if not is_dataclass(value):
            raise TypeError(f"a call holds no {type(value).__name__}")
        return {_OBJECT: self._object(value)}

    def _program(self, program: Program) -> int:
        number = self.sent.number(program)
        if number is None:
            writer = _Writer(self.sent)
            self.programs.append((writer.objects, writer._object(program)))
            self.sent.programs.append(program)
            number = len(self.sent.programs) - 1
        return number

    def _object(self, value: Any) -> int:
        if id(value) not in self._seen:
            names = [field.name for field in fields(value) if field.init]
            parts = [getattr(value, name) for name in names]
            entry = _name(type(value)), names, list(map(self.written, parts))
            self.objects.append(entry)
            self._seen[id(value)] = value, len(self.objects) - 1
        return self._seen[id(value)][1]


class _Reader:
    """Reads what a :class:`_Writer` has written; ``objects`` are those that the values name."""

    def __init__(self, tensors: Sequence[Tensor], sent: SentPrograms, objects: Iterable[_Object]) -> None:
        self.tensors = tensors
        self.sent = sent
        self.objects: list[Any] = []
        for kind, names, values in objects:
            build = _member(kind)
            self.objects.append(build(**dict(zip(names, map(self.read, values), strict=True))))

    def read(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self.read, value))
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == _OBJECT:
            return self.objects[inner]
        if kind == _PROGRAM:
            return self.sent.programs[inner]
        if kind == _TENSOR:
            return self.tensors[inner]
        if kind == _ENUM:
            return _member(inner[0])(inner[1])
        if kind == _FUNCTION:
            return _member(inner)
        if kind == _DICT:
            return {self.read(k): self.read(v) for k, v in inner}
        return (list if kind == _LIST else frozenset)(map(self.read, inner))


def _name(member: Any) -> str:
    return f"{member.__module__}:{member.__qualname__}"


@lru_cache(maxsize=256)
def _member(name: str) -> Any:
    module, _, member = name.partition(":")
    return getattr(import_module(module), member)


def send_answer(send: Send, answer: Mapping[str, Any]) -> None:
    """Send an object of numbers, texts, lists, tuples, objects and tensors; tuples arrive as lists."""
    import torch

    tensors: list[Tensor] = []

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"an answer holds no {type(value).__name__}")
        tensors.append(_plain(value))
        return {_TENSOR: len(tensors) - 1}

    body = json.dumps(answer, default=place, separators=(",", ":")).encode()
    _send_all(send, (_specs(tensors), body), tensors)


def take_answer(fill: Fill, most_bytes: int) -> dict[str, Any]:
    """Read an answer whose tensors have at most ``most_bytes`` bytes together.

    Raises:
        Malformed: the bytes are no such answer.
    """
    head, body = _read_texts(fill, _MOST_TEXT)
    try:
        specs = [_spec(*one) for one in json.loads(head)]
        if sum(dtype.itemsize * prod(shape) for dtype, shape in specs) > most_bytes:
            raise Malformed("tensors of more bytes than were asked for")
        tensors = [_read_tensor(fill, dtype, shape) for dtype, shape in specs]
        answer = json.loads(body, object_hook=lambda item: tensors[item[_TENSOR]] if set(item) == {_TENSOR} else item)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, RuntimeError) as error:
        raise Malformed(f"no answer: {type(error).__name__}") from None
    if not isinstance(answer, dict):
        raise Malformed("an answer that is no object")
    return answer


def _specs(tensors: Iterable[Tensor]) -> bytes:
    return json.dumps([(str(t.dtype).removeprefix("torch."), list(t.shape)) for t in tensors]).encode()


def _spec(name: str, shape: Sequence[int]) -> tuple[torch.dtype, tuple[int, ...]]:
    import torch

    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype) or not all(type(n) is int and n >= 0 for n in shape):
        raise Malformed("a tensor without a dtype or shape")
    return dtype, tuple(shape)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _bytes(tensor: Tensor) -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")


def _send_all(send: Send, texts: tuple[bytes, bytes], tensors: Iterable[Tensor]) -> None:
    """Send lengths, texts and tensors; small ones together, since each part wakes who reads."""
    together = bytearray(_LENGTHS.pack(*map(len, texts)))
    for part in (*(memoryview(text) for text in texts), *(_bytes(tensor) for tensor in tensors)):
        if len(part) <= SMALL:
            together += part
            continue
        send(memoryview(together))
        send(part)
        together = bytearray()
    send(memoryview(together))


def _read_tensor(fill: Fill, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    import torch

    tensor = torch.empty(shape, dtype=dtype)
    fill(_bytes(tensor))
    return tensor


def _read_texts(fill: Fill, most: int | None = None) -> tuple[bytes, bytes]:
    lengths = _LENGTHS.unpack(_read(fill, _LENGTHS.size))
    if most is not None and max(lengths) > most:
        raise Malformed(f"a text of {max(lengths)} bytes")
    both = _read(fill, sum(lengths))
    return both[: lengths[0]], both[lengths[0] :]


def _read(fill: Fill, count: int) -> bytes:
    data = bytearray(count)
    fill(memoryview(data))
    return bytes(data)
