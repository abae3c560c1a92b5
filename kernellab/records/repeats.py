"""Errors that repeat along a dimension of an output, as a failed verdict's evidence holds them."""

from __future__ import annotations

from itertools import groupby

from pydantic import BaseModel, ConfigDict


class Repeats(BaseModel):
    """Along one dimension of an output only the places whose index modulo ``period`` is among ``residues`` hold wrong
    elements, and some of each of them do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dimension: int
    period: int
    residues: list[int]

    @property
    def words(self) -> str:
        """``index % 16 is 8 to 15``: the residues as ranges."""
        runs = [[n for _, n in run] for _, run in groupby(enumerate(self.residues), lambda at: at[1] - at[0])]
        ranges = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
        return f"index % {self.period} is {' or '.join(ranges)}"
