"""Sketch -> Triton: modules for values, places, shapes and kernels, and :mod:`source`, which writes the file."""
