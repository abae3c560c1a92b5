"""Names by which a Python source is refused or flagged, as tables.

A fatal name is one that no honest kernel has. A flag is a rule's word; later stages decide.
"""

from __future__ import annotations

#: names that end, attach to or walk a process; no kernel needs them, not even for inspection
FATAL_NAMES = {
    "os._exit": "ends the process without an answer",
    "os.abort": "ends the process without an answer",
    "os.kill": "signals a process",
    "os.killpg": "signals processes",
    "signal.raise_signal": "signals a process",
    "signal.pthread_kill": "signals a process",
    "sys._getframe": "walks the stack of its caller",
    "sys._current_frames": "walks the stacks of the process",
    "inspect.currentframe": "walks the stack of its caller",
    "inspect.stack": "walks the stack of its caller",
    "gc.get_objects": "searches the process for others' tensors",
    "gc.get_referrers": "searches the process for others' tensors",
    "sys.settrace": "watches its caller",
    "sys.setprofile": "watches its caller",
    "sys.monitoring": "watches its caller",
    "threading.settrace": "watches its caller",
    "threading.setprofile": "watches its caller",
    "threading.settrace_all_threads": "watches its caller",
    "threading.setprofile_all_threads": "watches its caller",
    "torch.set_num_threads": "changes what the baseline is compared under",
    "torch.set_num_interop_threads": "changes what the baseline is compared under",
    "os.sched_setaffinity": "changes what the baseline is compared under",
}
FATAL_IMPORTS = {"kernellab": "imports the verifier", "__main__": "imports the program that runs it"}
FLAGGED_IMPORTS = {
    "threading": "thread", "_thread": "thread", "concurrent": "thread", "multiprocessing": "process",
    "subprocess": "process", "socket": "network", "urllib": "network", "requests": "network", "http": "network",
    "gc": "introspection", "inspect": "introspection", "marshal": "hidden-code", "base64": "hidden-code",
    "pickle": "hidden-code", "atexit": "deferred",
}  # fmt: skip
#: modules whose attributes only cheats replace
PROTECTED = ("torch", "time", "builtins", "numpy", "np", "triton", "sys", "os", "tvm_ffi", "gc")
#: settings that honest code changes; these are not patches
SETTINGS = (
    ".config.", ".knobs.", "torch.backends.", "sys.path", "sys.argv", "sys.stdout", "sys.stderr",
    "sys.dont_write_bytecode",
)  # fmt: skip
#: methods that read a tensor, and attributes that define an object's behaviour
READ_BY = ("data_ptr", "untyped_storage", "__class__", "__code__")
FRAMES = ("f_back", "f_globals", "f_locals", "f_builtins", "tb_frame", "gi_frame", "cr_frame")
FLAGGED_CALLS = {
    "exec": "hidden-code", "eval": "hidden-code", "__import__": "hidden-code", "importlib.import_module": "hidden-code",
    "importlib.machinery.SourceFileLoader": "hidden-code", "importlib.util.spec_from_file_location": "hidden-code",
    "runpy.run_path": "hidden-code",
    "os.fork": "process", "os.system": "process", "os.popen": "process", "mmap.mmap": "introspection",
    "torch.set_flush_denormal": "precision", "torch.set_float32_matmul_precision": "precision",
    # ways to distinguish a judge's process from a user's
    **dict.fromkeys((
        "os.getppid", "os.getlogin", "os.getuid", "os.geteuid", "os.getcwd", "os.isatty", "os.uname",
        "platform.uname", "resource.getrlimit", "socket.gethostname", "getpass.getuser", "datetime.datetime.now",
        "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today", "time.localtime", "time.gmtime",
        "time.strftime", "time.ctime", "torch.is_grad_enabled", "torch.is_inference_mode_enabled",
        "torch.is_anomaly_enabled", "torch.are_deterministic_algorithms_enabled",
        "torch.is_autocast_enabled", "torch.is_autocast_cpu_enabled", "torch.get_autocast_dtype", "torch.initial_seed",
        "torch.get_rng_state", "torch.random.initial_seed", "torch.random.get_rng_state", "signal.getsignal",
        "os.memfd_create", "os.eventfd", "os.pidfd_open", "sys.getrefcount", "sys.getrecursionlimit", "sys.gettrace",
        "sys.getprofile", "sys.getswitchinterval", "sys.getallocatedblocks", "gc.get_count", "gc.get_stats",
        "threading.active_count", "threading.enumerate", "hash",
        "torch.cuda.device_count", "torch.cuda.is_available", "torch.xpu.is_available",
        "torch.utils.data.get_worker_info",
        # what is drawn at random may decide in which processes a kernel is right
        "os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", *(f"random.{name}" for name in (
            "random", "randint", "randrange", "getrandbits", "choice", "uniform", "shuffle", "sample", "SystemRandom",
        )), *(f"secrets.{name}" for name in ("randbits", "randbelow", "choice", "token_bytes", "token_hex")),
        *(f"traceback.{name}_stack" for name in ("extract", "walk", "format", "print")), "inspect.stack",
        "inspect.currentframe", *(f"asyncio.{name}" for name in (
            "get_event_loop", "get_running_loop", "_get_running_loop", "current_task", "all_tasks",
        )),
    ), "surroundings"),
}  # fmt: skip
DECODERS = ("base64.", "marshal.", "zlib.", "bz2.", "lzma.", "binascii.", "codecs.decode", "bytes.fromhex", "urllib.")
#: products of other libraries, which the watch over the framework's operators does not see
BLAS = tuple(f"{m}.{f}" for m in ("numpy", "np") for f in ("matmul", "dot", "einsum", "tensordot", "inner", "vdot"))
BLAS_MODULES = ("numpy.linalg.", "np.linalg.", "scipy.linalg.", "numpy.fft.", "np.fft.", "scipy.fft.")
COMPUTE = frozenset({
    "matmul", "mm", "bmm", "addmm", "einsum", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear", "softmax",
    "log_softmax", "layer_norm", "group_norm", "batch_norm", "rms_norm", "instance_norm", "relu", "gelu", "silu",
    "sigmoid", "tanh", "exp", "log", "sum", "mean", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "sqrt",
    "rsqrt", "pow", "scaled_dot_product_attention", "cross_entropy", "mse_loss", "dot", "mv", "outer", "baddbmm",
    "norm", "var", "std",
})  # fmt: skip
