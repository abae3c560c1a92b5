"""Launches as sketch trees, which are printed once per file."""
