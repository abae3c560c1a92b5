"""The files of a stand-alone Python package with kernels as an operator of torch."""

from __future__ import annotations

import hashlib
import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernellab.content import written
from kernellab.errors import KernellabError
from kernellab.export.exportable import Choice, VerifiedKernel
from kernellab.export.reference import reference_text
from kernellab.task import Arg

_RUNTIME = ("__init__.py", "autograd.py", "guards.py", "launcher.c", "launcher.py", "prebuilt.py", "recording.py",
            "reference.py", "steps.py", "torch_op.py", "training.py")  # fmt: skip

_INIT = '''\
"""{doc}
"""

import os
from pathlib import Path

from torch.compiler import is_compiling as _is_compiling

from .runtime.torch_op import Operator as _Operator

#: the operator: `operator.op` is torch.ops.{namespace}.{name}; set `operator.check_values` to "always" or "never"
operator = _Operator(Path(__file__).parent, graph={graph} or os.environ.get("KERNEL_GRAPH") == "1")


def {name}({signature}):
    """{line}"""
    if _is_compiling():
        return operator.op({arguments})
    return operator.call({arguments})


#: the same function, under the name that all kernels have
kernel = {name}

__all__ = ["kernel", "operator", "{name}"]
'''


@dataclass(frozen=True)
class Package:
    """``files`` by path inside the package ``name``; ``namespace`` is that of the operator in ``torch.ops``."""

    name: str
    namespace: str
    files: Mapping[str, str]
    kernels: tuple[VerifiedKernel, ...]
    #: of its module
    docstring: str
    #: compiled code by path inside the package, and the reasons for kernels without any
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    source_only: tuple[str, ...] = ()
    training: Training | None = None

    @property
    def digest(self) -> str:
        """A hash of the kernels and the reference, without the text around them."""
        return self.namespace.rpartition("_")[2]

    def write(self, folder: Path) -> Path:
        """Write the package as a folder inside ``folder`` and return its path. Raises KernellabError: it cannot be
        written."""
        return self.write_into(folder / self.name)

    def write_into(self, folder: Path) -> Path:
        """As :meth:`write`, with ``folder`` as the package."""
        trained = self.training.parts if self.training is not None else {}
        for kernel in self.kernels:
            _remove_compiled(folder / _folder(kernel))
        for word, kernel in trained.items():
            _remove_compiled(folder / word / _folder(kernel))
        contents: dict[str, str | bytes] = {**self.files, **self.binaries}
        for name, content in contents.items():
            written(folder / name, content)
        return folder


def _remove_compiled(folder: Path) -> None:
    """Remove the compiled code of an earlier export from a kernel's folder."""
    from kernellab.export.runtime import prebuilt

    try:
        for name in (prebuilt.LIBRARY, prebuilt.MACHINE, prebuilt.CHIP):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise KernellabError(f"{folder} cannot be written: {error.strerror}.", "Give another path.") from None
    shutil.rmtree(folder / prebuilt.CUBINS, ignore_errors=True)


@dataclass(frozen=True)
class Training:
    """Kernels for the gradients of an operator: ``forward`` gives its results and what ``backward`` reads besides them
    and the inputs, both at ``saved``. Each is an operator in a folder of the package, with guards and a reference."""

    forward: VerifiedKernel
    backward: VerifiedKernel
    saved: tuple[int, ...] = ()

    @property
    def parts(self) -> Mapping[str, VerifiedKernel]:
        """Both, by the folders of their operators."""
        return {"training/forward": self.forward, "training/backward": self.backward}

    @property
    def kernels(self) -> tuple[VerifiedKernel, ...]:
        return self.forward, self.backward

    def facts(self) -> dict[str, Any]:
        """What the runtime reads."""
        return {"folders": list(self.parts), "saved": list(self.saved)}


def package(
    kernels: Sequence[VerifiedKernel], *, graph: bool = False, choice: Choice | None = None,
    verified_as_one: VerifiedKernel | None = None, training: Training | None = None,
) -> Package:  # fmt: skip
    """Return the package of ``kernels``, which compute the same for several shapes, devices or numbers.

    Args:
        verified_as_one: all of them as they were verified as one (:mod:`kernellab.export.joined`).
        graph: the launches of one call are one CUDA graph.
        training: the kernels of its gradients; without them these are the reference's.
        choice: selects the kernel among those that accept a call. Without it the kernel with fewer shapes runs.

    Raises:
        KernellabError: the kernels compute different things, or one is not a function of its arguments.
        TaskError: the reference uses something of kernellab.
    """
    first = kernels[0]
    reference = reference_text(first.task)
    for other in kernels[1:]:
        check_same(first, reference, other)
    classes = []
    files: dict[str, str] = {}
    for kernel in kernels:
        folder = _folder(kernel)
        classes.append(kernel.facts(folder))
        files |= {f"{folder}/{name}": text for name, text in kernel.source.files.items()}
    sources = [*kernels, *(training.kernels if training is not None else ())]
    digest = hashlib.sha256("\0".join([reference, *(k.source.hash for k in sources)]).encode()).hexdigest()[:8]
    namespace = f"{first.name}_{digest}"
    facts = {
        "name": first.name,
        "namespace": namespace,
        "outputs": [{"shape": list(o.shape), "dtype": o.dtype} for o in first.task.outputs],
        "written": list(first.task.module().written),
        "classes": classes,
        "choice": choice and _choice_facts(choice, kernels),
        "training": training and training.facts(),
        # read by `kernellab check`, which verifies again; the runtime does not read it
        "sources": [{"task": k.task.text, "files": list(k.source.files)} for k in kernels],
        "one": verified_as_one and _verified_source(verified_as_one),
    }
    files["operator.json"] = json.dumps(facts, indent=1) + "\n"
    files["reference.py"] = reference
    description = described(kernels, choice, verified_as_one, training)
    files["__init__.py"] = _init(kernels, description, namespace, graph)
    files |= {f"runtime/{name}": text for name, text in runtime_files().items()}
    if training is not None:
        for word, kernel in training.parts.items():
            inside = package([kernel]).files.items()
            files |= {f"{word}/{n}": t for n, t in inside if n != "__init__.py" and not n.startswith("runtime/")}
    return Package(first.name, namespace, files, tuple(kernels), description, training=training)


def _choice_facts(choice: Choice, kernels: Sequence[VerifiedKernel]) -> dict[str, Any]:
    """Return what the runtime reads: the least size of each range and the kernel's folder, "" for the reference."""
    starts = [[at, "" if k is None else _folder(kernels[k])] for at, k in choice.starts]
    return {"dim": choice.dim, "starts": starts}


def _verified_source(kernel: VerifiedKernel) -> dict[str, str]:
    source = kernel.source
    return {"task": kernel.task.text, "file": source.files[source.entry_file], "verified": kernel.summary}


def _folder(kernel: VerifiedKernel) -> str:
    return f"kernels/k{kernel.source.hash}"


def check_same(first: VerifiedKernel, reference: str, other: VerifiedKernel) -> None:
    """Raise KernellabError unless both tasks compute the same."""
    one, two = ([(a.name, a.is_tensor, a.key) for a in k.task.args] for k in (first, other))
    if one != two or reference_text(other.task).partition('"""\n\n')[2] != reference.partition('"""\n\n')[2]:
        raise KernellabError(
            f"{first.name} and {other.name} compute different things, and one module holds one function.",
            "Export them one by one, or design both from tasks with the same reference.",
        )


@lru_cache(maxsize=1)
def runtime_files() -> Mapping[str, str]:
    """Return the runtime's files, which every package contains."""
    folder = Path(__file__).parent / "runtime"
    return {name: (folder / name).read_text(encoding="utf-8") for name in _RUNTIME}


def described(
    kernels: Sequence[VerifiedKernel], choice: Choice | None = None, verified_as_one: VerifiedKernel | None = None,
    training: Training | None = None,
) -> str:  # fmt: skip
    """Return the docstring of a package or module, without its quotes."""
    first = kernels[0]
    lines = [f"{first.name}: {first.task.signature}", "", "Made by kernellab, which it does not need. Verified:"]
    lines += [f"- {k.summary}." for k in kernels]
    lines += [f"Chosen as measured: {', '.join(choice.words([k.source.hash for k in kernels]))}."] if choice else []
    lines += [f"Verified as one: {verified_as_one.summary}."] if verified_as_one else []
    trained = training.parts.items() if training is not None else ()
    lines += [f"- {word.rpartition('/')[2]} of its gradients: {k.summary}." for word, k in trained]
    gradients = "" if training is not None else ", and gradients,"
    lines += [
        f"Source {first.source.hash}. Call {first.name}(*args) with the reference's arguments (a Model's state_dict"
        f" values after them). Calls that it was not verified for{gradients} are the reference's; it says so once.",
    ]
    wrapped = "\n".join(textwrap.fill(line, 118, subsequent_indent="  " * line.startswith("-")) for line in lines)
    return wrapped.replace("\\", "\\\\").replace('"""', "'''")


def signature(args: Sequence[Arg]) -> str:
    """Return the parameters of the function in Python; a number before a parameter without a default has none
    either."""
    open_behind = max((i for i, a in enumerate(args) if a.is_tensor or a.default is None), default=-1)
    return ", ".join(
        a.name if a.is_tensor or a.default is None or i < open_behind else f"{a.name}={a.default!r}"
        for i, a in enumerate(args)
    )


def _init(kernels: Sequence[VerifiedKernel], description: str, namespace: str, graph: bool) -> str:
    first = kernels[0]
    values = {
        "{doc}": description,
        "{namespace}": namespace,
        "{graph}": str(graph),
        "{signature}": signature(first.task.args),
        "{arguments}": ", ".join(a.name for a in first.task.args),
        "{line}": first.task.signature.replace("\\", "\\\\").replace('"', "'"),
        "{name}": first.name,
    }
    text = _INIT
    for key, value in values.items():
        text = text.replace(key, value)
    return text
