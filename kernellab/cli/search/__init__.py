"""``kernellab evolve``: begin a search, and act on the runs that there are."""
