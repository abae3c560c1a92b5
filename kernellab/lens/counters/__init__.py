"""Hardware counters of a GPU, which Nsight Compute (ncu) reads while the kernel runs."""
