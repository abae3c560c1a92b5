"""Sealed replay (T3): what a candidate gave the device in one call is recorded, and done again without the candidate.

The record is made in the candidate's worker and so is a claim. Nothing rests on it: the judge reads it as data, a
worker that runs our code only replays it on contents that the candidate never saw, and its outputs are compared and
its time is taken as a candidate's are. A record that leaves anything out gives wrong results.
"""

from __future__ import annotations


class Unsealable(Exception):
    """A candidate cannot be sealed; the message is the end of the sentence "not sealed: ..."."""
