"""Vectors of texts, from a model that a person has named: at an endpoint, or on this machine.

``model:NAME`` asks the endpoint of ``[models]`` (its ``/embeddings``, as OpenAI's servers and many local ones have it);
``local:NAME`` loads a sentence-transformers model, which `kernellab[embed]` installs.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernellab.errors import ModelError, ModelFault
from kernellab.records import Role

if TYPE_CHECKING:
    from kernellab.models.settings import ModelSettings

#: texts in one request, and characters of one
_BATCH, _MOST_CHARS = 64, 8000


@dataclass(frozen=True)
class Embedder:
    """``vectors`` gives an array of [texts, length], each of length 1. Raises ModelError."""

    name: str
    vectors: Callable[[Sequence[str]], np.ndarray]


def open_embedder(wanted: str, settings: ModelSettings) -> Embedder:
    """The model that ``wanted`` names. Raises ModelError: it names none, or what it needs is not there."""
    kind, _, name = wanted.partition(":")
    if kind == "model" and name:
        return _at_endpoint(name, settings)
    if kind == "local" and name:
        return _here(name)
    raise ModelError(ModelFault.CONFIG, f"{wanted!r} names no embedding model.", "Write model:NAME or local:NAME.")


def _at_endpoint(name: str, settings: ModelSettings) -> Embedder:
    endpoint = settings.endpoint(Role.ANALYST, name)

    def ask(texts: Sequence[str]) -> np.ndarray:
        body = json.dumps({"model": name, "input": [text[:_MOST_CHARS] for text in texts]}).encode()
        headers = {"Content-Type": "application/json"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        request = urllib.request.Request(f"{endpoint.base_url}/embeddings", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=settings.stall_s) as reply:
                rows = sorted(json.load(reply)["data"], key=lambda row: row["index"])
            return _unit([row["embedding"] for row in rows], len(texts))
        except OSError as error:
            raise _fault(ModelFault.NETWORK, name, error) from None
        except (ValueError, KeyError, TypeError) as error:
            raise _fault(ModelFault.GARBAGE, name, error) from None

    return Embedder(name, _in_parts(ask))


def _fault(kind: ModelFault, name: str, error: Exception) -> ModelError:
    return ModelError(kind, f"The embedding model {name!r} gave no vectors: {error}.", "Check the endpoint.")


def _here(name: str) -> Embedder:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ModelError(
            ModelFault.CONFIG, "An embedding model on this machine needs sentence-transformers.",
            'pip install "kernellab[embed]"',
        ) from None  # fmt: skip
    try:
        model = SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise ModelError(
            ModelFault.CONFIG,
            f"The embedding model {name!r} cannot be loaded: {error}.",
            "Name a model or a folder.",
        ) from None
    return Embedder(name, _in_parts(lambda texts: _unit(model.encode(list(texts)), len(texts))))


def _in_parts(ask: Callable[[Sequence[str]], np.ndarray]) -> Callable[[Sequence[str]], np.ndarray]:
    return lambda texts: np.concatenate([ask(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)])


def _unit(rows: object, count: int) -> np.ndarray:
    """Raises ValueError: not one vector of numbers for each text."""
    found = np.asarray(rows, dtype=np.float32)
    if found.ndim != 2 or len(found) != count or not np.isfinite(found).all():
        raise ValueError(f"{count} texts, and an answer of shape {found.shape}")
    unit: np.ndarray = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return unit


__all__ = ["Embedder", "open_embedder"]
