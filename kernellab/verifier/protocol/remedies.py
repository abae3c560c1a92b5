"""Remedies for refusals: one sentence for each signature that evidence can have."""

from __future__ import annotations

from kernellab.records import Evidence, Verdict

OWN_PART = "Write that part as a kernel in this source"
_LIBRARY = f"{OWN_PART}; --allow-library accepts the framework's work, labelled so."
_RUN = "Let the kernel compute from its arguments alone, without looking at who calls it or ending its process."

REMEDIES = {
    # wrong results
    "edge-tile": "Mask the loads and stores of the last tile of each dimension.",
    "mask-missing": "Mask the loads and stores of the last tile of each dimension.",
    "transposed": "Check the index order of each load and the strides of the output.",
    "strided-inputs": "Read the strides of each input, or call .contiguous() first.",
    "off-by-one": "Check the start offset of each load and store.",
    "off-by-scale": "Check the divisor and the scale: the real extent counts, not the tile.",
    "off-by-constant": "Check eps, the bias and the initial value of the accumulator.",
    "accumulate-dtype": "Keep more digits: sum in a wider dtype, subtract before squaring, round once, at the store.",
    "close": "Multiply in full float32 (no TF32), or give the task --precision framework.",
    "all-zero": "Check that each tile is stored and that the grid covers the output.",
    "identity": "Store the result of the computation: what is stored is an input.",
    "nan": "Guard the division, and subtract the row's maximum before exp.",
    "unwritten": "Store each element of the output, and read no memory outside of an input, or that was not stored to.",
    "narrow-store": "Store through a pointer of the output's dtype: the one that is used has a narrower type.",
    "non-finite": "Guard the division, and subtract the row's maximum before exp.",
    "scattered": "Look for a step that depends on values (a branch, a tie), then for a tile that is not set.",
    "ties": "Check each comparison (< against <=), and which of equal values is taken.",
    "wrong-values": "Compare the formula with the reference's, operation by operation.",
    "stale": "Compute from this call's inputs, and keep no result between calls.",
    "race": "Give parallel iterations separate elements to write, or add a barrier or an atomic.",
    "shape": "Derive the output's shape from the inputs' sizes.",
    "dtype": "Cast to the reference's dtype at the store.",
    "count": "Return all of the reference's outputs, in its order.",
    "not-equivariant": "Compute each row from that row alone: look for a fixed index or a branch on values.",
    "ignores-input": "Read that argument in the kernel: its value may not be a constant in the code.",
    # memory, aliasing and state
    "out-of-bounds": "Check the bounds of the index, or mask the access.",
    "mutates-input": "Write to a separate tensor: only arguments that the reference writes into may change.",
    "aliases-input": "Return a new tensor, as the reference does.",
    "overlaps-itself": "Return a contiguous tensor in which no two elements share memory.",
    "aliases-itself": "Return a contiguous tensor in which no two elements share memory.",
    "reused-output": "Allocate each call's output in that call.",
    "left-running": "End each process that the kernel starts before it returns; better, start none.",
    "late-write": "Finish all work before returning: join the threads and synchronise the streams.",
    "rounding-mode": "Restore the rounding mode (MXCSR, fesetround) before returning.",
    "caller-state": "Restore what the call changes of its program before returning, or do not change it.",
    "environment": "Read nothing of the process, the environment or the clock: compute from the arguments alone.",
    "narrow-offsets": "Compute offsets in 64 bits.",
    # the work is not its own
    "library": _LIBRARY,
    "library-call": _LIBRARY,
    "unknown-code": "Run code that the source's own build has written to a file, or that its DSL compiles.",
    "no-kernel": _LIBRARY,
    "no-launch": "Launch a kernel of this source for every input.",
    "ghost": "Take the output from the kernels of this source: what they write must reach it.",
    "cache": "Compute every result in its call; weights may be packed once where the task marks them STATIC.",
    "result-cache": "Compute every result in its call; weights may be packed once where the task marks them STATIC.",
    "precision": "Compute in the precision that the task states, or state a lower one in the task.",
    # times
    "below-floor": "Look for work that runs outside the call, or that is skipped in timed calls.",
    "byte-floor": "Look for inputs that are not read, or work that runs outside the call.",
    "inconsistent-clocks": "Put all work on the caller's stream, and let nothing run beyond the call.",
    "unordered-stream": "Launch on the current stream, or make it wait for the other one before returning.",
    # it does not run
    "source": "Make the source smaller and flatter, in UTF-8, with file names inside its folder.",
    "syntax": "Correct the line that is named.",
    "entry": "Define the entry function or ModelNew at the top level of the entry file.",
    "import": "Import only what is installed here; `kernellab doctor` lists the DSLs that are ready.",
    "exception": "Correct the line that is named.",
    "denied": "Open no files, sockets or processes: the sandbox refuses what is not in the source or its arguments.",
    "build": "Correct the line that is named.",
    "crash": "Check the bounds of each index, and each pointer.",
    "exit": "Return from the function: the process must outlive the call.",
    "hang": "Look for a loop or a barrier that never ends, or does far more work than the reference.",
    "processor": "Look for a loop that never ends, or does far more work than the reference.",
    "deadline": (
        "Verify again with smaller sizes of the task, or from Python with a longer deadline: options={'deadline': 600}."
    ),
    "output": "Return plain dense torch tensors on the task's device, as many as the reference returns.",
    "memory": "Allocate less: the ceiling is 4 GiB and eight times the bytes of the inputs.",
    "disk": "Write less into the scratch folder.",
    "printed": "Print less, outside the loops.",
    "processes": "Start fewer threads, and no processes.",
    "baseline": "Run the reference by itself, or choose another --baseline.",
    # it interferes with its judge
    "protocol": _RUN,
    "verifier": _RUN,
    "process": _RUN,
    "process-memory": _RUN,
    "introspection": _RUN,
    "patch": "Change nothing of torch, the interpreter or the C library.",
    "hidden-code": "Write the code out as text.",
    "network": "Open no sockets: everything that a kernel needs is in its source and its arguments.",
}


#: for wrong values without a pattern, if every smaller size is right
OF_LARGE_SIZES = (
    "It is right at each smaller size that was tried: look at what changes with size (index width, tails, scratch "
    "memory, a branch on a size)."
)
_OF_FORMULAS = frozenset({"wrong-values", "scattered"})


def remedy(verdict: Verdict) -> str:
    """The remedy for a refusing verdict, by its signature; "" if it passed or none is known."""
    evidence = verdict.evidence or Evidence()
    if verdict.passed:
        return ""
    if evidence.signature in _OF_FORMULAS and right_where_smaller(evidence):
        return OF_LARGE_SIZES
    return REMEDIES.get(evidence.signature or "", "")


def lost_digits(evidence: Evidence) -> bool:
    """Is it wrong because of accumulated roundings, or those exposed by a difference of close numbers, at any place?"""
    return evidence.signature == "accumulate-dtype" or evidence.wrong_fraction == 0.0


def right_with_own_inputs(evidence: Evidence) -> bool:
    """Is it right at the failing sizes with the task's own inputs, so that values and not sizes decide?"""
    own = [case for case in evidence.tried if case.right and case.family in ("", "inputs")]
    return evidence.family not in (None, "", "inputs") and any(case.sizes == evidence.sizes for case in own)


def right_where_smaller(evidence: Evidence) -> bool:
    """Is it right in all tried cases, all of which have smaller sizes?"""
    failing = evidence.sizes or {}
    return bool(evidence.tried) and all(
        case.right and case.sizes != failing and all(n <= failing.get(name, 0) for name, n in case.sizes.items())
        for case in evidence.tried
    )
