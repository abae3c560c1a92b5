"""``kernellab sketch``: the language at a shell."""
