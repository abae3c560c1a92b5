"""Readers of compilers' texts: they remove debug information and return the source places of each line."""
