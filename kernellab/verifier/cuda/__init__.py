"""All that a CUDA device needs: memory, worker, clocks, timed calls."""
