"""Where a machine has no sandbox: whose code runs, and who must have said so."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.errors import VerifierError
from kernellab.records import Author
from kernellab.verifier.sandbox import sandbox


def without_sandbox(level: Sequence[str], origin: Author, unsandboxed: bool) -> bool:
    """May a worker that reached ``level`` run although no sandbox holds it? False where one does.

    Raises:
        VerifierError: no sandbox, code that our own rules did not write, and no one has allowed it.
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
