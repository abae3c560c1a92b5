"""Kernels that train: the backward of a task as a task of its own, and the two verified as a pair."""
