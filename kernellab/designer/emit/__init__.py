"""Launches as sketch trees, which are printed once for a whole file."""
