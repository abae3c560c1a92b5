"""All numbers that a verdict depends on, in one place: one frozen record for each kind of check.

Readers use the records (``TIMING.min_pairs``), never a copied number: :mod:`kernellab.memory.stale` hashes all of them,
so that figures of another set of numbers are known as such. Names say the unit (``_bytes``, ``_seconds``) or the kind:
``_share`` is a fraction from 0 to 1, ``_factor`` multiplies a limit, a plain count has no ending. The numbers for
inputs are in :mod:`.input_rules`, those for timed calls in :mod:`.timing_rules`, and those for CUDA devices in
:mod:`.device_rules`.

The floors and tau of the error rule follow the AKG paper (eq. 2-3) and measurements on float64 references. Each limit
should separate an honest kernel from a dishonest one. A number without a stated measurement was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernellab.sandbox.caps import MIB
from kernellab.verifier.protocol.device_rules import DEVICE as DEVICE
from kernellab.verifier.protocol.device_rules import SEAL as SEAL
from kernellab.verifier.protocol.input_rules import COMBINED as COMBINED
from kernellab.verifier.protocol.input_rules import DRAWN as DRAWN
from kernellab.verifier.protocol.input_rules import EDGES as EDGES
from kernellab.verifier.protocol.timing_rules import RANK as RANK
from kernellab.verifier.protocol.timing_rules import TIMING as TIMING


@dataclass(frozen=True)
class ErrorRule:
    """Limits of the comparison with the reference, by dtype."""

    #: eq. 2-3: at most a fraction tau of the elements may have a relative error above tau
    tau: Mapping[str, float] = field(
        default_factory=lambda: {"float64": 1e-3, "float32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2, "float8": 1e-1}
    )
    #: relative Frobenius error against float64 that is always allowed
    floor: Mapping[str, float] = field(
        default_factory=lambda: {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "float8": 6e-2}
    )
    #: the floor of an output whose operations may run in TF32
    floor_tf32: float = 2e-3
    #: tau of such an output: in a TF32 product of normal numbers, 17 % of the elements are off by more than 1e-3 (some
    #: sums nearly cancel), and 0.9 % by more than 2e-2
    tau_tf32: float = 2e-2
    #: KernelBench's float32 check (torch.allclose with these two), on the task's own inputs where kernels are strict
    close_rtol: float = 1e-4
    close_atol: float = 1e-4
    #: multiple of the framework's own error against float64 that is allowed
    framework_factor: float = 8.0
    #: "not farther than eager": the same roundings in another summation order (H200: 0.92 to 1.002 times eager's error)
    eager_error_factor: float = 1.1
    #: largest share of elements for which a cut in the formula may explain a difference as rounding
    cut_share: float = 0.05
    #: elements that may be wrong: this multiple of those without a correct digit in the reference at the declared dtype
    chaos_factor: int = 4
    #: side of the square tiles in which errors are summed
    tile_size: int = 64
    #: a tile may be off by this many floors
    tile_factor: float = 10.0
    #: a tile's norm counts as at least this share of the whole output's rms
    tile_norm_share: float = 1e-3
    #: an element may be off by this many floors of |reference| + rms(reference)
    element_factor: float = 100.0
    #: upper bound of that error; neighbours in float8 differ by a quarter, and a missing element is wrong by all of it
    element_error_max: Mapping[str, float] = field(default_factory=lambda: {"float8": 0.5})
    #: floor on inputs whose mean is far larger than their spread: two passes of plain f32 sums are off by about 1e-3
    #: there, one pass (E[x^2] - E[x]^2) by more than 3e-2
    offset_floor: float = 8e-3
    #: tau on the same inputs
    offset_tau: float = 3e-2
    #: a sum of equal terms always rounds the same way, so errors accumulate: thousands of small terms after a large one
    #: are off by 1.6e-5
    structured_factor: float = 2.0
    #: for rows scaled by 1/1000 next to usual rows: smaller values count as this share of the output's rms
    small_share: float = 1e-2
    #: least length of a row whose mean and spread are meaningful
    min_row_length: int = 32
    #: standard deviations by which a small output may exceed the number of elements that tau allows
    tau_deviations: float = 3.0
    #: a 16-bit output's slope against the answer: off by at most this share of the floor (truncation: 0.28 % of 1 %)
    scale_share: float = 0.5
    #: and by this many of the dtype's roundings for one element (five times the likely error), fewer for a mean of many
    scale_roundings: float = 1.0
    #: eq. 2's epsilon, relative to the output's rms
    epsilon: float = 1e-8


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a stage may take before the judge kills the worker."""

    #: until a worker reports that it is ready
    start: float = 30.0
    #: torch's load_inline compiles torch's headers: 90 seconds on a machine that is not idle
    build: float = 240.0
    smoke: float = 20.0
    #: one call of the candidate: this multiple of the reference's time,
    call_factor: float = 200.0
    #: and at least this
    call_least: float = 10.0
    #: factor on a call's deadline for Triton's interpreter, which is slow; a static task cannot shrink
    interpreted_factor: float = 10.0
    #: torch.compile's first call compiles
    compile: float = 180.0
    #: until a worker's first process answers, or has ended
    stop: float = 5.0
    #: until every thread of a worker has halted, on a busy machine
    halt: float = 10.0


@dataclass(frozen=True)
class StaticRule:
    """Limits of the static analysis of a source."""

    #: processor time, so that a busy machine does not reject a source
    processor_seconds: float = 3.0
    #: wall-clock time, after which the analysis ends without a result
    wall_seconds: float = 120.0
    #: bytes beyond the judge's own memory
    memory_bytes: int = 1024 * MIB
    #: files of a source
    max_files: int = 1000
    #: findings that are reported
    max_findings: int = 200


@dataclass(frozen=True)
class CorrectRule:
    """Limits of the stage that checks correctness."""

    #: one in this many checked calls gets its arguments in private memory,
    private_one_in: int = 3
    #: if they have at most this many bytes
    private_bytes: int = 4 * MIB
    #: largest bytes of a case that an ordinary process gets
    ordinary_bytes: int = 256 * MIB
    #: largest number of earlier calls of a small size there (at least half of it are made),
    earlier_calls: int = 16_000
    #: seconds for those,
    earlier_seconds: float = 0.4
    #: and calls at other small shapes before them
    earlier_shapes: int = 320
    #: all families run at sizes whose inputs and outputs are smaller than this
    family_bytes: int = 4 * MIB
    #: hidden sizes of the Dims, in addition to the task's own
    hidden_sizes: int = 4
    #: sizes from the whole ranges of the Dims
    range_sizes: int = 32
    #: seconds of the judge's thread for these,
    range_seconds: float = 0.1
    #: and wall-clock seconds
    range_wall_seconds: float = 0.5
    #: families tried at full size when the shapes are fixed and large, in addition to the task's own
    large_families: int = 5
    #: larger cases are compared at the declared dtype first,
    large_bytes: int = 32 * MIB
    #: and run with this many families
    huge_families: int = 3
    #: other numbers tried for each scalar argument,
    scalar_values: int = 8
    #: and in an interpreter
    scalar_values_interpreted: int = 3
    #: numbers of a source that are tried as values of integer arguments
    scalar_literals: int = 5
    #: values that the source compares with
    scalar_comparisons: int = 8
    #: longest time of the reference (s); after this it counts as infinite
    scalar_seconds: float = 0.5
    #: sizes at which a source may take another path
    path_sizes: int = 3
    #: threads of a team larger than a machine's loop expects
    large_team: int = 29
    #: teams of one more than a number in the source, up to which it may have allocated room for each thread
    team_literals: int = 2
    #: largest such number
    max_team: int = 256
    #: tasks over this many bytes have no metamorphic checks and no canaries
    single_family_bytes: int = 256 * MIB


@dataclass(frozen=True)
class HonestRule:
    """Limits of the checks that the work is the candidate's own."""

    #: bytes of outputs that are read again after the next call
    reread_bytes: int = 4 * MIB
    #: seconds before the judge reads outputs again for late writes
    late_write_seconds: float = 0.02
    #: least share of the call's time outside library operators
    own_share: float = 0.90

    # -- program counters sampled from the candidate's threads

    #: samples of all samplings together,
    max_samples: int = 80
    #: and the seconds of one
    sample_seconds: float = 0.4
    #: fewer samples in code that computes are not conclusive
    min_samples: int = 12
    #: further samplings while the samples are fewer and all in a library
    more_samplings: int = 8
    #: seconds between two samples, from and to: random, so that no loop runs in step with them
    sample_spacing: tuple[float, float] = (2e-5, 4e-4)
    #: pieces of code that identify a copy of a library,
    sample_pieces: int = 3
    #: and bytes of each
    sample_bytes: int = 48
    #: standard errors by which the library's share must exceed the allowed one
    share_standard_errors: float = 2.6
    #: share of the looks in code that is neither the candidate's nor known, for a refusal,
    unknown_share: float = 0.03
    #: and their least number
    min_unknown_looks: int = 3
    #: this share of the interpreter's samples in a range of ``loop_bytes`` is a loop of one of its functions; for code
    #: that it interprets, the share is an eighth to a sixth
    loop_share: float = 0.25
    loop_bytes: int = 512

    # -- seconds of a call in libraries that are no computation

    #: the framework's own handling of tensors (allocation, views, dispatch)
    library_seconds: float = 40e-6
    #: the same with none of its code in the processor's caches: no range of ``handling_bytes`` takes longer
    handling_seconds: float = 250e-6
    handling_bytes: int = 4096
    #: the runtime of a DSL may find, pass and launch kernels (Taichi 1.7.4: 0.13 ms for two launches; 0.29 ms for one
    #: of five arrays); longer times mean computation
    launch_seconds: float = 300e-6
    #: the same in calls apart from each other on a busy machine (0.8 to 1.2 ms)
    slow_launch_seconds: float = 1.5e-3
    #: of these, this many may be in ``handling_bytes`` of its code (launches: 5 to 99 us, at most 0.30 of them, by
    #: thirty samples and more), but at most ``handling_seconds``: code that computes stays in its loop
    launch_loop_seconds: float = 150e-6
    #: or this share of them
    launch_loop_share: float = 0.4

    #: places of own code that a verdict stores,
    hot_spots: int = 64
    #: and characters of a function's name
    hot_name_characters: int = 400

    # -- launches left out one at a time

    #: own kernels that are left out separately,
    max_ghosts: int = 6
    #: and seconds for the worker to find where they are bound
    ghost_seconds: float = 20.0

    # -- kinds of wrong results

    #: relative error of a timed call below which it counts as rounding, not as another call's result
    rounding_error: float = 1e-3
    #: share of wrong elements below which a timed call's result is its own
    own_wrong_share: float = 0.01
    #: relative error from which a number has no correct digit, even in an ill-conditioned problem
    no_digit_error: float = 0.1
    #: scale of inputs that distinguishes f16 from TF32
    tiny_scale: float = 2.0**-20
    #: inputs whose elements are changed individually,
    changed_inputs: int = 3
    #: and elements of each: the last and some at random
    changed_elements: int = 4


#: baselines that torch.compile builds, with its mode
COMPILED: Mapping[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}

ERROR = ErrorRule()
STATIC = StaticRule()
DEADLINES = Deadlines()
CORRECT = CorrectRule()
HONEST = HonestRule()
