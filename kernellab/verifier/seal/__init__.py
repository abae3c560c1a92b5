"""Sealed replay (T3): a candidate's device work in one call is recorded, and repeated without the candidate.

The record is made in the candidate's worker and so is a claim. Nothing depends on its truth: the judge reads it as
data, a worker that only runs our code replays it on contents that the candidate never saw, and its outputs are compared
and its time is measured like a candidate's. A record that leaves anything out gives wrong results.
"""

from __future__ import annotations


class Unsealable(Exception):
    """A candidate cannot be sealed; the message is the end of the sentence "not sealed: ..."."""
