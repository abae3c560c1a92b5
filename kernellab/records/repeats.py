"""Errors that repeat along a dimension of an output, in a failed verdict's evidence."""

from __future__ import annotations

from itertools import groupby

from kernellab.records.base import Record


class Repeats(Record):
    """Along one dimension of an output, wrong elements are only at indices whose residue modulo ``period`` is in
    ``residues``, and each residue has some."""

    dimension: int
    period: int
    residues: list[int]

    @property
    def words(self) -> str:
        """``index % 16 is 8 to 15``: Return the residues as ranges."""
        runs = [[n for _, n in run] for _, run in groupby(enumerate(self.residues), lambda at: at[1] - at[0])]
        ranges = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
        return f"index % {self.period} is {' or '.join(ranges)}"
