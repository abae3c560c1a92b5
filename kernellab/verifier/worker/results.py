"""A worker's reports about its calls: the places of a result's tensors, or what went wrong. All of it is claims."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from kernellab.sandbox.caps import CAPS
from kernellab.verifier.protocol.control import DTYPES


class BadOutput(Exception):
    """The kernel returned something that is not a tensor."""


def flatten(result: Any, strict: bool) -> list[Any]:
    """The tensors of a kernel's result in order, without None; numbers become tensors. Raises BadOutput."""
    tensors = [] if result is None else _flat(result, strict)
    if len(tensors) > CAPS.outputs:
        raise BadOutput(f"kernel returned {len(tensors)} tensors, more than {CAPS.outputs}")
    return tensors


def _flat(result: Any, strict: bool) -> list[Any]:
    import torch

    if type(result) is torch.Tensor or (not strict and isinstance(result, torch.Tensor)):
        # a lazily negated or conjugated view has other values than its memory
        return [result.resolve_conj().resolve_neg()]
    if isinstance(result, (bool, int, float)):
        return [torch.as_tensor(result)]
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [t for item in result if item is not None for t in _flat(item, strict)]
    name = f"{type(result).__module__}.{type(result).__name__}"
    raise BadOutput(f"kernel returned {name[:80]}, not a plain tensor")


def explain(error: BaseException, root: str) -> dict[str, Any]:
    """An exception as data: type, message, the frames in the candidate's files, and its origin outside of them."""
    error = _cause(error)
    text = str(error)
    frames = [
        {"file": os.path.relpath(f.filename, root), "line": f.lineno or 0}
        for f in traceback.extract_tb(error.__traceback__)
        if root and f.filename.startswith(root)
    ]
    if isinstance(error, SyntaxError) and error.filename and root and error.filename.startswith(root):
        frames.append({"file": os.path.relpath(error.filename, root), "line": error.lineno or 0})
        text = error.msg or text
    return {
        "type": type(error).__name__[:80],
        "message": text[-12000:],
        "frames": frames[-8:],
        "inside": _inside(error, root),
        "trace": "".join(traceback.format_exception(error))[-16000:],
    }


def _cause(error: BaseException) -> BaseException:
    """The error that Triton's interpreter has wrapped, whose frames are the kernel's."""
    return error.__cause__ or error if type(error).__name__ == "InterpreterError" else error


def _inside(error: BaseException, root: str) -> str:
    """The innermost frame, ``"torch/cuda/__init__.py, line 512"``, if it is a library's; otherwise ""."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    if not frames or (root and frames[-1].filename.startswith(root)):
        return ""
    last = frames[-1]
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if last.filename.startswith(folder.rstrip("/") + "/"):
            return f"{os.path.relpath(last.filename, folder)}, line {last.lineno}"
    return f"{last.filename}, line {last.lineno}"


def place(tensor: Any) -> tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]:
    """The arguments of :meth:`Control.write_output` for a tensor. A plain tuple, since the judge's clock runs.

    Raises BadOutput for tensors that an answer cannot describe.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise BadOutput(f"kernel returned a tensor of {name}, a dtype that is not supported")
    if tensor.dim() > CAPS.rank:
        raise BadOutput(f"kernel returned a tensor of {tensor.dim()} dimensions, more than {CAPS.rank}")
    storage = tensor.untyped_storage()
    return (
        tensor.data_ptr(), storage.data_ptr(), storage.nbytes(), DTYPES.index(name), tuple(tensor.shape),
        tuple(tensor.stride()),
    )  # fmt: skip
