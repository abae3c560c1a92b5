"""Sketch -> Triton: what writes values, places, shapes and kernels, and :mod:`source`, which writes the file."""
