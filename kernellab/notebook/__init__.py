"""What a person touches: magics, and the workbench of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Register the magics, their options and their completion; a second call replaces the first's."""
    from kernellab.notebook.complete import install
    from kernellab.notebook.config import KernelLab
    from kernellab.notebook.formats import show_sessions
    from kernellab.notebook.magics import ALL

    # %config finds its classes there
    configurables: list[Any] = shell.configurables
    lab = next((found for found in configurables if isinstance(found, KernelLab)), None)
    if lab is None:
        lab = KernelLab(parent=shell)
        configurables.append(lab)
    for magics in ALL:
        shell.register_magics(magics(shell, lab))
    show_sessions(shell)
    install(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove what :func:`load` registered; sessions keep running."""
    from kernellab.notebook.complete import remove
    from kernellab.notebook.config import KernelLab
    from kernellab.notebook.formats import forget_sessions
    from kernellab.notebook.magic import KernelMagic
    from kernellab.notebook.magics import names

    remove(shell)
    forget_sessions(shell)
    for kind in ("line", "cell"):
        for name in names(kind):
            shell.magics_manager.magics[kind].pop(name, None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, (KernelLab, KernelMagic))]
