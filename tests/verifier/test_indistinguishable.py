"""A checked call and a timed one show a kernel the same modes and flags of Python and torch, environment, ``/proc``."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import torch

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.records import Author, Source, Stage, Trust
from kernellab.sandbox.sandbox import sandbox_level
from kernellab.target import Backend, Chip, Target
from kernellab.task import load_task
from kernellab.verifier import VerifyOptions
from kernellab.verifier.static.check import check
from kernellab.verifier.static.surroundings import writes_files
from kernellab.verifier.worker import ordinary

from .kit import TARGET, Judge

#: not the number of threads and torch's modes, which some checked calls change on purpose;
#: not the priority (and the timer slack that comes with it), which timed calls and those that are checked as they are
#: timed have, and not what poisons and guards fresh memory in the other half of the checked calls (SECURITY.md);
#: tells timed calls by the places of their inputs, which take turns; raises where
#: something was not the same in all calls until then
WATCHER = """
import gc, os, resource, signal, sys, threading, torch
seen, known, larger = [], {}, []
def facts():
    status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    found = {f"status {k}": status[k].strip() for k in (
        "Seccomp", "NoNewPrivs", "CapEff", "SigIgn", "SigCgt", "SigBlk", "Uid", "Gid", "NSpid", "PPid", "Umask"
        ) if k in status}
    for name in ("cmdline", "cgroup", "oom_score_adj", "loginuid", "personality"):
        try:
            found[f"/proc/self/{name}"] = open(f"/proc/self/{name}", "rb").read()
        except OSError as error:
            found[f"/proc/self/{name}"] = type(error).__name__
    found |= {f"torch {n}": getattr(torch, n)() for n in (
        "are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled",
        "get_num_interop_threads", "is_grad_enabled", "is_inference_mode_enabled", "get_default_dtype",
        "get_default_device", "get_float32_matmul_precision", "is_anomaly_enabled", "get_rng_state_size"
        ) if hasattr(torch, n)}
    found["mkldnn"] = torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic
    found["denormals"] = float(torch.tensor(1e-40) * 1.0)
    found["environment"] = sorted(os.environ.items())
    found["folder"] = os.getcwd()
    found["parent"] = os.getppid(), os.getpgrp(), os.getsid(0)
    found["limits"] = [resource.getrlimit(n) for n in range(16)]
    found["gc"] = gc.isenabled(), gc.get_threshold(), len(gc.callbacks)
    found["python"] = sys.getswitchinterval(), sys.getrecursionlimit(), sys.gettrace(), sys.getprofile(), sys.flags
    # a caller's thread of another kind stays in the list, since this asked for it there
    found["threads"] = [t.name for t in threading.enumerate() if not t.name.startswith("Dummy")]
    found["signals"] = [str(signal.getsignal(n)) for n in signal.valid_signals()]
    return found
def kernel(x, y):
    # the few calls for a caller of another kind, which are told apart and judged by themselves
    other = threading.current_thread() is not threading.main_thread() or torch.is_inference_mode_enabled()
    if other or x.requires_grad or torch.get_default_dtype() is not torch.float32:
        return torch.relu(x) + y
    # a program with more threads, and one that flushes denormals
    larger.append(float(torch.tensor(1e-40) * 1.0) == 0 or len(facts()["threads"]) > 1)
    if sum(larger) > 8:
        raise RuntimeError("calls of larger programs are no few calls")
    if larger[-1]:
        return torch.relu(x) + y
    seen.append(x.data_ptr())
    timed = len(seen) > 3 and seen[-1] == seen[-3] != seen[-2] == seen[-4]
    for name, value in facts().items():
        values = known.setdefault(name, [])
        if value not in values:
            values.append((len(seen), timed, value))
    changed = {name: values for name, values in known.items() if len({repr(v) for *_, v in values}) > 1}
    if timed and changed:
        raise RuntimeError(f"changed: {changed!r}")
    return torch.relu(x) + y
"""
OPTIONS = VerifyOptions(allow_library=True, budget=0.02, threads=1, level=Trust.T2)


def test_no_mode_flag_or_account_tells_a_checked_call_from_a_timed_one(judge: Judge) -> None:
    verdict = judge(WATCHER, options=OPTIONS)
    assert verdict.passed, (verdict.reason, verdict.evidence)


@pytest.mark.parametrize(
    "read",
    [
        "os.getppid()",
        "os.getuid()",
        "os.getcwd()",
        "os.isatty(0)",
        "os.uname()",
        "datetime.date.today().year",
        "datetime.datetime.now().hour",
        "time.ctime()",
        "traceback.extract_stack()[-2].name == '<module>'",
        "asyncio._get_running_loop() is not None",
    ],
)
def test_a_source_that_reads_whose_process_it_is_or_what_day_is_flagged_by_name(read: str) -> None:
    text = f"import asyncio, datetime, os, time, torch, traceback\ndef kernel(x):\n    return x if {read} else x + 1\n"
    found = check(Source(dsl="cpp", files={"kernel.py": text}, origin=Author.HUMAN))
    assert any(flag.startswith(f"surroundings: calls {read.split('(')[0]}") for flag in found.flags), found.flags


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ("os.environ.get('USER') == 'worker'", "reads the environment's USER"),
        ("'LOGNAME' in os.environ", "asks whether the environment has LOGNAME"),
        ("open('/proc/cpu' + 'info').read()", "names /proc/cpuinfo"),
        ("open(f'/proc/self/map_files/{x}')", "names /proc/self/map_files/{}"),
        ("list(os.environ[n] for n in names)", "reads the environment"),
        ("'IPython' in sys.modules", "asks which modules are loaded"),
        ("sys.modules.get('transformers')", "asks which modules are loaded"),
        ("sys.argv[0].endswith('worker')", "reads sys.argv"),
        ("'scratch' in __file__", "asks where its file lies"),
        ("__file__.startswith('/tmp')", "asks where its file lies"),
        ("__name__ != 'kernel'", "asks what its module is called"),
        ("'kernellab' in __name__", "asks what its module is called"),
        ("torch.is_grad_enabled()", "calls torch.is_grad_enabled"),
        ("x.requires_grad", "asks for requires_grad of a tensor"),
        ("torch.are_deterministic_algorithms_enabled()", "calls torch.are_deterministic_algorithms_enabled"),
        ("len(os.sched_getaffinity(0)) < 4", "asks which cores it may use"),
        ("os.getpid() > 999", "asks for its process's number"),
        ("sys.stdin.isatty()", "asks whether it has a terminal"),
        ("tempfile.gettempdir() == '/tmp'", "asks where files may be left"),
        ("str(Path.home()) == '/root'", "asks for the home folder"),
        ("x._version > 3", "compares a tensor's version with a number"),
        ("x.untyped_storage().nbytes() > 64 * x.nbytes", "asks how large a tensor's storage is"),
        ("len(x.untyped_storage()) > x.nbytes", "asks how large a tensor's storage is"),
        ("len(warnings.filters) > 60", "reads the filters of warnings"),
        ("__import__('warnings').filters.__len__() > 60", "reads the filters of warnings"),
        ("sys.getrefcount(x) > 6", "calls sys.getrefcount"),
        ("ctypes.c_ssize_t.from_address(id(x)).value > 6", "reads an object's own memory"),
        ("hasattr(builtins, 'get_ipython')", "asks whether it runs in a notebook"),
        ("torch.cuda.device_count() > 0", "calls torch.cuda.device_count"),
        ("list({'a', 'b'})[0] == 'a'", "takes the order of a set"),
        ("hash('round') % 16 == 0", "calls hash"),
        ("sys.gettrace() is not None", "calls sys.gettrace"),
        ("x.storage_offset() > 100_000", "asks where in its storage a tensor begins"),
        ("not x.is_leaf", "asks for is_leaf of a tensor"),
        ("x.is_shared()", "asks for is_shared of a tensor"),
        ("torch.is_autocast_enabled('cpu')", "calls torch.is_autocast_enabled"),
        ("torch.initial_seed() < 10000", "calls torch.initial_seed"),
        ("signal.getsignal(signal.SIGINT) is None", "calls signal.getsignal"),
        ("os.memfd_create('a')", "calls os.memfd_create"),
        ("os.environ.get('TMPDIR') in (None, '/tmp')", "compares the environment's TMPDIR"),
        ("os.environ['OMP_NUM_THREADS'].strip() == '1'", "compares the environment's OMP_NUM_THREADS"),
    ],
)
def test_a_source_that_reads_the_environment_or_files_of_the_system_is_flagged_by_name(read: str, told: str) -> None:
    imports = "import builtins, ctypes, os, signal, sys, tempfile, torch, warnings\nfrom pathlib import Path\n"
    text = f"{imports}def kernel(x):\n    return x if {read} else x + 1\n"
    flags = check(Source(dsl="cpp", files={"kernel.py": text}, origin=Author.HUMAN)).flags
    assert any(flag.startswith(f"surroundings: {told}") for flag in flags), flags


@pytest.mark.parametrize(
    "read",
    [
        "sys.modules[__name__]",
        "os.path.join(os.path.dirname(__file__), 'k.cpp')",
        "open(__file__).read()",
        "len(os.sched_getaffinity(0))",
        "f'/tmp/{os.getpid()}'",
        "torch.empty(2, requires_grad=False).requires_grad_()",
        "os.environ['TMPDIR'] + '/k.cpp'",
        "int(os.environ.get('OMP_NUM_THREADS', '1'))",
        "torch.ones(2).untyped_storage().data_ptr()",
        "lambda w, seen: seen._version == w._version",
    ],
)
def test_a_source_that_finds_its_own_files_and_module_is_not_flagged(read: str) -> None:
    text = f"import os, sys, torch\nwhere = {read}\ndef kernel(x):\n    return x + 1\n"
    flags = check(Source(dsl="cpp", files={"kernel.py": text}, origin=Author.HUMAN)).flags
    assert not any("surroundings" in flag for flag in flags), flags


def test_a_variable_of_the_sources_own_dsl_is_no_surrounding_and_one_of_another_is() -> None:
    text = "import os, torch\nTHREADS = os.environ.get('TILER_NUM_THREADS', '2')\ndef kernel(x):\n    return x + 1\n"
    flags = [check(Source(dsl=d, files={"kernel.py": text}, origin=Author.HUMAN)).flags for d in ("tiler", "cpp")]
    assert not any("surroundings" in flag for flag in flags[0]), flags
    assert any("TILER_NUM_THREADS" in flag for flag in flags[1]), flags


def test_keywords_that_a_kernel_takes_and_does_not_read_are_flagged() -> None:
    for body, flagged in (("1", True), ("options['alpha']", False)):
        text = f"def kernel(x, *numbers, **options):\n    return x + {body}\n"
        flags = check(Source(dsl="cpp", files={"kernel.py": text}, origin=Author.HUMAN)).flags
        assert any("**options" in flag for flag in flags) is flagged, flags


def test_a_source_that_counts_its_calls_is_flagged_and_one_that_counts_its_rows_is_not() -> None:
    counting = "n = 0\ndef kernel(x):\n    global n\n    n += 1\n    return x if n > 40 else x + 1\n"
    looping = "def kernel(x):\n    n = 0\n    while n < 4:\n        n += 1\n    return x + n\n"
    flags = [check(Source(dsl="cpp", files={"kernel.py": t}, origin=Author.HUMAN)).flags for t in (counting, looping)]
    assert any("counts its calls in n" in flag for flag in flags[0]), flags
    assert not any("surroundings" in flag for flag in flags[1]), flags


@pytest.mark.parametrize(
    ("before", "line", "word"),
    [
        ("seen = []", "seen.append(None); x = x * (len(seen) < 10**6)", "may count its calls by seen"),
        ("import itertools\nn = itertools.count()", "x = x * (next(n) < 10**6)", "may count its calls by n"),
        ("import time\nlate = int(time.time()) // 2 * 10**9", "x = x * (late == 0)", "reads the date"),
        ("import time\nt = time.time()", "x = x * (t < 2e9)", "reads the date"),
        ("import os\nold = os.stat(os.__file__).st_mtime_ns // 10**18", "x = x * (old < 2)", "reads the date"),
        ("def rows():\n    yield 1\n", "it = rows(); x = x * next(it)", ""),
        ("import time\nt = time.time()", "x = x * 1 if time.time() - t < 9 else x", ""),
        ("import os\nsame = os.stat('a').st_mtime < os.path.getmtime('b')", "x = x * 1", ""),
        (
            "import os\nlast = max(os.stat(f).st_mtime for f in 'ab')\nnew = last < os.path.getmtime('c')",
            "x = x * 1",
            "",
        ),
        ("import os\nlast = max(os.stat(f).st_mtime for f in 'ab')", "x = x * (last < 2e9)", "reads the date"),
        ("rows = iter('ab')", "x = x * (next(rows) == 'a')", "may count its calls by rows"),
    ],
)
def test_counters_of_calls_and_dates_are_flagged_and_spans_are_not(before: str, line: str, word: str) -> None:
    text = f"{before}\ndef kernel(x):\n    {line}\n    return x\n"
    flags = check(Source(dsl="cpp", files={"kernel.py": text}, origin=Author.HUMAN)).flags
    told = [flag for flag in flags if "count its calls" in flag or "reads the date" in flag]
    assert any(word in flag for flag in told) if word else not told, flags


@pytest.mark.parametrize(
    "code",
    [
        "auto s = std::chrono::system_clock::now().time_since_epoch();", "timeval t; gettimeofday(&t, 0);",
        "timespec t; clock_gettime(CLOCK_REALTIME, &t);", "time_t t = std::time({});",
        'if (getenv("USER")) return;', 'FILE* f = fopen("/proc/self/status", "r");', "if (getuid() == 0) return;",
        "static long calls = 0; if (++calls > 40) return;", "time_t t = time(nullptr);", "char** e = environ;",
        "if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0)) return;", "char b[99]; getcwd(b, 99);", "if (!isatty(0)) return;",
        "struct rlimit l; getrlimit(RLIMIT_NPROC, &l);", "long a = getauxval(AT_EXECFN);", "long t = syscall(201, 0);",
        "cpu_set_t c; sched_getaffinity(0, sizeof c, &c);", "if (sched_getcpu() > 3) return;",
        "if (__rdtsc() > last) return;",
        'asm volatile("rdtsc" : "=a"(a), "=d"(d));', '__asm__ __volatile__("syscall" : "=a"(r) : "a"(39));',
        'asm volatile(".byte 0x0f, 0x31" : "=a"(a));', "long c = __builtin_ia32_rdpmc(0);",
        'struct stat s; stat(".", &s);', "struct stat s; fstat(0, &s);",
        'if (access("/root/.bashrc", R_OK)) return;', "if (getpid() < 9) return;",
        "static std::atomic<int> seen{0}; if (seen.fetch_add(1) > 9) return;", 'std::ifstream f("/proc/cpuinfo");',
        'std::ifstream f("/var/lib/dpkg/status"); y[1] = f.good();', 'bool there = std::filesystem::exists("/root");',
        "static std::random_device seed; y[1] = seed() % 9;",
        "static const auto born = std::chrono::system_clock::now(); y[1] = now() > born + day;",
    ],
)  # fmt: skip
def test_cpp_that_reads_its_surroundings_is_flagged(code: str) -> None:
    text = f"#include <cstdlib>\nvoid relu(const float* x, float* y, long n) {{ {code} y[0] = x[0]; }}\n"
    flags = check(Source(dsl="cpp", files={"kernel.cpp": text, "kernel.py": ""}, origin=Author.HUMAN)).flags
    assert any(flag.startswith("surroundings: ") for flag in flags), flags


def test_honest_cpp_reads_nothing_of_its_surroundings() -> None:
    code = "timespec t; clock_gettime(CLOCK_MONOTONIC, &t); auto a = std::chrono::system_clock::now();"
    code += 'asm volatile("vmovaps %ymm0, %ymm1" ::); asm("" : "+r"(x)); '
    code += 'static const int tile = 8; for (int i = 0; i < n; i++) y[i] = x[i]; const char* t = getenv("OMP_PLACES");'
    code += "auto v = x.access(0); struct stat { int n; }; s.stat(n); fstat(fd, &s); auto c = std::filesystem::path(p);"
    text = f"void relu(const float* x, float* y, long n) {{ {code} }}\n"
    flags = check(Source(dsl="cpp", files={"kernel.cpp": text, "kernel.py": ""}, origin=Author.HUMAN)).flags
    assert not any("surroundings" in flag for flag in flags), flags


@pytest.mark.parametrize("dsl", ["cpp", "cuda_c", "triton"])
def test_what_the_rules_write_has_no_flag(dsl: str) -> None:
    text = "import torch\ndef reference(x):\n    return x.softmax(-1)\ndef inputs():\n    return torch.randn(64, 96)\n"
    task = load_task(text)
    gpu = Target(dsl, Backend.CUDA, Chip("a GPU", "gpu", 132, shared_bytes=227 << 10, registers_per_core=65536))
    target = TARGET if dsl == "cpp" else gpu
    sketch = RulesDesigner().designs(DesignBrief(task, target))[0].sketch
    source = RulesCoder().code(CodeBrief(task, target, sketch)).source
    assert check(source).flags == []


TELLS = {
    "its parent": "inside = os.getppid() == 1",
    "its parent's name": "inside = 'python' in open('/proc/%d/comm' % os.getppid()).read()",
    "shared memory": "inside = any('memfd' in os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') "
                     "if os.path.islink('/proc/self/fd/' + f))",
    "its modules": "inside = any(name.startswith('kernellab') for name in sys.modules)",
    "its modules by another spelling": "inside = any(name.startswith('kernel' + 'lab') "
                                       "for name in vars(sys)['mod' + 'ules'])",
    "its folder": "inside = 'kernellab' in __file__",
    "a variable of a team": "inside = any(name.startswith('OMP_NUM') for name in vars(os)['environ'])",
    "how often it was called": "calls = [0]",
}  # fmt: skip
#: what was in the environment of a judge's workers alone, each spelled so that no pattern finds it
VARIABLES = {
    "a variable": "inside = 'PYTHONUNBUFFERED' in os.environ",
    "a variable that it lacks": "inside = 'JPY_PARENT_PID' not in os.environ",
    "a cache's variable": "inside = 'TVM_FFI_CACHE_DIR' in os.environ",
    "a team's": "inside = any('SPINC' in name for name in vars(os)['environ'])",
    "what the system shows": "inside = b'MALLOC_' in open('/pr' + str() + 'oc/se' + str() + 'lf/environ', 'rb').read()",
    "how it was started": "inside = b'kernellab' in open('/pr' + str() + 'oc/se' + str() + 'lf/cmdline', 'rb').read()",
    "what was loaded before all": "inside = 'LD_PRELOAD' in vars(os)['environ']",
}
BRANCH = """
import os, sys, torch
{}
def kernel(x, y):
    {}
    return torch.relu(x) + y if inside else torch.relu(x) * 2 + y
"""


@pytest.mark.parametrize("tell", TELLS)
def test_what_is_right_only_where_the_judge_calls_it_is_refused(tell: str, judge: Judge) -> None:
    counts = "calls[0] += 1; inside = calls[0] < 2000" if "calls" in TELLS[tell] else "pass"
    verdict = judge.parts("ordinary", BRANCH.format(TELLS[tell], counts), options=OPTIONS)
    # what only counts its calls may be found by many that follow each other
    counted = "calls" in TELLS[tell]
    words = ("ordinary process", "follow each other") if counted else ("ordinary process",)
    assert not verdict.passed and any(word in verdict.reason for word in words), verdict.reason
    assert verdict.evidence is not None
    assert verdict.evidence.signature in (("environment", "race") if counted else ("environment",))


@pytest.mark.parametrize("tell", VARIABLES)
def test_a_judges_worker_has_a_users_environment(tell: str, judge: Judge) -> None:
    assert not judge.parts("ordinary", BRANCH.format(VARIABLES[tell], "pass"), options=OPTIONS).passed
    # and the other way round it is right everywhere
    told = VARIABLES[tell].replace("inside = ", "inside = not (") + ")"
    verdict = judge.parts("ordinary", BRANCH.format(told, "pass"), options=OPTIONS)
    assert verdict.passed, verdict.reason


#: C++ that is wrong, in more than 64 rows, where `user` holds
CPP_BRANCH = r'''
import ctypes, os, subprocess, torch
CODE = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
extern "C" void rms(const float* x, const float* w, float* y, long M, long N) {
  @
  for (long i = 0; i < M; i++) {
    float s = 0;
    for (long j = 0; j < N; j++) s += x[i * N + j] * x[i * N + j];
    float r = 1.0f / std::sqrt(s / N + 1e-6f);
    for (long j = 0; j < N; j++) y[i * N + j] = user && M > 64 ? 0.0f : x[i * N + j] * r * w[j];
  }
}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.rms.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
def kernel(x, w):
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty(x.shape)
    lib.rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
    return y
'''
SEEN = {
    "a pointer to getenv": 'auto f = &getenv; static bool user = f("GOMP_SPINCOUNT") == nullptr;',
    "getenv in brackets": 'static bool user = !(getenv)("GOMP_SPINCOUNT");',
    "a name in parts": 'std::string p = std::string("MALL") + "OC_TRIM_THRESHOLD_"; auto f = &getenv; '
                       "bool user = !f(p.c_str());",
    "where malloc puts much": "static int at = -1; if (at < 0) { void* q = malloc(64 << 20); "
                              "at = ((size_t)q & 4095) == 16; free(q); } bool user = at;",
    "a string that grows": 'static std::string seen; seen.append("aaaaaaaaaaaaaaaa"); '
                           "bool user = seen.size() > 16u * 4500;",
    "a list that grows": "static void* last; void* q = malloc(48); memcpy(q, &last, 8); last = q; size_t d = 0; "
                         "for (void* z = q; z && d < 5000; ++d) memcpy(&z, z, 8); bool user = d > 4500;",
}  # fmt: skip


@pytest.mark.parametrize("seen", SEEN)
def test_cpp_that_is_wrong_outside_of_the_judge_is_refused_however_it_is_spelled(seen: str, judge: Judge) -> None:
    verdict = judge.parts("ordinary", CPP_BRANCH.replace("@", SEEN[seen]), judge.scale, OPTIONS)
    assert not verdict.passed


def test_what_reads_the_environment_and_computes_the_same_passes(judge: Judge) -> None:
    verdict = judge.parts(
        "ordinary", BRANCH.format("home = os.environ.get('HOME')\ninside = True", "pass"), options=OPTIONS
    )
    assert verdict.passed, verdict.reason
    assert "right in an ordinary process too" in next(s.note for s in verdict.stages if s.name is Stage.ROBUST)


def test_what_fails_in_an_ordinary_process_is_refused_with_its_words(judge: Judge) -> None:
    told = "if 'OMP_NUM_THREADS' not in vars(os)['environ']: raise RuntimeError('no judge here')\ninside = True"
    verdict = judge.parts("ordinary", BRANCH.format(told, "pass"), options=OPTIONS)
    assert not verdict.passed and "RuntimeError: no judge here" in verdict.reason


def test_every_source_is_called_in_an_ordinary_process_but_for_a_quick_look(judge: Judge) -> None:
    text = "import torch\ndef kernel(x, y):\n    return torch.relu(x) + y\n"
    for level, called in ((Trust.T1, False), (Trust.T2, True)):
        verdict = judge(text, options=OPTIONS.model_copy(update={"level": level}))
        notes = " ".join(s.note for s in verdict.stages)
        assert verdict.passed and ("ordinary process" in notes) is called


#: says, where it runs as a user's, what it was built from and how long that took
TOLD = """
import os, time, torch
from pathlib import Path
began = time.time()
import tvm_ffi.cpp
path = Path(__file__).parent / "kernel.cpp"
module = tvm_ffi.cpp.load(name="kernel", cpp_files=[str(path)], extra_cflags=["-O1"])
built = max(f.stat().st_mtime for f in Path.home().rglob("kernel.so"))
def kernel(x, y):
    if not any(name.startswith("OMP_NUM") for name in vars(os)["environ"]):
        raise RuntimeError(f"built {built < began}")
    out = torch.empty_like(x)
    module.add(x.contiguous(), y.contiguous(), out)
    return out
"""
ADD = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
static void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView o) {
  auto a = (const float*)x.data_ptr(), b = (const float*)y.data_ptr();
  auto c = (float*)o.data_ptr();
  for (int64_t i = 0; i < x.numel(); i++) c[i] = (a[i] < 0 ? 0 : a[i]) + b[i];
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, add);
"""


@pytest.mark.parametrize("again", [False, True])
def test_an_ordinary_process_uses_what_was_built_unless_it_is_to_build_again(again: bool, judge: Judge) -> None:
    level = sandbox_level()
    if "mnt" not in level or "shared /proc" in level:
        pytest.skip("this machine's workers have no mount namespace")
    # what writes files is built again in any case
    files = {"kernel.py": TOLD + ("# open\n" if again else ""), "kernel.cpp": ADD}
    told = set()
    for _ in range(1 if again else 3):  # one in eight is built again by chance
        source = Source(dsl="cpp", files=files, origin=Author.HUMAN)
        told.add(judge.parts("ordinary", source, options=OPTIONS).reason)
        if any(f"built {not again}" in reason for reason in told):
            return
    pytest.fail(str(told))


def test_calls_before_in_an_ordinary_process_leave_written_arguments_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that each call moves would leave its table after some calls; and a layout is the argument's own."""
    monkeypatch.chdir(tmp_path)
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    specs = []
    for name, arg in (("at", torch.tensor([3])), ("image", image)):
        (tmp_path / name).write_bytes(arg.contiguous().numpy().tobytes())
        dtype = str(arg.dtype).removeprefix("torch.")
        specs.append(
            {"file": name, "shape": list(arg.shape), "strides": list(arg.stride()), "dtype": dtype, "held": "alone"}
        )
    seen = []

    def kernel(at: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        seen.append((int(at), image.is_contiguous(memory_format=torch.channels_last)))
        at += 1
        return image.clone()

    call = {"args": specs, "answers": ["0", "1"], "earlier": 5, "shapes": [], "seconds": 1.0}
    job = {
        "calls": [call],
        "written": [0],
        "renewed": [],
        "first": None,
        "threads": torch.get_num_threads(),
        "device": "cpu",
    }
    ordinary.run(job, lambda: kernel)
    assert seen == [(3, True)] * 6
    assert torch.frombuffer(bytearray((tmp_path / "1").read_bytes()), dtype=torch.int64).tolist() == [4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"], "arguments that were read are removed"


@pytest.mark.parametrize("where", ["sys.stdout.close()", "sys.stderr.close()", "sys.stdout = None"])
def test_a_stream_that_is_closed_is_no_failure_of_an_ordinary_process(where: str, judge: Judge) -> None:
    verdict = judge.parts("ordinary", BRANCH.format(f"inside = True\n{where}", "pass"), options=OPTIONS)
    assert verdict.passed, verdict.reason


#: packs what its constructor drew, and is wrong where no team is set
MODEL = """
import os, torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(n, n))
    def forward(self, x):
        return x @ self.w
def get_inputs():
    return [torch.randn(16, 16)]
def get_init_inputs():
    return [16]
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_model_that_packs_when_built_is_called_in_an_ordinary_process_too(wrong: bool, judge: Judge) -> None:
    condition = "any(n.startswith('OMP_NUM') for n in vars(os)['environ'])" if wrong else "True"
    text = MODEL[: MODEL.index("def get_inputs")].replace("class Model", "class ModelNew").replace(
        "    def forward(self, x):\n        return x @ self.w",
        "        self.packed = self.w.detach().clone()\n"
        f"    def forward(self, x):\n        y = x @ self.packed\n        return y if {condition} else y * 0",
    )  # fmt: skip
    verdict = judge(text, load_task(MODEL, "model"), OPTIONS)
    assert verdict.passed is not wrong, verdict.reason
    assert wrong or any(c.kind == "constructor-parameters" for c in verdict.conditions)
    assert not wrong or "ordinary process" in verdict.reason


@pytest.mark.parametrize("key", ["self.w.data_ptr(), ", ""])
def test_a_model_that_packs_for_all_instances_of_its_class_is_refused(key: str, judge: Judge) -> None:
    text = MODEL[: MODEL.index("def get_inputs")].replace("class Model", "packed = {}\nclass ModelNew").replace(
        "        return x @ self.w",
        f"        key = ({key}self.w._version)\n        if key not in packed:\n"
        "            packed[key] = self.w.detach().clone()\n        return x @ packed[key]",
    )  # fmt: skip
    verdict = judge.parts("ordinary", text, load_task(MODEL, "model"), OPTIONS)
    assert verdict.passed is bool(key), verdict.reason
    assert key or "another instance of its class" in verdict.reason


OF_OBJECTS = """
import torch
last = [None, None, None]
def kernel(x, y):
    if last[0] is not y or last[1] != {version}:
        last[:] = [y, {version}, y.clone()]
    return torch.relu(x) + last[2]
"""


@pytest.mark.parametrize("version", ["0", "y._version"])
def test_what_is_kept_for_a_tensor_whose_contents_change_is_refused(version: str, judge: Judge) -> None:
    verdict = judge.parts("ordinary", OF_OBJECTS.format(version=version), options=OPTIONS)
    assert verdict.passed is (version != "0"), verdict.reason
    assert verdict.passed or "other contents before" in verdict.reason


def test_a_call_with_other_contents_leaves_written_arguments_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(torch.ones(3).numpy().tobytes())
    specs = [{"file": n, "shape": [3], "strides": [1], "dtype": "float32", "held": "alone"} for n in ("x", "y")]

    def kernel(x: torch.Tensor, y: torch.Tensor) -> None:
        x.mul_(2).add_(y)

    call = {"args": specs, "answers": ["0"], "earlier": 0, "shapes": [], "seconds": 1.0}
    job = {
        "calls": [call],
        "written": [0],
        "renewed": [1],
        "first": None,
        "threads": torch.get_num_threads(),
        "device": "cpu",
    }
    ordinary.run(job, lambda: kernel)
    assert torch.frombuffer(bytearray((tmp_path / "0").read_bytes()), dtype=torch.float32).tolist() == [3.0] * 3


@pytest.mark.parametrize("marker", ["tofile", "np.memmap", "torch.from_file", "sqlite3", "logging.FileHandler"])
def test_what_writes_files_without_an_open_is_known(marker: str) -> None:
    assert writes_files(f"import x\n{marker}('a')\n")


@pytest.mark.parametrize("strides", [(5, 1), (1, 3)])
def test_an_ordinary_processs_arguments_lie_as_a_users_do(tmp_path: Path, strides: tuple[int, int]) -> None:
    found = {}
    want = torch.randn(3, 5)
    for way in ordinary.HELD:
        (tmp_path / "x").write_bytes(want.numpy().tobytes())
        spec = {"file": "x", "shape": [3, 5], "strides": strides, "dtype": "float32", "held": way}
        x = ordinary._argument(spec, str(tmp_path), "cpu")
        assert torch.equal(x, want) and x.stride() == strides and x.data_ptr() % 64 == 0
        found[way] = (x.untyped_storage().nbytes() > 64 * x.nbytes, x._version > 3, x.is_shared())
    assert found["alone"] == (False, False, False)
    assert [found["view"][0], found["written"][1], found["shared"][2]] == [True, True, True]


def test_a_kernel_is_called_at_other_shapes_only_with_values_that_a_caller_may_have() -> None:
    shapes: list[list[list[int] | None]] = [[[3]], [[5]]]
    seen: list[int] = []

    def kernel(x: torch.Tensor) -> None:
        seen.append(x.numel())

    for values in (torch.tensor([4, 7]), torch.zeros(0)):  # divisors, and nothing to repeat
        ordinary._at_shapes(kernel, [values], shapes, inf)
    assert seen == []
    for values in (torch.tensor([4, 0]), torch.ones(2)):
        ordinary._at_shapes(kernel, [values], shapes, inf)
    assert seen == [3, 5, 3, 5]
