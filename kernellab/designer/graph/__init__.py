"""Passes over the captured graph: where launches end, what a library does."""
