"""What a call leaves to its caller: the state of the process, the tensors that it was given, the form of its result.

Claims, as all that a worker says: they find errors, and deceit only where it does not forge messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any


def state() -> dict[str, str]:
    """What a call must leave as it was, by the words that tell of it."""
    import torch

    modes = (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
    found = {
        "torch's default dtype": str(torch.get_default_dtype()),
        "autograd": f"{torch.is_grad_enabled()}, {torch.is_inference_mode_enabled()}",
        "the modes of torch's functions": f"{modes}",
    }
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        lines = dict(line.split(":", 1) for line in status if ":" in line)
        found |= {
            "the blocked signals": lines.get("SigBlk", ""), "the ignored signals": lines.get("SigIgn", ""),
            "the mask of new files' rights": lines.get("Umask", ""), "the working folder": os.getcwd(),
        }  # fmt: skip
    for fd, name in enumerate(("standard input", "standard output", "standard error")):
        try:
            held = os.fstat(fd)
            found[name] = f"{held.st_dev} {held.st_ino}"
        except OSError:
            found[name] = "closed"
    return found


def teams() -> dict[str, int]:
    """The threads that torch and each OpenMP of this process would use, by file."""
    import torch

    found = {"torch": torch.get_num_threads()}
    for path in runtimes():
        with contextlib.suppress(OSError, AttributeError):
            found[path] = ctypes.CDLL(path).omp_get_max_threads()
    return found


def runtimes() -> list[str]:
    """The files of the OpenMP runtimes that are loaded, of which torch and a compiler may bring one each."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        loaded = {line.split(" ", 5)[-1].strip() for line in maps if "omp" in line}
    return sorted(p for p in loaded if os.path.basename(p).startswith(("libgomp", "libomp", "libiomp")))


def told(function: Callable[..., Any], args: Sequence[Any], before: dict[str, str]) -> dict[str, Any]:
    """One call: what is not as it was ``before`` of the process; arguments (by number) that are other tensors than they
    were; the form of the result; whether the caller's threads and random numbers are others."""
    import torch

    forms, team = [_form(a) for a in args], teams()
    # a generator that each call sets alike would be found as it was
    torch.rand(1)
    random = torch.get_rng_state()
    result = function(*args)
    now = state()
    changed = [name for name, value in before.items() if now.get(name) != value]
    if changed:
        # under a mode that is left, nothing of torch answers for itself
        return {"changed": changed}
    team_now = teams()
    return {
        "touched": [i for i, (a, form) in enumerate(zip(args, forms, strict=True)) if _form(a) != form],
        "threads": any(team_now.get(path, n) != n for path, n in team.items()),
        "random": not torch.equal(random, torch.get_rng_state()),
        "form": _kind(result),
        "none": isinstance(result, (tuple, list)) and None in [r for r in result if not isinstance(r, torch.Tensor)],
        "grad": isinstance(result, torch.Tensor) and result.requires_grad and result.is_leaf,
    }


def _form(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    storage = value.untyped_storage()
    return (
        value.data_ptr(), storage.data_ptr(), storage.nbytes(), tuple(value.shape), value.stride(), value.dtype,
        value.requires_grad, value.is_conj(), value.is_neg(), value._version,
    )  # fmt: skip


def _kind(result: Any) -> str:
    import torch

    if isinstance(result, torch.Tensor):
        return "a tensor"
    return "a number" if isinstance(result, (bool, int, float)) else "several"
