"""Everything for CUDA devices: memory, worker, clocks, timed calls."""
