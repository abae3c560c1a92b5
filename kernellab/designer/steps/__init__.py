"""Loops over a Dim: launches whose programs run all steps."""
