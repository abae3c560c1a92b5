"""What a person touches: magics, and the workbench of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Register the magics, their options and their completion; a second call replaces the first's."""
    from kernellab.notebook.magics.complete import install
    from kernellab.notebook.magics.config import KernelLab
    from kernellab.notebook.magics.table import ALL
    from kernellab.notebook.saved.formats import show_sessions

    # %config finds its classes there
    configurables: list[Any] = shell.configurables
    lab = next((found for found in configurables if isinstance(found, KernelLab)), None)
    lab_is_new = lab is None
    if lab is None:
        lab = KernelLab(parent=shell)
        configurables.append(lab)
    for magics in ALL:
        shell.register_magics(magics(shell, lab))
    show_sessions(shell)
    install(shell)
    if lab_is_new and hasattr(shell, "kernel"):  # a person types the first cell now; a plain shell may never design
        from kernellab.notebook.warm import begin

        begin()


def unload(shell: InteractiveShell) -> None:
    """Remove what :func:`load` registered; sessions keep running."""
    from kernellab.notebook.magics.base import KernelMagic
    from kernellab.notebook.magics.complete import remove
    from kernellab.notebook.magics.config import KernelLab
    from kernellab.notebook.magics.table import names
    from kernellab.notebook.saved.formats import forget_sessions

    remove(shell)
    forget_sessions(shell)
    for kind in ("line", "cell"):
        for name in names(kind):
            shell.magics_manager.magics[kind].pop(name, None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, (KernelLab, KernelMagic))]
