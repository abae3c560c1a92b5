"""A verified candidate as a function of this process, and as a file that stands alone."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError, SessionError
from kernellab.records import Author, Source, Verdict
from kernellab.session.calling import check_arguments
from kernellab.session.record.state import Best
from kernellab.target import Backend

if TYPE_CHECKING:
    from kernellab.task import Task

#: sources whose code a person has allowed to run in this process
_ALLOWED: set[str] = set()


class BestKernel:
    """The fastest candidate that passed; call it on tensors, in the reference's order (a Model's state_dict after).

    Code that a model wrote runs in this process only after it was allowed once: ``best.allow()``, or
    ``best(x, allow_model_code=True)``.
    """

    def __init__(self, best: Best, name: str, backend: Backend | None, task: Callable[[], Task]) -> None:
        self.name = name
        self.turn = best.number
        self.candidate = best.candidate
        self.source = best.candidate.source
        self.sketch = best.candidate.sketch
        self.verdict: Verdict = best.verdict
        self._backend = backend
        self._task = task

    def __call__(self, *args: Any, allow_model_code: bool = False) -> Any:
        if allow_model_code:
            self.allow()
        if self.source.origin is Author.MODEL and self.source.hash not in _ALLOWED:
            raise SessionError(
                f"{self.name}'s kernel was written by a model and would run in this process, with your rights.",
                "Read .source first; then best.allow(), or pass allow_model_code=True once.",
            )
        check_arguments(self.name, self._task(), args)
        try:
            return self.function(*args)
        except KernellabError:
            raise
        except Exception as error:
            raise SessionError(
                f"{self.name}'s kernel refused its arguments: {type(error).__name__}: {error}",
                f"It was verified for {self._task().signature}; {self.name}.best.function shows the whole traceback.",
            ) from None

    @property
    def function(self) -> Callable[..., Any]:
        """The kernel's own function, loaded once a process."""
        return load(self.source, self._backend)

    def allow(self) -> BestKernel:
        _ALLOWED.add(self.source.hash)
        return self

    def __repr__(self) -> str:
        verdict = self.verdict
        parts = [c.text for c in verdict.comparisons] or [verdict.label or "not timed"]
        time = f", {verdict.time.median_ms:.3g} ms" if verdict.time else ""
        return f"<kernel {self.name}: {', '.join(parts)}{time}, {verdict.trust.value}, turn {self.turn}>"


def load(source: Source, backend: Backend | None = None) -> Callable[..., Any]:
    """The entry function of ``source``, imported from a folder of this process's own.

    Raises:
        SessionError: the module cannot be imported, or does not define its entry.
    """
    if backend is Backend.INTERPRETER:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    return _load(source.hash, _Held(source))


class _Held:
    """Lets a Source ride through a cache that goes by its hash alone."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)


@lru_cache(maxsize=64)
def _load(digest: str, held: _Held) -> Callable[..., Any]:
    source = held.source
    folder = _folder() / digest
    for name, text in source.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    name = f"kernellab_kernel_{digest}"
    spec = importlib.util.spec_from_file_location(name, folder / source.entry_file)
    if spec is None or spec.loader is None:
        raise SessionError(f"{source.entry_file} is not a Python module.", "The entry file must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        function = getattr(module, source.entry)
    except Exception as error:
        del sys.modules[name]
        raise SessionError(
            f"The kernel's module cannot be loaded here: {type(error).__name__}: {error}.",
            "It passed in the verifier's environment; compare `kernellab doctor` here with its verdict.environment.",
        ) from error
    return function  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kernellab-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# -- export ------------------------------------------------------------------------------------------------------------

_LOADER = '''\
_FILES = {files}


def _load():
    """Write the files once, into this user's cache, and import the one that defines the kernel."""
    import importlib.util
    import os
    import sys
    import tempfile
    from pathlib import Path

    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "kernels" / "{name}-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="{name}-"))
    for name, text in _FILES.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(path.name + "." + str(os.getpid()))
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(path)
    spec = importlib.util.spec_from_file_location("{name}_{digest}", folder / "{entry_file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.{entry}


{entry} = _load()
'''


def standalone(best: BestKernel, signature: str, target: str) -> str:
    """The text of one Python module that defines the kernel and needs torch and the DSL's runtime, not kernellab."""
    source, verdict = best.source, best.verdict
    figures = [c.text for c in verdict.comparisons]
    lines = [
        f"{best.name}: {signature}",
        "",
        f"Made by kernellab for {target}; verified at trust {verdict.trust.value}"
        + (f", {', '.join(figures)}" if figures else "")
        + ".",
        f"Source {source.hash}. Call {source.entry}(*args) with the reference's arguments"
        " (a Model's state_dict values after them).",
    ]
    doc = "\n".join(textwrap.fill(line, 118) for line in lines).replace("\\", "\\\\").replace('"""', "'''")
    head = f'"""{doc}\n"""\n\n'
    if len(source.files) == 1 and not source.files[source.entry_file].lstrip().startswith("from __future__"):
        return head + source.files[source.entry_file]
    files = "{\n" + "".join(f"    {name!r}: {_literal(text)},\n" for name, text in source.files.items()) + "}"
    digest = source.hash[:8]
    body = _LOADER
    # the files come last: their own text may hold words in braces
    for key, value in {
        "{name}": best.name, "{digest}": digest, "{entry_file}": source.entry_file, "{entry}": source.entry,
        "{files}": files,
    }.items():  # fmt: skip
        body = body.replace(key, value)
    return head + body


def _literal(text: str) -> str:
    """A raw triple-quoted literal, so that the embedded file stays readable, where the text allows one."""
    for quote in ("'''", '"""'):
        if quote not in text and not text.endswith((quote[0], "\\")):
            candidate = f"r{quote}{text}{quote}"
            if "\r" not in text:
                return candidate
    return repr(text)
