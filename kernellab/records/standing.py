"""Whether a kernel that is right is worth using in the place of the framework's own, by its interval."""

from __future__ import annotations

from enum import Enum

#: A median below this says that the baseline may well be faster, whatever the interval holds.
LEAST = 0.95


class Standing(str, Enum):
    """A speedup with its interval, against one baseline.

    ``FASTER`` and ``SLOWER``: the whole interval is above or below 1. ``DOUBTFUL``: the median is below ``LEAST`` and
    the interval holds 1. ``EVEN``: everything else."""

    FASTER = "faster"
    EVEN = "even"
    DOUBTFUL = "doubtful"
    SLOWER = "slower"

    @classmethod
    def of(cls, speedup: float, low: float, high: float) -> Standing:
        if high < 1:
            return cls.SLOWER
        if speedup < LEAST:
            return cls.DOUBTFUL
        return cls.FASTER if low > 1 else cls.EVEN

    @property
    def advice(self) -> str:
        """The sentence on a kernel that passed and should not replace eager; "" for others."""
        return _ADVICE.get(self, "")

    @property
    def short_advice(self) -> str:
        """``keep eager`` or ``not recommended``, after a status; "" for others."""
        return _IN_SHORT.get(self, "")

    @property
    def keeps_baseline(self) -> bool:
        """Whether the baseline stays in use: it is faster, or the kernel's median is and no gain is shown."""
        return self in (Standing.SLOWER, Standing.DOUBTFUL)


_ADVICE = {
    Standing.SLOWER: "Eager is faster here: keep eager.",
    Standing.DOUBTFUL: "No faster than eager as measured: not recommended.",
}
_IN_SHORT = {Standing.SLOWER: "keep eager", Standing.DOUBTFUL: "not recommended"}


__all__ = ["LEAST", "Standing"]
