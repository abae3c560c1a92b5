"""Runs one case of a verdict again in this process, for a person to inspect."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernellab.records import Source
from kernellab.task import load_task


def reproduce(
    task: str,
    source: Mapping[str, Any],
    *,
    sizes: Mapping[str, int],
    family: str,
    seed: int,
    change: Sequence[Any] = (),
) -> tuple[tuple[Any, ...], list[Any], list[Any]]:
    """``(args, got, want)`` of one case: the candidate's own outputs and the reference's, in this process.

    ``change`` is the change applied to the drawn arguments (:func:`kernellab.verifier.cases.changes.changed`).

    Nothing is isolated here: a kernel that crashes ends this process too.
    """
    from kernellab.verifier.cases.cases import make_args
    from kernellab.verifier.cases.changes import changed
    from kernellab.verifier.worker.build import taken, write_files
    from kernellab.verifier.worker.results import flatten

    loaded = load_task(task)
    text = Source.model_validate(dict(source))
    root = Path(tempfile.mkdtemp(prefix="kernellab-case-"))
    write_files(root, text.files)
    spec = importlib.util.spec_from_file_location(f"kernel_{text.hash}", root / text.entry_file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(root))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(root))
    args = changed(make_args(loaded, sizes, family, seed), change)
    want = list(loaded.module().reference(args))
    entry = getattr(module, text.entry)
    count = taken(entry, len(loaded.args), loaded.last_defaults)
    return args, flatten(entry(*args[:count]), True), want
