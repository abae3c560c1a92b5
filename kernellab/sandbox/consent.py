"""Consent on a machine without a sandbox: whose code may run, and who must have allowed it."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.errors import VerifierError
from kernellab.records import Author
from kernellab.sandbox import sandbox


def without_sandbox(level: Sequence[str], origin: Author, unsandboxed: bool) -> bool:
    """May a worker that reached ``level`` run although no sandbox holds it? False if one does.

    Raises:
        VerifierError: no sandbox, code that our own rules did not write, and no permission.
    """
    if sandbox.contains(", ".join(level)):
        return False
    if origin is Author.RULES or unsandboxed:
        return True
    raise VerifierError(
        "This machine has no sandbox, so this kernel would run with your own rights: it was written by a model, or by "
        "hand, imported or pasted.",
        "If you trust its author, allow it: kernellab verify --unsandboxed, %%kernel_verify --unsandboxed, or "
        'options={"unsandboxed": True}. `kernellab doctor` says what is missing for a sandbox.',
    )
