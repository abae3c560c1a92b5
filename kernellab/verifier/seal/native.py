"""C++ on the host: the functions of its shared object that kernel.py calls, and their arguments.

A replay then needs none of its Python. The object is inspected first: its imports, and whether loading it runs any of
its code. It is still host code, so this earns the label ``native`` but no higher level of trust.
"""

from __future__ import annotations

import contextlib
import gc
import io
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernellab.verifier.attribution.imports import imported
from kernellab.verifier.seal import Unsealable
from kernellab.verifier.seal.bundle import SIZES, Call, Value
from kernellab.verifier.seal.record import Recorder

#: libraries that a native object may need, by the name before ".so"
_LIBRARIES = {
    "libc", "libm", "libstdc++", "libc++", "libc++abi", "libgcc_s", "libgomp", "libomp", "libiomp5", "libpthread",
    "libtvm_ffi", "ld-linux-x86-64", "ld-linux-aarch64",
}  # fmt: skip
#: libc functions with which an object does more than compute
_DOES_MORE = re.compile(
    r"^(dl(m?open|v?sym|addr|_iterate_phdr)|v?fork|clone\d?|exec\w+|posix_spawnp?|system|popen|ptrace|p?kill|syscall|"
    r"process_vm_\w+|pthread_create|thrd_create|socket\w*|connect|bind|sendto|sendmsg|recv\w*|f?open(64|at|at64)?|"
    r"creat(64)?|mprotect|memfd_create|setjmp|signal|sigaction|prctl|shm_open)$"
)

_known: list[tuple[Any, str]] = []
_active: list[Callable[[Any, str], Any]] = []


def remember() -> None:
    """Track the name of each function from now on; a function object does not contain it."""
    from tvm_ffi import Module

    original = Module.get_function

    def get_function(self: Any, name: str, query_imports: bool = False) -> Any:
        function = original(self, name, query_imports)
        _known.append((function, name))
        return _active[-1](function, name) if _active else function

    Module.get_function = get_function  # type: ignore[method-assign]


def calls(scratch: Path) -> Callable[[Recorder], contextlib.AbstractContextManager[None]]:
    """A hook that records each call of a function from an object below ``scratch``."""

    @contextlib.contextmanager
    def hook(recorder: Recorder) -> Iterator[None]:
        objects = _objects(scratch)
        put_back: list[tuple[Any, Any, Any]] = []
        for function, name in list(_known):
            put_back += _replace(function, _StandIn(recorder, objects, function, name))
        _active.append(lambda function, name: _StandIn(recorder, objects, function, name))
        try:
            yield
        finally:
            _active.pop()
            for holder, key, function in put_back:
                _put(holder, key, function)

    return hook


class _StandIn:
    """Records a call and makes it. Has slots, so that no dictionary holds the original function."""

    __slots__ = ("function", "name", "objects", "recorder")

    def __init__(self, recorder: Recorder, objects: list[bytes], function: Any, name: str) -> None:
        self.recorder, self.objects, self.function, self.name = recorder, objects, function, name

    def __call__(self, *args: Any) -> Any:
        _note(self.recorder, self.objects, self.name, args)
        result = self.function(*args)
        if result is not None:
            self.recorder.refuse(f"its Python uses what {self.name} returns")
        return result


def _replace(old: Any, new: Any) -> list[tuple[Any, Any, Any]]:
    """Put ``new`` into every dictionary, list and closure that holds ``old``. Returns those places."""
    places: list[tuple[Any, Any, Any]] = []
    for holder in gc.get_referrers(old):
        if isinstance(holder, dict):
            places += [(holder, key, old) for key, value in holder.items() if value is old]
        elif isinstance(holder, list):
            places += [(holder, i, old) for i, value in enumerate(holder) if value is old]
        elif isinstance(holder, types.CellType):
            places.append((holder, None, old))
    for holder, key, _ in places:
        _put(holder, key, new)
    return places


def _put(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, types.CellType):
        holder.cell_contents = value
    else:
        holder[key] = value


def _objects(scratch: Path) -> list[bytes]:
    """The shared objects that the candidate has built and loaded."""
    paths = {
        line.split(None, 5)[-1].strip()
        for line in Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines()
        if "/" in line
    }
    return [p.read_bytes() for p in sorted(map(Path, paths)) if p.is_relative_to(scratch) and ".so" in p.name]


def _note(recorder: Recorder, objects: list[bytes], name: str, args: tuple[Any, ...]) -> None:
    symbol = f"\0__tvm_ffi_{name}\0".encode()
    matches = [o for o in objects if symbol in o]
    if len(matches) != 1:
        return recorder.refuse(f"{name} is in {'more than one' if matches else 'no'} object that it has built")
    values = tuple(_value(recorder, name, i, a) for i, a in enumerate(args))
    recorder.add(Call(module=recorder.binary(matches[0], "object"), name=name, arguments=values))


def _value(recorder: Recorder, name: str, number: int, value: Any) -> Value:
    if hasattr(value, "data_ptr"):
        dtype = str(value.dtype).removeprefix("torch.")
        place = recorder.place(value.data_ptr())
        if place is None or dtype not in SIZES:
            recorder.refuse(f"argument {number} of {name} is memory that was made before the call")
            return Value()
        return Value(place=place, dtype=dtype, shape=tuple(value.shape), strides=tuple(value.stride()))
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        place = recorder.place(value)
        if place is not None:
            return Value(place=place)
    if value is None or isinstance(value, (bool, int, float, str)):
        return Value(constant=value)
    recorder.refuse(f"argument {number} of {name} is a {type(value).__name__}")
    return Value()


def inspect(content: bytes) -> None:
    """Raises Unsealable for an object that runs any of its code on loading, or that can do more than compute."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(content))
        needed: list[str] = []
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                needed += [getattr(tag, "needed", "?") for tag in section.iter_tags("DT_NEEDED")]
        names = imported(elf)
        constructors = _constructors(elf)
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise Unsealable(f"its object cannot be read ({type(error).__name__})") from None
    strange = [n for n in needed if n.split(".so")[0] not in _LIBRARIES]
    if strange:
        raise Unsealable(f"its object needs the library {strange[0][:64]}")
    suspicious = sorted(n for n in names if _DOES_MORE.match(n))
    if suspicious:
        raise Unsealable(f"its object imports {suspicious[0]}")
    if constructors:
        raise Unsealable(f"loading its object runs {constructors[0][:64]}, a static constructor")


def _constructors(elf: Any) -> list[str]:
    """Names (or addresses) of the functions that run on loading, without the toolchain's own."""
    names: dict[int, str] = {}
    table = elf.get_section_by_name(".symtab")
    for symbol in table.iter_symbols() if table is not None else ():
        if symbol["st_info"]["type"] == "STT_FUNC":
            names[symbol["st_value"]] = symbol.name
    section = elf.get_section_by_name(".init_array")
    if section is None:
        return []
    low, high = section["sh_addr"], section["sh_addr"] + section["sh_size"]
    functions = []
    for part in elf.iter_sections():
        for relocation in part.iter_relocations() if part.name in (".rela.dyn", ".rela.plt") else ():
            if low <= relocation["r_offset"] < high:
                # an exported function is referenced by name, another by the address in the addend
                number, address = relocation["r_info_sym"], relocation["r_addend"]
                symbols = elf.get_section(part["sh_link"])
                functions.append(symbols.get_symbol(number).name if number else names.get(address, hex(address)))
    # crtbegin's only entry; in a stripped object, assumed to be the first one
    own = [n for n in functions if n != "frame_dummy"]
    return own[1:] if not names and own else own
