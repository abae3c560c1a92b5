"""What a first design waits for, begun in the background while its cell is typed: the judge, and torch's tracing."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module

from kernellab.errors import KernellabError

#: modules with which a task is read and designed: kernellab's, which a magic waits for, and torch's, which take seconds
_OWN_MODULES = ("kernellab.session", "kernellab.task", "kernellab.agents.rules.designer")
_TORCH_MODULES = ("torch", "torch._subclasses.fake_tensor", "torch.export")
#: seconds that a judge waits for a next question where no judge is begun ahead, since many share the memory
SHARED_IDLE_SECONDS = 120.0

#: is set while no thread imports kernellab's modules: of two that import them at once one may see a module half made
_imported = threading.Event()
_imported.set()


def begin(judge: bool) -> None:
    """Begin all of it, the judge too where ``judge`` says so."""
    _imported.clear()
    threading.Thread(target=_work, args=(judge,), name="kernellab-begin", daemon=True).start()


def wait_for_imports() -> None:
    """Called before a magic's work."""
    _imported.wait(60)


def _work(judge: bool) -> None:
    try:
        for name in _OWN_MODULES:
            import_module(name)
        from kernellab.dsls.machine import cpu_chip, gpu_products
        from kernellab.session.engine.engine import engine

        if not judge:
            engine().judge_idle_seconds = SHARED_IDLE_SECONDS
        if judge and not gpu_products():
            cpu_chip()  # its rates are measured before anything else is at work, a waiting magic too
    finally:
        _imported.set()
    if judge:
        begin_judge()
    for name in _TORCH_MODULES:
        with suppress(Exception):  # who needs it says what is wrong with it
            import_module(name)


def begin_judge() -> threading.Thread:
    """Start the judge on the host, for this machine's usual target and, next to a GPU's, for its CPU; a verification
    says itself what keeps it from starting."""
    from kernellab.dsls.machine import detect_target
    from kernellab.session.engine.engine import engine

    def work() -> None:
        with suppress(KernellabError), engine().verifying:
            for dsl in (None, "cpp"):
                engine().verifier().warm(detect_target(dsl, rates=False), ahead=True)

    begun = threading.Thread(target=work, name="kernellab-warm", daemon=True)
    begun.start()
    return begun
