"""What a first design waits for, begun in the background while its cell is typed: the judge, and torch's tracing."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module

from kernellab.errors import KernellabError

#: what a task is read and designed with; torch's own take seconds
_IMPORTS = (
    "torch",
    "torch._subclasses.fake_tensor",
    "torch.export",
    "kernellab.task",
    "kernellab.agents.rules.designer",
)


#: is set while no thread imports the session's modules: of two that import them at once one may see a module half made
_imported = threading.Event()
_imported.set()


def begin() -> None:
    """Begin all of it. On a GPU machine the judge waits for the first verification: it takes memory of the device."""
    _imported.clear()
    threading.Thread(target=_work, name="kernellab-begin", daemon=True).start()


def wait_for_imports() -> None:
    """Called before a magic's work."""
    _imported.wait(60)


def _work() -> None:
    try:
        import_module("kernellab.session")
    finally:
        _imported.set()
    from kernellab.dsls.machine import cpu_chip, gpu_products

    if not gpu_products():
        cpu_chip()  # its rates are measured before anything else is at work
        begin_judge()
    for name in _IMPORTS:
        with suppress(Exception):  # who needs it says what is wrong with it
            import_module(name)


def begin_judge() -> threading.Thread:
    """Start the judge of this machine's usual target; a verification says itself what keeps it from starting."""
    from kernellab.dsls.machine import detect_target
    from kernellab.session.engine.engine import engine

    def work() -> None:
        with suppress(KernellabError), engine().verifying:
            engine().verifier().warm(detect_target())

    begun = threading.Thread(target=work, name="kernellab-warm", daemon=True)
    begun.start()
    return begun
