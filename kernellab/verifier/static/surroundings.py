"""Reads by which Python may distinguish a judge's process from a user's: the environment, system files about processes
and machines, the state of its program. Each is flagged by name; none is refused for this.

:func:`read_by` says of an expression what it reads: ``os.environ["HOME"]`` "reads the environment's HOME", and
``sys.argv`` "reads sys.argv". For C++ see :mod:`kernellab.verifier.static.native_surroundings`, for functions that
count their calls :mod:`kernellab.verifier.static.call_counts`.
"""

from __future__ import annotations

import ast
import re

from kernellab.verifier.static.names import Names, last_name

#: files with information about this process, the machine or the user
PATHS = re.compile(
    r"/proc/(?:self|thread-self|cpuinfo|meminfo|stat|uptime|loadavg|version|mounts|sys|pressure|\d+|%d|\{\})|"
    r"/sys/(?:devices|class|fs|kernel|hypervisor)|/etc/(?:hostname|passwd|machine-id|os-release|localtime)|"
    r"/dev/shm|memfd:|/\.dockerenv"
)
#: variables that a build, a cache or a team of threads needs
_BUILD = re.compile(
    r"^(?:TMPDIR|CC|CXX|C(?:XX)?FLAGS|LDFLAGS|PATH|CUDA_HOME|CUDA_PATH|OMP_\w+|MKL_\w+|OPENBLAS_\w+|TRITON_\w+|"
    r"TORCH\w*|TVM_\w+|XDG_CACHE_HOME|MAX_JOBS)$"
)
_READERS = ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault", "os.getenvb", "os.environb.get")
#: what a source compares, and what it learns from that
_COMPARED = {
    "sys.modules": "asks which modules are loaded", "__file__": "asks where its file lies",
    "__name__": "asks what its module is called", "os.sched_getaffinity": "asks which cores it may use",
    "os.getpid": "asks for its process's number", "threading.get_native_id": "asks for its process's number",
    "tempfile.gettempdir": "asks where files may be left", "tempfile.gettempdirb": "asks where files may be left",
    "tempfile.tempdir": "asks where files may be left",
    "pathlib.Path.home": "asks for the home folder", "os.path.expanduser": "asks for the home folder",
}  # fmt: skip
#: attributes that distinguish a training or memory-sharing program's tensors from an inference program's
_OF_TENSORS = ("requires_grad", "grad_fn", "is_inference", "is_leaf", "is_shared")
#: names of attributes that only a notebook's or a shell's modules have
_OF_SHELLS = ("get_ipython", "__IPYTHON__", "ps1")
#: functions that read memory at an address
_BY_ADDRESS = ("from_address", "cast", "string_at", "memmove", "c_void_p")
#: methods that return a tensor's storage, and those that return its size
_STORAGES, _SIZES = ("untyped_storage", "storage", "_typed_storage"), ("nbytes", "size", "__len__")


#: state of the interpreter and the machine that identifies a program
_STATE = {
    "warnings.filters": "reads the filters of warnings", "sys.ps1": "asks whether it runs in a shell",
    "builtins.get_ipython": "asks whether it runs in a notebook", "get_ipython": "asks whether it runs in a notebook",
    "time.timezone": "reads the time zone", "time.tzname": "reads the time zone", "sys.flags": "reads sys.flags",
}  # fmt: skip
#: names that may leave files for a later process, which could recognize it by them
_WRITES = re.compile(
    r"\b(?:open(?:at)?|fopen\w*|[io]?fstream|[fd]?write\w*|creat|mk\w*temp\w*|rename\w*|(?:sym)?link\w*|shutil|subprocess|"
    r"system|popen|exec[vl]\w*|tempfile|syscall|touch|mk(?:dir|nod|fifo)\w*|makedirs|dump\w*|save\w*|__import__|eval|exec|"
    r"ctypes|tofile|\w*memmap|from_file|from_buffer|sqlite3|dbm|shelve|logging|\w*Handler|zipfile|tarfile|mmap\w*|shm_\w*)\b"
)


def writes_files(text: str) -> bool:
    """May a source leave files, judging by the names in it?"""
    return _WRITES.search(text) is not None


def read_by(node: ast.expr, names: Names, dsl: str) -> str | None:
    """Describe what an expression reads of its surroundings; None if it reads nothing of them, or a variable of the
    source's own DSL, whose name begins with the DSL's."""
    text = names.text(node) if isinstance(node, (ast.Constant, ast.BinOp, ast.JoinedStr, ast.Call)) else None
    if text is not None:
        return f"names {text[:60]}" if PATHS.search(text) and "\n" not in text else None
    question = _asked(node, names)
    if question is not None:
        return question
    variable = _variable(node, names)
    if isinstance(node, ast.Compare) and any(names.of(c) == "os.environ" for c in node.comparators):
        name = names.text(node.left)
        return f"asks whether the environment has {name[:40]}" if name else "reads the environment"
    if variable is None:
        return None
    name = names.text(variable)
    if name is None:
        return "reads the environment"
    is_own = name.startswith(f"{dsl.upper()}_")
    return None if is_own or _BUILD.match(name) else f"reads the environment's {name[:40]}"


def _is_set(node: ast.expr, names: Names) -> bool:
    is_call = isinstance(node, ast.Call) and names.of(node.func) in ("set", "frozenset")
    return is_call or isinstance(node, (ast.Set, ast.SetComp))


def _variable(node: ast.expr, names: Names) -> ast.expr | None:
    """The name of the environment variable that an expression reads."""
    if isinstance(node, ast.Call) and node.args and names.of(node.func) in _READERS:
        return node.args[0]
    if isinstance(node, ast.Subscript) and names.of(node.value) in ("os.environ", "os.environb"):
        return node.slice
    return None


def _is_size_of_storage(node: ast.expr, names: Names) -> bool:
    """Does a call return the size of a tensor's storage?"""
    if not isinstance(node, ast.Call):
        return False
    storage: ast.expr | None = None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SIZES:
        storage = node.func.value
    elif names.of(node.func) == "len" and node.args:
        storage = node.args[0]
    return isinstance(storage, ast.Call) and isinstance(storage.func, ast.Attribute) and storage.func.attr in _STORAGES


def _asked(node: ast.expr, names: Names) -> str | None:
    """Describe what an expression queries about its program: how it was started, what is loaded, where its file is, its
    module's name, torch's mode, the cores it may use."""
    return next(filter(None, (question(node, names) for question in _QUESTIONS)), None) or _compared(node, names)


def _arguments_of_program(node: ast.expr, names: Names) -> str | None:
    name = names.of(node)
    return f"reads {name}" if name in ("sys.argv", "sys.orig_argv") else None


def _loop_over_modules(node: ast.expr, names: Names) -> str | None:
    loops = node.generators if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)) else []
    is_over_modules = any(names.of(part) == "sys.modules" for loop in loops for part in ast.walk(loop.iter))
    return _COMPARED["sys.modules"] if is_over_modules else None


def _attribute_of_tensor(node: ast.expr, names: Names) -> str | None:
    is_read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    return f"asks for {last_name(node)} of a tensor" if is_read and last_name(node) in _OF_TENSORS else None


def _state_of_program(node: ast.expr, names: Names) -> str | None:
    return _STATE.get(names.of(node)) if isinstance(node, (ast.Attribute, ast.Call, ast.Name)) else None


def _call(node: ast.expr, names: Names) -> str | None:
    """A call of a function by its dotted name."""
    if not isinstance(node, ast.Call):
        return None
    called = names.of(node.func)
    if called in ("hasattr", "getattr") and any(names.text(a) in _OF_SHELLS for a in node.args):
        return "asks whether it runs in a notebook or a shell"
    if called in ("list", "tuple", "iter", "enumerate", "next") and node.args and _is_set(node.args[0], names):
        return "takes the order of a set, which differs between processes"
    if _is_size_of_storage(node, names):
        return "asks how large a tensor's storage is"
    return None


def _method(node: ast.expr, names: Names) -> str | None:
    """A call of a method by its last name."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    if node.func.attr == "storage_offset":
        return "asks where in its storage a tensor begins"
    if node.func.attr in _BY_ADDRESS:
        parts = [part for argument in node.args for part in ast.walk(argument)]
        if any(isinstance(part, ast.Call) and names.of(part.func) == "id" for part in parts):
            return "reads an object's own memory, as how often it is held"
    # os.isatty is flagged as a call, by its name
    if node.func.attr == "isatty" and names.of(node.func) != "os.isatty":
        return "asks whether it has a terminal"
    return None


#: the questions that one expression asks; the first that applies describes it
_QUESTIONS = (
    _arguments_of_program, _loop_over_modules, _attribute_of_tensor, _state_of_program, _call, _method,
)  # fmt: skip


def _compared(node: ast.expr, names: Names) -> str | None:
    """What an expression compares with something, or searches in a text."""
    compared: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        compared = [node.left, *node.comparators]
        parts = [part for side in compared for part in ast.walk(side)]
        is_version = any(isinstance(p, ast.Attribute) and p.attr == "_version" for p in parts)
        if is_version and any(isinstance(p, ast.Constant) for p in parts):
            # a cache compares one version with another
            return "compares a tensor's version with a number"
        for part in parts:
            variable = _variable(part, names) if isinstance(part, ast.expr) else None
            name = names.text(variable) if variable is not None else None
            if name is not None and _BUILD.match(name):
                return f"compares the environment's {name[:40]}"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_module = names.of(node.func.value) == "sys.modules" and node.func.attr == "get"
        is_search = node.func.attr in ("startswith", "endswith", "find", "index", "count")
        compared = [node.func.value] if is_module or is_search else []
    values = {names.of(part) for part in compared}
    values |= {names.of(n.func) for part in compared for n in ast.walk(part) if isinstance(n, ast.Call)}
    return next((description for name, description in _COMPARED.items() if name in values), None)


def swallowed(function: ast.FunctionDef) -> str | None:
    """The name under which a function accepts all keyword arguments without reading any of them."""
    rest = function.args.kwarg
    if rest is None or any(isinstance(n, ast.Name) and n.id == rest.arg for n in ast.walk(function)):
        return None
    return rest.arg
