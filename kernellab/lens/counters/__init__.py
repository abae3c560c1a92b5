"""Hardware counters of a GPU, read by Nsight Compute (ncu) while the kernel really runs."""
