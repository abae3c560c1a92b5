"""Formulas of sizes: their form and text, their arithmetic as polynomials, and sizes from shapes."""

from kernellab.task.formula.polynomial import exact_root, poly, simplified
from kernellab.task.formula.solve import Solved, sizes_from, solve
from kernellab.task.formula.terms import Formula, Term, named, read

__all__ = [
    "Formula",
    "Solved",
    "Term",
    "exact_root",
    "named",
    "poly",
    "read",
    "simplified",
    "sizes_from",
    "solve",
]
