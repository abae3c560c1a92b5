"""Fences and waits: of tensor cores for copies, of registers for products, of programs for each other."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.constexpr_function
def kl_unfenced(version):
    """Is this a Triton that leaves the fence out? It places one itself since its pull request 9610."""
    numbers = []
    for part in version.split("+")[0].split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return numbers < [3, 8]


@triton.jit
def kl_fence(rows: tl.constexpr):
    """Shows tensor cores that read shared memory themselves what asynchronous copies have left there.

    A loop's loads are copied ahead by ``cp.async``, which writes as threads do; ``wgmma`` reads by another road, and
    the PTX manual ("Async proxy") asks for a fence between the two. Without it a product took what had lain there
    before. Stands before ``tl.dot``, where the compiler waits for the copies. Products of fewer than 64 rows are no
    ``wgmma``.
    """
    if rows >= 64 and tl.target_info.cuda_capability_geq(9, 0) and kl_unfenced(triton.__version__):
        tl.inline_asm_elementwise(
            "fence.proxy.async.shared::cta; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def kl_landed(sums, rows: tl.constexpr):
    """Waits for a product whose left factor is made in registers, before the loop makes the next one there.

    Triton leaves a ``wgmma`` in flight until the next step's has begun, and ptxas gives its registers to what comes
    between: "accessing the registers that contain a fragment of A before ``wgmma.wait_group``" is undefined (PTX
    manual). On an H200, int8 weights in 128 x 256 tiles had an error of 9.6e-2. A use of the sums makes it wait.
    """
    if rows >= 64 and tl.target_info.cuda_capability_geq(9, 0) and not tl.target_info.cuda_capability_geq(10, 0):
        sums = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [sums], dtype=sums.dtype, is_pure=True, pack=1)
    return sums


@triton.jit
def kl_meet(arrived, wanted):
    """Wait until ``wanted`` programs have come here in all, and see what each of them stored before.

    Programs of a team do not share caches: the release and acquire at the chip's scope order their stores and loads.
    """
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release", scope="gpu")
    while tl.atomic_add(arrived, 0, sem="acquire", scope="gpu") < wanted:
        pass
    tl.debug_barrier()
