"""The static rules for C++ and CUDA: in separate files, and in strings of Python. Works on text without comments."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from kernellab.dsls.base import Finding
from kernellab.dsls.functions import defined
from kernellab.dsls.text import CPP_ENDINGS, without_comments
from kernellab.verifier.static.native_surroundings import IN_CPP

ENDINGS = CPP_ENDINGS
#: what no honest kernel contains: rule, pattern, message
_FATAL = (
    ("process-memory", r"/proc/(?:self|\d+|%d)/(?:mem|environ|maps|cmdline)\b", "opens {0}"),
    ("process-memory", r"\b(?:ptrace|process_vm_readv|process_vm_writev)\s*\(", "calls {0}"),
    ("process", r"\b(?:kill|killpg|tgkill)\s*\(\s*getppid", "signals the process that judges it"),
)
#: products of the framework or a vendor by name; no dispatcher sees such a call
LIBRARY = re.compile(
    r"\b(?:cblas_[sdhb]?\w+|[sdcz]ge(?:mm|mv)_\b|cublas[A-Z]\w*|cublasLt\w+|cudnn[A-Z]\w*|mkl_\w+|dnnl::\w+|cusparse[A-Z]\w*)"
)
_FLAGGED = (
    ("thread", r"\b(?:std::thread|std::jthread|std::async|pthread_create)\b", "starts threads"),
    ("stream", r"\b(?:cudaStreamCreate\w*|cuStreamCreate\w*)\b", "makes a stream"),
    ("stream", r"\b(?:cudaGraph\w+|cudaStreamBeginCapture)\b", "uses a CUDA graph"),
    ("l2-policy", r"\b(?:cudaLimitPersistingL2CacheSize|\w*[aA]ccessPolicyWindow)\b", "pins lines in L2"),
    ("deferred", r"\b(?:cudaLaunchHostFunc|cudaStreamAddCallback|programmaticStreamSerializationAllowed|"
                 r"cudaLaunchAttributeProgrammaticStreamSerialization)\b", "lets work run after its call"),
    ("introspection", r"\b(?:dlsym|dlopen|dl_iterate_phdr)\s*\(", "looks up symbols of the process"),
    ("process", r"\b(?:system|popen|fork|vfork|execvp?e?|posix_spawnp?|_exit)\s*\(", "starts or ends processes"),
    ("network", r"\bsocket\s*\(\s*(?:AF|PF)_INET", "opens a socket"),
    ("library", r"\b(?:at|torch)::(?!empty|zeros|Tensor|kFloat|TensorOptions|ScalarType|Device|Half|BFloat16|cuda|"
                r"indexing|NoGradGuard|dtype|full|k[A-Z])[a-z_]\w*\s*\(", "calls the framework"),
    ("library", r"\b(?:thrust|cub)::\w+", "calls a library of device algorithms"),
    ("processor", r"\b(?:__builtin_cpu_(?:supports|is)|__get_cpuid\w*|__cpuid\w*)\s*\(",
     "takes other branches on other processors, which did not run"),
    ("narrow-offsets", r"\((?:int|int32_t|unsigned(?: int)?|uint32_t)\)\s*\([^()]*\*[^()]*\)\s*[+\]]",
     "cuts an offset to 32 bits, so that it is wrong from 2^31 elements on, which a view's strides may reach"),
    ("environment", r"\b(?:setenv|putenv|unsetenv|clearenv)\s*\(", "changes the environment of its process"),
    *(("surroundings", pattern, message) for pattern, message in IN_CPP),
    # what a build that counts its runs cannot see, or would show to the source (verifier/coverage)
    ("hidden-code", r"\b(?:__)?no_(?:profile_instrument_function|sanitize\w*|instrument_function)\b",
     "keeps code out of the count of what runs"),
    ("hidden-code", r"\b(?:__gcov\w*|__sanitizer_\w+|__OPTIMIZE(?:_SIZE)?__|__NO_INLINE__|"
                    r"kernellab_(?:counted|compared)|__(?:TIME|DATE|TIMESTAMP|BASE_FILE)__|__builtin_constant_p)\b",
     "tells builds apart"),
    ("hidden-code", r"\b__has_(?:include|embed)\s*\(\s*\"", "builds by what files are there"),
    ("hidden-code", r"\bgoto\s*\*", "jumps to a place that it computes, which no count of its code sees"),
    ("hidden-code", r"^[ \t]*#[ \t]*(?:line\b|\d+[ \t]*\")", "gives its lines to another file"),
    ("hidden-code", r"\b(?:asm|__asm__|__asm)\b[^{}]{0,400}?[\"\s;](?:j(?!mp)|set|cmov)[a-z]{1,3}\s+[%.\w]",
     "decides in assembly, of which nothing shows what ran"),
    ("hidden-code", r"^[ \t]*#[ \t]*define[ \t]+\w+\([^)\n]*\)[^\n]*##", "pastes tokens together"),
)  # fmt: skip
#: externally visible definitions of functions that all of a process calls by name (C library, OpenMP)
_OF_ALL = re.compile(
    r"(?:^|[;}])([^;{}]*[\w*&]\s*)\b(mem(?:cpy|move|set|cmp)|[mc]alloc|realloc|free|posix_memalign|aligned_alloc|mmap|"
    r"munmap|mprotect|getenv|clock_gettime|gettimeofday|nanosleep|dl(?:sym|open)|pthread_create|GOMP_parallel|"
    r"omp_get_\w+)\s*\([^;{}()]*\)\s*\{"
)
#: functions that clocks use: code that names one and unprotects memory overwrites it
CLOCKS = (
    "clock_gettime", "gettimeofday", "cudaEventElapsedTime", "cudaEventRecord", "cudaDeviceSynchronize",
    "cuEventElapsedTime",
)  # fmt: skip


@lru_cache(maxsize=64)
def in_file(text: str, file: str, first_line: int = 1) -> tuple[Finding, ...]:
    """Findings in C++ or CUDA; ``first_line`` is the line of ``file`` at which ``text`` begins.

    Most sources contain the same headers, which are longer than the rest; they are read once.
    """
    return () if text in headers() else tuple(_in_file(text, file, first_line))


@lru_cache(maxsize=1)
def headers() -> frozenset[str]:
    """The exact headers that lowered kernels include: nothing is hidden in them."""
    folder = Path(__file__).parents[2] / "lowering"
    return frozenset(path.read_text(encoding="utf-8") for path in folder.rglob("*.h"))


def _in_file(text: str, file: str, first_line: int) -> Iterator[Finding]:
    code = without_comments(text)
    breaks = [m.start() for m in re.finditer("\n", code)]
    own = _own(code, file.endswith(".c"))

    def line(at: int) -> int:
        return first_line + bisect_left(breaks, at)

    for rule, pattern, message in _FATAL:
        for match in re.finditer(pattern, code):
            what = match[0].rstrip("( ")
            yield Finding(rule, message.format(what), file, line(match.start()), fatal=True)
    for match in _OF_ALL.finditer(code):
        if not re.search(r"\b(?:static|return|else|namespace)\b", match[1]):
            yield Finding("patch", f"defines {match[2]}, which others call", file, line(match.start(2)), fatal=True)
    for match in LIBRARY.finditer(code):
        if match[0] in own:
            # the source's own function of that name
            continue
        yield Finding("library-call", f"calls {match[0]} of a library", file, line(match.start()), fatal=True)
    clock = re.search(rf"\b(?:{'|'.join(CLOCKS)})\b", code)
    if clock and re.search(r"\bmprotect\s*\(", code):
        yield Finding("patch", f"unprotects memory and names {clock[0]}", file, line(clock.start()), fatal=True)
    for rule, pattern, message in _FLAGGED:
        for match in re.finditer(pattern, code, re.MULTILINE):
            yield Finding(rule, f"{message} ({' '.join(match[0].split())[:40]})", file, line(match.start()))


def in_strings(tree: ast.AST, file: str) -> Iterator[Finding]:
    """Findings in the strings of a Python file that hold C++ or CUDA."""
    for text, line in _code(tree):
        yield from in_file(text, file, line)


def own_functions(trees: Iterable[ast.AST], files: Mapping[str, str]) -> frozenset[str]:
    """The names of all functions that a source's C++ and CUDA define, in ``files`` or in strings of Python."""
    names = [
        _own(without_comments(text), name.endswith(".c")) for name, text in files.items() if name.endswith(ENDINGS)
    ]
    names += [_own(without_comments(text)) for tree in trees for text, _ in _code(tree)]
    return frozenset().union(*names)


@lru_cache(maxsize=64)
def _own(code: str, plain_c: bool = False) -> frozenset[str]:
    return frozenset(function.name for function in defined(code, plain_c))


def _code(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Strings with C++ or CUDA, with their lines. Bare strings are left out unless the file reads ``__doc__``."""
    nodes = list(ast.walk(tree))
    reads_doc = any(isinstance(n, ast.Attribute) and n.attr == "__doc__" for n in nodes)
    reads_doc |= any(
        isinstance(n, (ast.Name, ast.Constant)) and "__doc__" in (getattr(n, "id", ""), getattr(n, "value", ""))
        for n in nodes
    )
    idle = set() if reads_doc else {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in idle
            and _is_code(node.value)
        ):
            yield node.value, node.lineno


def _is_code(text: str) -> bool:
    return "#include" in text or "__global__" in text or ("{" in text and ";" in text and "(" in text)
