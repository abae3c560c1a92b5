"""The numbers of :mod:`kernellab.verifier.protocol.rules` for the inputs on which a kernel is tried: numbers at the
edges of a format, inputs drawn from a task's declaration, and combinations of several differences.

``literals`` are numbers in the text of a kernel's source. Seconds are those of the judge's own thread, unless a name
has ``wall`` in it or its comment says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kernellab.sandbox.caps import MIB


class LongBytes(NamedTuple):
    """Input bytes up to which two Dims may be long at once: ``always``, and where the declared sizes have at least a
    quarter of the larger number, ``most``."""

    always: int
    most: int


@dataclass(frozen=True)
class EdgeRule:
    """Limits of the checks at the edges of a number format."""

    #: normal float32 numbers multiplied by this are denormal
    denormal_scale: float = 2.0**-132
    #: share of elements that are -0 in checks of the signs of zeros
    negative_zero_share: float = 0.25
    #: outputs in memory that is this multiple of the reference's,
    oversized_factor: float = 8.0
    #: plus this many bytes
    oversized_bytes: int = 256 * 1024
    #: share of denormal answers returned as zeros from which they count as flushed
    flushed_share: float = 0.5

    # -- next to zeros of a result

    #: relative error that is allowed
    near_zeros_relative: float = 1e-3
    #: and multiples of what a rounding of the arguments changes, and of the reference's own error
    near_zeros_roundings: float = 16.0
    #: elements there that are needed,
    near_zeros_elements: int = 16
    #: and the share of them that may be off
    near_zeros_share: float = 0.1
    near_zeros_seconds: float = 0.3

    #: small numbers of the reference and the source whose size arguments get,
    small_literals: int = 4
    #: and seconds for these cases, by the clock
    small_seconds: float = 0.4


@dataclass(frozen=True)
class DrawnRule:
    """Inputs drawn from what a task declares (:mod:`kernellab.verifier.survey.survey`)."""

    # -- how many cases

    #: of a verification,
    verdict_cases: int = 36
    #: and of a ranking
    rank_cases: int = 10
    #: additional cases of the solver, in either
    solver_cases: int = 6
    #: seconds to find the cases of a verification,
    seconds: float = 0.8
    #: and of a ranking
    rank_seconds: float = 0.3
    #: share of ``seconds`` (``rank_seconds``) after which no case is drawn any more: the rest is the solver's
    drawing_share: float = 0.7
    #: input bytes at which cases are drawn, if the Dims' ranges allow
    case_bytes: int = 256 * 1024
    #: for large inputs, as many cases as fit in about this many seconds of calls,
    call_seconds: float = 1.2
    #: and at least this many
    min_cases: int = 8
    #: a case takes about this many times as long as the reference,
    runs_per_case: float = 6.0
    #: and passes over its data at this rate
    bytes_a_second: float = 4e8
    #: seconds by the clock of calls in Triton's interpreter, each of which takes ten milliseconds or more
    interpreted_seconds: float = 0.4
    #: seconds of one call there with a Dim as long as that allows
    interpreted_long_seconds: float = 0.5

    # -- values

    #: pairs of arguments that get special values at one position
    special_pairs: int = 3
    #: samples of probabilities and the like this close to 0 may be 0
    near_zero_bound: float = 0.02
    #: magnitudes from this share of an argument's rms on are usual, and occur in the families too
    usual_rms_share: float = 1e-3
    #: relative difference between the reference and its float64 run from which an answer is noise
    noise_error: float = 0.05
    #: arguments whose rows are sorted at a long size,
    sorted_arguments: int = 2
    #: and seconds to make these cases
    sorted_seconds: float = 0.6
    #: numbers of the source's comparisons next to which elements of each argument lie,
    comparison_numbers: int = 6
    #: and seconds for these
    comparison_seconds: float = 0.15
    #: seconds for special values late in long rows
    late_seconds: float = 0.3
    #: longest rows tried far from zero: with more terms plain sums lose too much accuracy
    shifted_row_length: int = 1 << 14

    # -- ties: equal elements, of which a kernel may take another

    #: patterns that test whether equal elements decide
    tie_patterns: int = 6
    #: share of an output's rms by which the two answers for equal elements must then differ
    tie_rms_share: float = 0.02
    #: comparisons for which exact ties are searched
    exact_edges: int = 12
    #: cases of exact ties that go before all others in an interpreter, which runs only a few
    exact_first: int = 3
    #: share of ``seconds`` (``rank_seconds``) at which the search for exact ties ends
    exact_seconds_share: float = 1.4
    #: largest magnitude of an element with which the solver searches for an edge
    far_magnitude: float = 1e6

    # -- sizes

    #: cases at a size at which a source may take another path,
    path_cases: int = 12
    #: and seconds to make them
    path_seconds: float = 0.25
    #: literals from here on may be a block size
    min_block_literal: int = 16
    #: positions around their multiples that are inspected
    seam_positions: int = 4096
    #: Dims that are tried at their ends,
    end_dims: int = 3
    #: and input bytes there
    end_bytes: int = 4 * MIB
    #: two Dims long at once
    long_bytes: LongBytes = LongBytes(40 * MIB, 64 * MIB)
    #: if the reference is expected to take at most this long
    long_seconds: float = 0.25
    #: sizes with each Dim in the upper three quarters of its range,
    wide_sizes: int = 2
    #: seconds of the reference there,
    wide_seconds: float = 0.5
    #: and input bytes
    wide_bytes: int = 128 * MIB
    #: sizes that are tried at literals, one Dim at each
    literal_sizes: int = 16
    #: literals at which all Dims are equal, and about which sizes nearby are tried
    equal_literals: int = 6
    #: sizes of two Dims at literals that stand together in the source
    paired_literals: int = 8
    #: input bytes of each of these
    literal_bytes: int = 512 * 1024

    # -- own contents of the task at one small size, each of which one call gets

    #: largest number
    own_contents: int = 1024
    #: seconds that draw them
    contents_seconds: float = 0.2
    #: seconds of the calls with them
    contents_call_seconds: float = 1.0
    #: bytes of one (if the Dims allow),
    content_bytes: int = 8 * 1024
    #: and of all
    contents_bytes: int = 16 * MIB


@dataclass(frozen=True)
class CombinedRule:
    """Cases in which several things differ at once (:mod:`kernellab.verifier.boundary_checks.combined`)."""

    # -- sizes of a Dim

    usual_size: int = 7
    #: the range from which a middle one is drawn,
    middle_sizes: tuple[int, int] = (33, 255)
    #: and a long one
    long_sizes: tuple[int, int] = (320, 900)
    #: whole tiles
    tile_sizes: tuple[int, ...] = (64, 128, 192, 256)
    #: largest literal that is a size
    max_literal_size: int = 1 << 14
    #: bytes of a combination
    max_bytes: int = 2 * MIB

    # -- what differs in addition

    #: kinds of contents of an argument,
    max_contents: int = 6
    #: and those that are always among them
    contents_first: tuple[str, ...] = ("NaN", "inf", "zero", "low", "high", "scaled")
    #: arguments that get another layout
    relaid_arguments: int = 4
    #: pairs of arguments that are one tensor
    aliased_pairs: int = 1
    #: teams of threads
    teams: tuple[int, ...] = (2, 3, 4, 8)
    #: a scalar is large from here on
    large_scalar: float = 64.0
    #: literals that divide the values of a scalar
    scalar_literals: int = 3

    # -- how many combinations

    #: that are tried although they take longer than ``seconds``,
    min_combinations: int = 48
    #: and in an interpreter although they take longer than ``DRAWN.interpreted_seconds`` on the clock
    interpreted_combinations: int = 4
    seconds: float = 0.8
    wall_seconds: float = 12.0
    #: causes of wrong answers that are searched for
    max_causes: int = 4


COMBINED = CombinedRule()
DRAWN = DrawnRule()
EDGES = EdgeRule()
