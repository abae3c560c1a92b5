"""A worker's part of sealing: watch a candidate from its import on, record it, or load a bundle in its place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernellab.verifier.seal import Unsealable, record

#: the replayer's report of what it has loaded, in its scratch folder
LOADED = "work/loaded.json"


def watch(dsl: str, device: str) -> None:
    """Before the import of a candidate: start to store what can only be observed on loading."""
    import contextlib

    if device == "cpu" and dsl != "triton":
        from kernellab.verifier.seal import native

        native.remember()
    elif dsl != "triton":
        from kernellab.verifier.seal import cupti

        # without CUPTI the candidate runs as usual, and is reported as unsealable when it is recorded
        with contextlib.suppress(Unsealable):
            cupti.remember()


def seal(
    function: Callable[..., Any], sets: Sequence[Sequence[Any]], parameters: Sequence[Any], dsl: str, device: str,
    scratch: Path,
) -> dict[str, Any]:  # fmt: skip
    """Record ``function`` on two sets of arguments and write the bundle below ``scratch``. Returns the reply.

    ``parameters`` are the tensors that a model copies its last arguments into.
    """
    try:
        hook = _hook(dsl, device, scratch)
        named = [[*args, *parameters] for args in sets]
        record.seal(function, sets, named, device, scratch / "work" / record.FOLDER, hook)
    except Unsealable as reason:
        return {"ok": True, "reason": str(reason)[:2000]}
    return {"ok": True}


def load(folder: Path, device: str) -> Callable[..., Any]:
    """The function that replays the bundle in ``folder``. Raises Unsealable."""
    from kernellab.verifier.seal.replay import Replay

    replay = Replay(folder, device)
    (folder.parent / LOADED).write_text(json.dumps(replay.loaded))
    return replay


def _hook(dsl: str, device: str, scratch: Path) -> record.Hook:
    if dsl == "triton":
        if device == "cpu" or os.environ.get("TRITON_INTERPRET") == "1":
            raise Unsealable("Triton's interpreter makes no binaries")
        from kernellab.verifier.seal import triton

        return triton.launches
    if device == "cpu":
        from kernellab.verifier.seal import native

        return native.calls(scratch)
    from kernellab.verifier.seal import cupti

    return cupti.launches
