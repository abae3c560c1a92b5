"""Loops over a Dim, each represented as one operation of a graph."""
