"""Launch a generated file's kernels without a GPU: ``python launches.py FOLDER`` prints what went wrong, as JSON.

A stand-in for the driver notes each launch; Triton compiles as for an H100. FOLDER holds ``helpers.py``, what a
generated file defines before its kernels, and ``kernel.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton  # type: ignore[import-untyped]
from triton.backends.nvidia import driver as nvidia  # type: ignore[import-untyped]
from triton.runtime import driver  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parent))
from compile_for_gpu import AbsentGPU, module_of

from kernellab.verifier.seal.triton import through_triton

RAN: list[tuple[Any, ...]] = []


class Launcher:
    """What a compiled kernel is run by: arguments are noted."""

    def __init__(self, *_: Any) -> None:
        pass

    def __call__(self, *given: Any) -> None:
        RAN.append(given)


class GPU(AbsentGPU):
    launcher_cls: Any = Launcher
    device, stream = 0, 0

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, _: int = 0) -> int:
        return self.stream


def kinds(module: Any, gpu: GPU) -> list[str]:
    """Every call must run the compiled kernel that Triton chooses for it, also where others were compiled before."""
    kernel, faults = module.case_kernel, []
    store = torch.zeros(64)
    whole, odd = store[:32], store[1:33]
    assert whole.data_ptr() % 16 == 0 and odd.data_ptr() % 16
    sizes = (0, 1, 2, 16, 17, 32, -1, -16, 2**31 - 1, 2**31, 2**40, 2**63, True, False, 1.0, 0.5)
    calls = [(x, whole, n, 1.5, 32) for x in (whole, odd, whole.double(), whole.half()) for n in sizes[:5]]
    calls += [
        (whole, y, n, s, block) for y in (odd, whole) for n in sizes for s, block in ((0.25, 32), (2, 64), (2, 32))
    ]
    for warps in (4, 2):
        for _ in range(2):
            for call in calls:
                quick = kernel[(3,)](*call, num_warps=warps)
                own = kernel.kernel[(3,)](*call, num_warps=warps)
                if quick is not own:
                    faults.append(f"{call[2:]} runs another kernel than Triton's")
                (*_, here), (*_, there) = RAN[-2:]
                if RAN[-2][:5] != RAN[-1][:5] or here != there:
                    faults.append(f"{call[2:]} is launched otherwise")
    for _ in range(2):
        kernel[(2,)](whole, whole, 5, 1.5, BLOCK=32)
        if RAN[-1][9:] != (whole, whole, 5, 1.5, 32):
            faults.append("a keyword is lost")
    for _ in range(2):  # what an edited file may do
        for grid, call in (
            (lambda given: (given["n"], 2), (whole, whole, 5, 1.5, 32)),
            ((3,), (whole, whole, 5, np.float64(1.5), 32)),
        ):
            quick, own = kernel[grid](*call), kernel.kernel[grid](*call)
            if quick is not own or RAN[-2][:5] != RAN[-1][:5]:
                faults.append(f"{call[2:]} on {grid} is launched otherwise")
    for given, odd_at in ((((whole, odd), 3), (0, 1)), (((odd, whole), 3), (0, 0))) * 2:
        quick, own = module.pair_kernel[(1,)](*given), module.pair_kernel.kernel[(1,)](*given)
        if quick is not own:
            faults.append(f"a pair whose part {odd_at} is off alignment runs another kernel than Triton's")
    before = len(RAN)
    gpu.stream = 77
    kernel[(2,)](whole, whole, 17, 1.5, 32, num_warps=4)
    if RAN[-1][3] != 77 or len(RAN) != before + 1:
        faults.append("the launch is not on the current stream")
    gpu.device = 1
    if kernel[(2,)](whole, whole, 17, 1.5, 32, num_warps=4) is not kernel.kernel[(2,)](
        whole, whole, 17, 1.5, 32, num_warps=4
    ):
        faults.append("another device runs the first one's kernel")
    return faults


def looked_at(module: Any) -> list[str]:
    """Who stands in Triton's place, or hooks into launches, sees each."""
    kernel, faults, seen = module.case_kernel, [], []
    call = (torch.zeros(32), torch.zeros(32), 32, 1.5, 32)
    for _ in range(2):
        kernel[(1,)](*call)
    run = triton.JITFunction.run
    triton.JITFunction.run = lambda self, *args, **options: seen.append(self)
    kernel[(1,)](*call)
    triton.JITFunction.run = run
    hook = triton.knobs.runtime.launch_enter_hook
    hook.add(seen.append)
    kernel[(1,)](*call)
    hook.remove(seen.append)
    hooked = RAN[-1]
    with through_triton():
        if not kernel.watched():
            faults.append("a seal does not see launches")
    if kernel.watched():
        faults.append("launches are watched after a seal")
    kernel.kernel.add_pre_run_hook(lambda *_, **__: seen.append(kernel))
    kernel[(1,)](*call)
    kernel.kernel.pre_run_hooks.clear()
    if len(seen) != 2 or hooked[7] is not hook:
        faults.append("a launch is not seen")
    return faults


def other_tritons(module: Any) -> list[str]:
    """A Triton that is not known here launches in its own way."""
    kernel, version, faults = module.case_kernel.kernel, triton.__version__, []
    for other in ("3.2.0", "3.5.1", "3.10.0"):
        triton.__version__ = other
        if module.kl_launched(kernel) is not kernel:
            faults.append(f"Triton {other} is taken for a known one")
    triton.__version__ = version
    return faults


def maps(module: Any) -> list[str]:
    """Maps are encoded once an address, and what reaches the launcher is what Triton hands it."""
    module.kl_keep_maps(None)  # what Triton gives where a hook of its compiler took the call
    encoded, launched = [], []

    class Filled:
        def __getattr__(self, _: str) -> Any:
            return lambda *args: encoded.append(args) or ("map", *map(str, args))  # type: ignore[func-returns-value]

    class Described:
        def __init__(self, address: int, kind: tuple[int, ...]) -> None:
            self.base = torch.zeros(8)[address:]
            self.shape, self.strides, self.padding, self.round_f32_to_tf32 = list(kind), [kind[1], 1], "zero", False
            self.kind = "float16", (8, 8)

    class Made:
        def __init__(self) -> None:
            self.src, self.run = self, self
            self.signature = {
                "x": "tensordesc<fp16[8, 8]>",
                "n": "i32",
                "y": "tensordesc<fp16[8, 8]>",
                "B": "constexpr",
            }

    driver.active.utils = Filled()
    meta = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [8, 8], "fp4_padded": False}
    made, plain = Made(), lambda *args: launched.append(args)
    made.launch = own = nvidia.wrap_handle_tensordesc(plain, made.signature, [meta, dict(meta, swizzle=1)])  # type: ignore[attr-defined]
    module.kl_keep_maps(made)
    x, y, z = Described(0, (64, 8)), Described(1, (32, 8)), Described(2, (32, 8))
    head, faults, flat = tuple(range(13)), [], triton.__version__ < "3.7"
    for given in ((x, 3, y, 8), (x, 4, z, 8), (x, 3, y, 8)):
        args = (*head, *given) if flat else (*head, given)
        made.launch(*args)  # type: ignore[attr-defined]
        count = len(encoded)
        own(*args)
        del encoded[count:]
        one, other = ([*map(str, a[:13]), *map(str, a[13:] if flat else a[13])] for a in launched[-2:])
        if one != other:
            faults.append(f"{one} and not {other}")
    if made.launch is own or len(encoded) != 4 - 1:  # type: ignore[attr-defined]
        faults.append(f"{len(encoded)} maps were encoded for three addresses")
    del y.kind  # a descriptor of an edited file, which describes its tensor otherwise in the next call
    y.shape = [16, 8]
    made.launch(*((*head, x, 3, y, 8) if flat else (*head, (x, 3, y, 8))))  # type: ignore[attr-defined]
    if "[16, 8]" not in str(launched[-1]) or len(encoded) != 4:
        faults.append("a map is kept of what may have changed")
    return faults


def direct(module: Any) -> list[str]:
    """Triton 3.6's C function is handed what its launcher hands it, but for kernels that want scratch memory."""
    launched, faults, version = [], [], triton.__version__

    class Run:
        global_scratch_size = profile_scratch_size = 0
        launch_cooperative_grid, launch_pdl = True, False

        def __init__(self) -> None:
            self.launch = lambda *args: launched.append(args)

        def __call__(self, x: int, y: int, z: int, stream: int, function: int, *args: Any) -> None:  # as in 3.6
            self.launch(x, y, z, stream, function, self.launch_cooperative_grid, self.launch_pdl, None, None, *args)

    Run.__module__ = nvidia.__name__
    made = SimpleNamespace(run=Run(), function=7, packed_metadata=(4, 1, 0))
    triton.__version__ = "3.6.0"
    for encoded in (list, lambda given: ["map", *given]):
        run, places, rest = module.kl_run(made, (3, 2, 1), [64, 5])
        run(*places, 99, *rest)
        made.run(3, 2, 1, 99, 7, (4, 1, 0), None, None, None, *encoded([64, 5]))
        if run is made.run or launched[-2] != launched[-1]:
            faults.append(f"{launched[-2]} and not {launched[-1]}")
        made.run.kl_raw = made.run.launch, lambda given: ["map", *given]
    made.run.profile_scratch_size = 16
    others = [module.kl_run(made, (1, 1, 1), [])[0]]
    made.run.profile_scratch_size, triton.__version__ = 0, "3.7.0"
    others.append(module.kl_run(made, (1, 1, 1), [])[0])
    if any(run is not made.run for run in others):
        faults.append("scratch memory, or another Triton's launcher, is passed by")
    triton.__version__ = version
    return faults


def kept(module: Any, gpu: GPU) -> list[str]:
    """A launch that is kept differs from others in each of: grid, device, addresses, dtypes, values, options."""
    kernel, faults = module.case_kernel, []
    x, y = torch.zeros(32), torch.zeros(32)
    calls = [((3,), (x, y, 7, 1.5, 32), {}), ((3, 2), (x, y, 7, 1.5, 32), {}), ((3,), (y, x, 7, 1.5, 32), {})]
    calls += [((3,), (x.view(torch.int32), y, 7, 1.5, 32), {}), ((3,), (x, y, 9, 1.5, 32), {})]
    calls += [((3,), (x, y, 7, scale, 32), {}) for scale in (2.5, 0.0, -0.0, True, 1, 1.0)]
    calls += [((3,), (x, y, 7, 1.5, 64), {}), ((3,), (x, y, 7, 1.5, 32), {"num_warps": 8})]
    for _ in range(3):  # compiled, kept, launched by what is kept
        for grid, call, options in calls:
            gpu.stream += 1
            quick = kernel[grid](*call, **options)
            own = kernel.kernel[grid](*call, **options)
            one, other = ([v.data_ptr() if isinstance(v, torch.Tensor) else v for v in ran] for ran in RAN[-2:])
            if quick is not own or one[:6] != other[:6] or repr(one[9:]) != repr(other[9:]):
                faults.append(f"{grid}, {call[2:]}, {options} is launched otherwise: {one} and not {other}")
    if len(kernel.calls) < len(calls):
        faults.append(f"{len(kernel.calls)} launches are kept of {len(calls)}")
    return faults


def main(folder: Path) -> None:
    gpu = GPU()
    driver.set_active(gpu)
    module = module_of(folder / "kernel.py")
    helpers = module_of(folder / "helpers.py")
    faults = kinds(module, gpu) + kept(module, gpu) + looked_at(module) + other_tritons(module)
    print(json.dumps(faults + direct(helpers) + maps(helpers)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
