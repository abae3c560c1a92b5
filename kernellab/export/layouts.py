"""Other projects' formats: the layout of Hugging Face's ``kernels``, and flashinfer-bench's Definition and Solution.

Sources: github.com/huggingface/kernels, docs/source/kernel-requirements.md and ``kernels`` 0.17 (variants named
``torch-<backend>`` with a metadata.json); github.com/flashinfer-ai/flashinfer-bench, flashinfer_bench/data (0.1.2).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kernellab.content import written
from kernellab.errors import KernellabError
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.package import Package
from kernellab.export.reference import reference_text
from kernellab.task import TaskForm

#: DSL -> flashinfer-bench's language: a Python file with its own bindings is Python there
_LANGUAGES = {"triton": "triton", "tilelang": "tilelang"}
_DTYPES = {
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool",
}  # fmt: skip
_SCALARS = {"float64": "float32"}

_INSIDE = '''\
"""The same kernel, where older versions of the loader look for it."""

import importlib.util
import sys
from pathlib import Path

_path = Path(__file__).parent.parent / "__init__.py"
_spec = importlib.util.spec_from_file_location(f"{__name__}_whole", _path)
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
globals().update({name: getattr(_module, name) for name in _module.__all__})
__all__ = _module.__all__
'''


def write_kernels(package: Package, folder: Path, licence: str) -> Path:
    """Write a repository for ``kernels`` and return its folder: ``build/torch-<backend>/`` with the package and its
    metadata.json.

    Load it with ``kernels.get_local_kernel(folder)``.

    Raises:
        KernellabError: kernels for several devices (each is a separate variant), or the folder cannot be written.
    """
    devices = {k.device for k in package.kernels}
    if len(devices) > 1:
        raise KernellabError(
            "A variant of the kernels layout is for one device, and these kernels are for two.",
            "Export the sessions of each device by themselves.",
        )
    backend = devices.pop()
    variant = folder / "build" / f"torch-{backend}"
    package.write_into(variant)
    title = re.sub(r"[^a-z0-9]+", "-", package.name.lower()).strip("-")
    title = title if title[:1].isalpha() and len(title) > 1 else f"kernel-{title}"
    needed = "tvm_ffi" in "".join(text for k in package.kernels for text in k.source.files.values())
    facts = {
        "name": title,
        "id": f"_{title.replace('-', '_')}_{backend}_{package.digest}",
        "version": 1,
        "license": licence,
        "python-depends": ["tvm-ffi"] if needed else [],
        "backend": {"type": backend},
    }
    written(variant / "metadata.json", json.dumps(facts, indent=2) + "\n")
    written(variant / title.replace("-", "_") / "__init__.py", _INSIDE)
    kernels = "\n".join(f"- {k.summary}" for k in package.kernels)
    card = (
        f"---\nlicense: {licence}\ntags:\n- kernels\n---\n\n# {title}\n\n`{package.kernels[0].task.signature}`\n\n"
        f"```python\nfrom kernels import get_local_kernel\n\nmodule = get_local_kernel(path)\n"
        f"module.{package.name}(...)\n```\n\nVerified by kernellab:\n\n{kernels}\n"
    )
    written(folder / "README.md", card)
    return folder


def write_solution(kernel: VerifiedKernel, path: Path) -> tuple[Path, Path]:
    """Write flashinfer-bench's Solution of one kernel, and next to it its Definition. Returns both paths.

    Raises:
        KernellabError: an input's dtype does not exist there, or a file cannot be written.
    """
    definition = definition_of(kernel)
    solution = {
        "name": f"{kernel.name}_{kernel.source.dsl}_{kernel.source.hash}",
        "definition": definition["name"],
        "author": "kernellab",
        "description": kernel.summary,
        "spec": {
            "language": _LANGUAGES.get(kernel.source.dsl, "python"),
            "target_hardware": [kernel.device],
            "entry_point": f"{kernel.source.entry_file}::{kernel.source.entry}",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": name, "content": text} for name, text in sorted(kernel.source.files.items())],
    }
    definition_path = path.with_name(f"{path.stem.removesuffix('.solution')}.definition.json")
    return (
        written(path, json.dumps(solution, indent=1) + "\n"),
        written(definition_path, json.dumps(definition, indent=1) + "\n"),
    )


def definition_of(kernel: VerifiedKernel) -> dict[str, Any]:
    """Return the task as a Definition: an axis for each Dim, each number and each expression of its shapes.

    Raises:
        KernellabError: a dtype does not exist there.
    """
    task = kernel.task
    axes: dict[str, Any] = {d.name: {"type": "var", "description": f"{d.min} to {d.max}"} for d in task.dims}
    constraints: list[str] = []
    spelt: dict[Any, str] = {}

    def axis(extent: Any) -> str:
        if extent in axes:
            return str(extent)
        if extent not in spelt:
            name = f"n{extent}" if isinstance(extent, int) else f"e{len(spelt)}"
            spelt[extent] = name
            axes[name] = {"type": "const", "value": extent} if isinstance(extent, int) else {"type": "var"}
            if isinstance(extent, str):
                constraints.append(f"{name} == {extent}")
        return spelt[extent]

    def spec(shape: Any, dtype: str) -> dict[str, Any]:
        if shape is None:
            dtype = _SCALARS.get(dtype, dtype)
        if dtype not in _DTYPES:
            raise KernellabError(
                f"flashinfer-bench has no name for {dtype}.", "Export it as a module, a wheel or a capsule."
            )
        return {"shape": None if shape is None else [axis(e) for e in shape], "dtype": dtype}

    names = ", ".join(a.name for a in task.args)
    outputs = [f"out{i}" for i in range(len(task.outputs))] if len(task.outputs) > 1 else ["out"]
    definition: dict[str, Any] = {
        "name": kernel.name,
        "op_type": "model" if task.form is TaskForm.KERNELBENCH else "function",
        "axes": axes,
        "inputs": {a.name: spec(a.shape if a.is_tensor else None, a.dtype) for a in task.args},
        "outputs": {name: spec(o.shape, o.dtype) for name, o in zip(outputs, task.outputs, strict=True)},
        "reference": f"{reference_text(task)}\n\ndef run({names}):\n    return call({names})\n",
        "description": task.signature,
        "tags": [],
    }
    return {**definition, "constraints": constraints}
