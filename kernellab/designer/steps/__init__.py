"""Loops over a Dim: launches whose programs walk steps."""
