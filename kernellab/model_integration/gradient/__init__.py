"""Kernels that train: the backward of a task as a separate task, and the two verified as a pair."""
