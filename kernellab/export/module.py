"""A package in one Python file: it unpacks itself into the user's cache when it is imported."""

from __future__ import annotations

import base64

from kernellab.export.package import Package, signature

#: the line above the compiled code of an exported module
COMPILED = "#: compiled code, in base 85\n_COMPILED = "
_MODULE = '''\
"""{doc}
"""

from torch.compiler import is_compiling as _is_compiling

_FILES = {files}
{title}{compiled}


def _load():
    """Write the files once, into this user's cache, and import the package that they are."""
    import base64
    import hashlib
    import importlib.util
    import os
    import sys
    import tempfile
    from pathlib import Path

    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    digest = hashlib.sha256(repr(sorted([*_FILES.items(), *_COMPILED.items()])).encode()).hexdigest()[:16]
    folder = Path(base) / "kernels" / f"{name}-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = Path(tempfile.mkdtemp(prefix="{name}-"))
    binaries = {name: base64.b85decode(text) for name, text in _COMPILED.items()}
    for name, content in [*binaries.items(), *((name, text.encode()) for name, text in _FILES.items())]:
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f"{path.name}.{os.getpid()}")
            scratch.write_bytes(content)
            scratch.replace(path)
    title = f"_{name}_{digest}"
    spec = importlib.util.spec_from_file_location(
        title, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    spec.loader.exec_module(module)
    return module


#: the operator: `operator.op` is torch.ops.{namespace}.{name}
operator = _load().operator


def {name}({signature}):
    """{line}"""
    if _is_compiling():
        return operator.op({arguments})
    return operator.call({arguments})


#: the same function, under the name that all kernels have
kernel = {name}
'''


def module_text(package: Package) -> str:
    """Return the text of one module with the contents of ``package``."""
    task = package.kernels[0].task
    compiled = {name: base64.b85encode(data).decode() for name, data in package.binaries.items()}
    files = "{\n" + "".join(f"    {name!r}: {_literal(text)},\n" for name, text in package.files.items()) + "}"
    # the files come last: their text may contain words in braces
    values = {
        "{title}": COMPILED, "{doc}": package.docstring, "{namespace}": package.namespace,
        "{signature}": signature(task.args), "{arguments}": ", ".join(a.name for a in task.args),
        "{line}": task.signature.replace("\\", "\\\\").replace('"', "'"),
        "{name}-{digest}": f"{package.name}-{{digest}}",
        "_{name}_{digest}": f"_{package.name}_{{digest}}", "{name}": package.name,
        "{compiled}": repr(compiled), "{files}": files,
    }  # fmt: skip
    text = _MODULE
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def _literal(text: str) -> str:
    """Return a literal of ``text``: raw and triple-quoted if possible, so that the embedded file stays readable."""
    for quote in ("'''", '"""'):
        if quote not in text and not text.endswith((quote[0], "\\")) and "\r" not in text:
            return f"r{quote}{text}{quote}"
    return repr(text)
