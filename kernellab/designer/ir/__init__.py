"""Expressions over axes, their extents and their normal form."""
