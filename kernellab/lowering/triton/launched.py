"""Launches of binaries that Triton compiled before; no other module depends on how Triton 3.6 to 3.9 specialise and
launch.

Triton compiles a function for each set of constants and options, and for properties of the other arguments: dtypes,
integers that are 1, fit 32 bits or are multiples of 16, addresses that are multiples of 16. It determines these again
in every call, and encodes the copy engine's maps again, which costs the host more than the launch itself."""

from __future__ import annotations

#: the start of a generated file for a GPU; each of its kernels is decorated with ``@kl_launched``
HELPERS = '''def kl_kind(value):
    """What Triton specialises an argument by that is neither a constant nor a tensor: what it knows of an int."""
    if type(value) is int:
        return value == 1, value % 16 == 0, -(2**31) <= value < 2**31, value < 2**63
    return type(value) if value is None or type(value) in (float, bool) else value.kind  # kl_described gives a kind


def kl_picked(places):
    """A function that takes the values at ``places`` of a tuple."""
    return operator.itemgetter(*places) if len(places) > 1 else lambda values: tuple(values[i] for i in places)


class KlLaunched:
    """A kernel that is launched by what Triton compiled for arguments of such kinds: its own way there costs more.

    ``compiled`` has binaries by their arguments' kinds, ``calls`` launches by addresses and values."""

    def __init__(self, kernel, prepare):
        self.kernel, self.prepare, self.compiled, self.calls = kernel, prepare, {}, {}
        self.constant = [p.is_constexpr for p in kernel.params]
        at = range(len(self.constant))
        self.constants = kl_picked([i for i in at if self.constant[i]])
        self.others = kl_picked([i for i in at if not self.constant[i]])

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def __getitem__(self, grid):
        return functools.partial(self.launch, grid)

    def watched(self):
        """Whether torch traces this call, or something looks at Triton's launches."""
        hooks = triton.knobs.runtime
        return (
            torch.compiler.is_compiling() or triton.JITFunction.run.__module__ != "triton.runtime.jit"
            or hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls or self.kernel.pre_run_hooks
        )  # fmt: skip

    def launch(self, grid, *arguments, **options):
        if len(arguments) != len(self.constant) or self.watched():
            return self.kernel[grid](*arguments, **options)
        driver = triton.runtime.driver.active
        device = driver.get_current_device()
        try:
            key = [device, grid, self.constants(arguments), *options, *options.values()]
            for value in self.others(arguments):
                if isinstance(value, torch.Tensor):
                    key += value.data_ptr(), value.dtype, value.is_cuda
                elif type(value) is float:  # 0.0 equals -0.0
                    key.append(value.hex())
                else:  # a descriptor of kl_described is the only one of its base
                    key += type(value), value.base if hasattr(value, "kind") else value
            key = tuple(key)
            kept = self.calls.get(key)
        except (AttributeError, TypeError):  # a value without a hash: Triton decides
            return self.kernel[grid](*arguments, **options)
        if kept is None:
            return self.first(key, device, grid, arguments, options)
        made, run, places, rest = kept
        run(*places, driver.get_current_stream(device), *rest)
        return made

    def first(self, key, device, grid, arguments, options):
        """Launch what ``calls`` does not have, and keep it there where its binary is known."""
        kinds, given = [device, *options.items()], []  # given: addresses, or the launcher asks the driver for each
        try:
            for value, constant in zip(arguments, self.constant):
                if not constant and isinstance(value, torch.Tensor):
                    given.append(value.data_ptr())
                    kinds.append((value.dtype, value.is_cuda, given[-1] % 16 == 0))
                    continue
                given.append(value)
                kinds.append(value if constant else kl_kind(value))
            kinds = tuple(kinds)
            made = self.compiled.get(kinds)
        except (AttributeError, TypeError):  # an argument whose kind is not known here: Triton decides
            made, given = None, None
        if given is None or callable(grid):
            return self.kernel[grid](*arguments, **options)
        if made is None:
            if len(self.compiled) >= 1024:
                self.compiled.clear()
            made = self.compiled[kinds] = self.kernel[grid](*arguments, **options)
            self.prepare(made)
            return made
        if len(self.calls) >= 1024:
            self.calls.clear()
        self.calls[key] = _, run, places, rest = made, *kl_run(made, (*grid, 1, 1)[:3], given)
        run(*places, triton.runtime.driver.active.get_current_stream(device), *rest)
        return made


def kl_run(made, places, given):
    """What launches a compiled kernel, and what it takes before the stream and after it."""
    run, after = made.run, (made.packed_metadata, None, None, None)
    direct = triton.__version__[:4] == "3.6." and type(run).__module__ == "triton.backends.nvidia.driver"
    if not direct or run.global_scratch_size or run.profile_scratch_size:
        return run, places, (made.function, *after, *given)
    raw, encoded = getattr(run, "kl_raw", (run.launch, list))  # past what prepares scratch memory
    fixed = run.launch_cooperative_grid, run.launch_pdl, None, None
    return raw, places, (made.function, *fixed, *after, *encoded(given))


@functools.lru_cache(maxsize=None)
def kl_cores(device):
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def kl_launched(kernel, prepare=lambda made: None):
    known = triton.__version__[:4] in ("3.6.", "3.7.", "3.8.", "3.9.")  # others launch in their own way
    quick = known and isinstance(kernel, triton.JITFunction) and torch.version.hip is None  # AMD: by sizes, too
    return KlLaunched(kernel, prepare) if quick else kernel
'''

#: added to a file with asynchronous kernels, which are decorated with ``@kl_mapped``
MAPS = '''def kl_keep_maps(made):
    """Has a compiled kernel keep the copy engine's maps, which Triton encodes in every call."""
    launch = getattr(getattr(made, "run", None), "launch", None)  # None: a hook of Triton's compiler took the call
    if not getattr(launch, "__closure__", None):
        return  # another Triton
    held = dict(zip(launch.__code__.co_freevars, [cell.cell_contents for cell in launch.__closure__]))
    encode = getattr(triton.backends.nvidia.driver, "make_tensordesc_arg", None)
    metas, raw = held.get("tensordesc_meta"), held.get("launcher")
    places = [i for i, kind in enumerate(made.src.signature.values()) if str(kind).startswith("tensordesc")]
    if encode is None or raw is None or not metas or len(metas) != len(places):
        return
    count, more, maps = len(made.src.signature), (None,) * (encode.__code__.co_argcount - 2), {}
    described = list(zip(places, metas))[::-1]

    def encoded(given):
        given = list(given)
        for place, meta in described:
            kept = hasattr(given[place], "kind")  # by kl_described: others may change between calls
            found = kept and maps.get(given[place].base)
            if not found:
                found = encode(given[place], meta, *more)
                if kept:
                    if len(maps) >= 1024:
                        maps.clear()
                    maps[given[place].base] = found
            given[place : place + 1] = found
        return given

    def launch_with_maps(*args):
        if isinstance(args[-1], (list, tuple)):  # from Triton 3.7 on the kernel's arguments are one
            return raw(*args[:-1], encoded(args[-1]))
        return raw(*args[:-count], *encoded(args[-count:]))

    made.run.kl_raw = raw, encoded
    made.run.launch = launch_with_maps


def kl_mapped(kernel):
    return kl_launched(kernel, kl_keep_maps)
'''

__all__ = ["HELPERS", "MAPS"]
