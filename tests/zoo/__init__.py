"""The zoo: cheats, errors and honest kernels, each a small file that says who it is and where the Verifier meets it.

A museum to read, and the Verifier's own test: every cheat and every error must be refused, no honest kernel may be.

- ``tasks/``   what the kernels are asked to do
- ``cheats/``  code that wants to be believed without doing the work; numbers refer to ``catalogue.toml``
- ``errors/``  honest programmers' mistakes
- ``honest/``  right kernels in many styles, many of which look suspicious

An exhibit is one Python file, or a folder with ``kernel.py`` and the files beside it, which begins with its card: a
block ``# /// zoo`` ... ``# ///`` of TOML (:class:`tests.zoo.exhibit.Card`). ``python -m tests.zoo`` shows them all to
the Verifier and prints a table; ``python tests/gpu/zoo_gpu.py`` does so on a GPU.
"""
