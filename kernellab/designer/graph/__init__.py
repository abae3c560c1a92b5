"""Passes over the captured graph: launch boundaries and library calls."""
