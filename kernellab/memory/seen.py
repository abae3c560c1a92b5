"""Features of task files that were captured before: a search of the memory needs no torch for them."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from kernellab.content import WORKSPACE, written
from kernellab.errors import KernellabError
from kernellab.memory.features import Features
from kernellab.memory.library import decoded, encoded

#: a change of what features are is a new number
_VERSION = 1
#: files whose features are kept, the newest
_MOST = 200


class Seen:
    """The features of a workspace's task files by their texts; a file that cannot be read holds none."""

    def __init__(self, workspace: Path) -> None:
        self._file = workspace / WORKSPACE / "features.json"

    def get(self, text: str) -> tuple[Features, str] | None:
        """The features of a task's text, and its class of operators; None where it was not captured yet."""
        row = self._read().get(_key(text))
        if row is None:
            return None
        with suppress(KeyError, TypeError, ValueError):
            logic, shape = decoded(row["logic"]), decoded(row["shape"])
            return Features(row["hash"], {}, {}, logic, shape, row["dtype"]), row["family"]
        return None

    def put(self, text: str, features: Features, family: str) -> None:
        """Keep the features of a task's text; a workspace that cannot be written keeps none."""
        row = {
            "hash": features.hash, "dtype": features.dtype, "family": family, "logic": encoded(features.logic),
            "shape": encoded(features.shape),
        }  # fmt: skip
        kept = {**self._read(), _key(text): row}
        with suppress(OSError, KernellabError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            written(self._file, json.dumps(dict(list(kept.items())[-_MOST:])))

    def _read(self) -> dict[str, dict[str, str]]:
        with suppress(OSError, ValueError):
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}


def _key(text: str) -> str:
    # another version may name computations otherwise
    return hashlib.sha256(f"{_VERSION}\0{text}".encode()).hexdigest()[:20]


__all__ = ["Seen"]
