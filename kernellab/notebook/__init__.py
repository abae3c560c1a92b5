"""What a person touches: magics, and the live view of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Register the magics and their completion; a second call replaces the first's."""
    from kernellab.notebook.complete import install
    from kernellab.notebook.magics import KernelMagics

    shell.register_magics(KernelMagics(shell))
    install(shell)


def unload(shell: InteractiveShell) -> None:
    from kernellab.notebook.complete import remove
    from kernellab.notebook.magics import KernelMagics

    remove(shell)
    for kind in ("line", "cell"):
        for name in KernelMagics.names(kind):
            shell.magics_manager.magics[kind].pop(name, None)
