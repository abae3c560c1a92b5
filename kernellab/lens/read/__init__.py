"""Readers of compilers' texts: without the marks of debug information, with the places that each line comes from."""
