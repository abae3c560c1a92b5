"""The long parts of a JSON text as compressed pieces, named by their content, so that equal pieces are stored once.

A string is cut before headings (``# ``), where the parts of a prompt join, and after lines chosen by their content, so
that two texts that differ in a few lines share the pieces around these, at any position. A long list or object without
long strings is one piece. In the packed text each is an object with one key and the names of its pieces::

    {"prompt": "# Task ... # Sketch ..."}   ->  {"prompt": {"$pieces": ["kR2v0aX1Qm3c", "b7Jd9Tz0_w4e"]}}
    {"rows": [{"time": 1.5, ...}, ...]}     ->  {"rows": {"$json": ["Zq81mNc2uYbA"]}}
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

_TEXT_KEY, _JSON_KEY = "$pieces", "$json"
#: least characters of a value that is packed, and of a piece
_LONG_VALUE, _LEAST_PIECE = 600, 400
#: on average one of this many lines ends a piece
_LINES_PER_PIECE = 12
_HEADING = "# "
#: a line's end, also in a quoted text
_LINE_END = re.compile(r"[^\n\\]*(?:\\(?!n)[^\n\\]*)*(?:\n|\\n|\Z)")
#: bytes of the hash in a name: a million pieces collide once in ten thousand million journals
_NAME_BYTES = 9


def pack(text: str) -> tuple[str, dict[str, bytes]]:
    """Return ``text`` (a JSON object) without its long parts, and their pieces by name. A short text is returned
    unchanged."""
    if len(text) < _LONG_VALUE:
        return text, {}
    pieces: dict[str, bytes] = {}
    value = json.loads(text)
    packed = {key: _packed(inner, pieces) for key, inner in value.items()} if isinstance(value, dict) else value
    return (_dump(packed), pieces) if pieces else (text, {})


def unpack(text: str, body: Callable[[str], bytes | None]) -> str:
    """Return the argument of :func:`pack`; ``body`` returns a piece by its name, None without one."""
    if _TEXT_KEY not in text and _JSON_KEY not in text:
        return text
    return _dump(_unpacked(json.loads(text), body))


def _packed(value: Any, pieces: dict[str, bytes]) -> Any:
    if isinstance(value, str):
        return {_TEXT_KEY: _piece_names(value, pieces)} if len(value) >= _LONG_VALUE else value
    if isinstance(value, dict):
        inner: Any = {key: _packed(each, pieces) for key, each in value.items()}
    elif isinstance(value, list):
        inner = [_packed(each, pieces) for each in value]
    else:
        return value
    dumped = _dump(inner)
    return {_JSON_KEY: _piece_names(dumped, pieces)} if len(dumped) >= _LONG_VALUE else inner


def _piece_names(text: str, pieces: dict[str, bytes]) -> list[str]:
    """Return the names of the text's pieces, and add these to ``pieces``."""
    names = []
    for piece in _pieces(text):
        data = piece.encode("utf-8", "surrogatepass")
        name = base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=_NAME_BYTES).digest()).decode()
        pieces[name] = zlib.compress(data)
        names.append(name)
    return names


def _unpacked(value: Any, body: Callable[[str], bytes | None]) -> Any:
    if isinstance(value, list):
        return [_unpacked(inner, body) for inner in value]
    if not isinstance(value, dict):
        return value
    for key in (_TEXT_KEY, _JSON_KEY):
        if value.keys() == {key} and (text := _joined(value[key], body)) is not None:
            return text if key == _TEXT_KEY else _unpacked(json.loads(text), body)
    return {key: _unpacked(inner, body) for key, inner in value.items()}


def _joined(names: Any, body: Callable[[str], bytes | None]) -> str | None:
    """Return the text of the pieces; None if these are not names of pieces."""
    if not isinstance(names, list) or not names:
        return None
    bodies = [body(name) if isinstance(name, str) else None for name in names]
    if any(piece is None for piece in bodies):
        return None
    return b"".join(zlib.decompress(piece) for piece in bodies if piece is not None).decode("utf-8", "surrogatepass")


def _pieces(text: str) -> Iterator[str]:
    begin = 0
    for match in _LINE_END.finditer(text):
        if match.start() - begin >= _LEAST_PIECE and match[0].startswith(_HEADING):
            yield text[begin : match.start()]
            begin = match.start()
        if match.end() - begin >= _LEAST_PIECE and _ends_piece(match[0]):
            yield text[begin : match.end()]
            begin = match.end()
    if begin < len(text):
        yield text[begin:]


def _ends_piece(line: str) -> bool:
    """Whether a piece ends after ``line``, by its content alone: so equal texts are cut equally at any position."""
    return zlib.crc32(line.encode("utf-8", "surrogatepass")) % _LINES_PER_PIECE == 0


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
