"""Loops over a Dim, which a graph holds as one operation."""
