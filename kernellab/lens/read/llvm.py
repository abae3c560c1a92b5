"""LLVM IR: ``!dbg`` behind each instruction, and metadata that tells its place (llvm.org/docs/SourceLevelDebugging)."""

from __future__ import annotations

import re
from functools import cache

from kernellab.lens.read.rows import NOWHERE, Place, Row, place

_META = re.compile(r"^(!\d+) = (?:distinct )?(!.*)$")
_DBG = re.compile(r",? !dbg (!\d+)")
_NOISE = re.compile(r"^(?:!|attributes #|\s+#dbg_|\s*(?:tail )?call void @llvm\.dbg\.|declare .*@llvm\.dbg\.)")


def rows(text: str) -> list[Row]:
    """The text's rows without metadata."""
    meta = {match[1]: match[2] for line in text.splitlines() if (match := _META.match(line))}

    def value(key: str, name: str) -> str:
        match = re.search(rf"\b{name}: (!?\w+|\"[^\"]*\")", meta.get(key, ""))
        return match[1].strip('"') if match else ""

    @cache
    def places(key: str) -> frozenset[Place]:
        if not meta.get(key, "").startswith("!DILocation"):
            return _line_of(key)
        file = value(_file(value(key, "scope")), "filename")
        line = int(value(key, "line") or 0)
        outer = value(key, "inlinedAt")
        own = frozenset([place(file, line)]) if file and line else NOWHERE
        return own | (places(outer) if outer else NOWHERE)

    def _line_of(key: str) -> frozenset[Place]:
        """Of a function's own mark."""
        file, line = value(value(key, "file"), "filename"), value(key, "line")
        return frozenset([place(file, line)]) if file and line.isdigit() else NOWHERE

    def _file(scope: str) -> str:
        for _ in range(32):
            if name := value(scope, "file"):
                return name
            scope = value(scope, "scope")
        return ""

    read = []
    for line in text.splitlines():
        if _NOISE.match(line):
            continue
        references = _DBG.findall(line)
        read.append(Row(_DBG.sub("", line), frozenset(at for key in references for at in places(key))))
    return read
