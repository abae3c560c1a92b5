"""A worker's visible traces of its start: as little of a judge as possible, and the same in processes that judge a
candidate as in one that resembles a user's."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import types
from collections.abc import Mapping, Sequence

#: mallopt(3) parameters, and a threshold that no allocation reaches
_TRIM, _MMAP, _NEVER = -1, -3, -1
_MMAP_BYTES = 512 << 20
#: indices in /proc/self/stat, after the name, of the addresses of the initial arguments and environment
_ARGUMENTS, _ENVIRONMENT = (45, 46), (47, 48)


def keep_pages() -> None:
    """Make pages of freed tensors (below 512 MiB) be reused from the first call on: page faults would otherwise
    dominate the measurement (a copy of 32 MiB takes 4 ms into pages in use, 31 ms into fresh ones)."""
    with contextlib.suppress(AttributeError):  # the C library may lack this call
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP, _MMAP_BYTES)
        libc.mallopt(_TRIM, _NEVER)


def show(environment: Mapping[str, str], command: Sequence[str]) -> None:
    """Make /proc show this process as started with ``environment`` by ``command``, as far as there is room."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        for (first, last), texts in (
            (_ARGUMENTS, list(command)), (_ENVIRONMENT, [f"{k}={v}" for k, v in environment.items()])
        ):  # fmt: skip
            start, room = int(words[first]), int(words[last]) - int(words[first])
            text = b"".join(os.fsencode(text_part) + b"\0" for text_part in texts)
            if start and room > 0:
                ctypes.memmove(start, text[: room - 1].ljust(room, b"\0"), room)
    except (OSError, ValueError, IndexError):
        return


def forget(program: str) -> None:
    """Remove the judge's modules from this process, so that it looks as if it ran ``program``."""
    knobs = sys.modules.get("triton.knobs")
    with contextlib.suppress(AttributeError, KeyError):
        # read at the import of Triton, in the fork server
        vars(type(knobs.cache))["home_dir"].default = os.path.expanduser("~/")  # type: ignore[union-attr]
    for name in [n for n in sys.modules if n.partition(".")[0] == "kernellab"]:
        del sys.modules[name]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = program
    sys.argv, sys.orig_argv = [program], [sys.executable, program]
    gc.unfreeze()
