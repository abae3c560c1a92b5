"""Whose code does the work: measured by the judge, from outside the worker."""
