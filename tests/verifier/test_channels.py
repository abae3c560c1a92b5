"""State outside of a source by which its calls may tell each other something is flagged by name."""

from __future__ import annotations

import pytest

from kernellab.records import Source
from kernellab.verifier.static.check import check

HEAD = "import itertools\nimport logging\nimport os\nimport pathlib\nfrom pathlib import Path\nimport torch\n"
CALLS = {
    "a path": "    if Path('/tmp/mark').exists():\n        return x\n    return x * 2",
    "a path by another name": "    return x if pathlib.Path('mark').is_file() else x * 2",
    "a function of paths": "    return x if os.path.exists('mark') else x * 2",
    "a folder": "    return x if 'mark' in os.listdir('.') else x * 2",
    "a variable": "    os.environ['OMP_MARK'] = '1'\n    return x",
    "a variable's default": "    os.environ.setdefault('OMP_MARK', '1')\n    return x",
    "a logger's level": "    log = logging.getLogger('k')\n    log.setLevel(log.level + 1)\n    return x",
    "the root logger": "    return x if logging.root.handlers else x * 2",
    "a helper's path": "    return x if seen() else x * 2\ndef seen():\n    return Path('mark').exists()",
    "a list": "    SEEN.append(1)\n    return x if len(SEEN) < 900 else x * 2",
    "an iterator": "    return x if next(COUNT) < 900 else x * 2",
}
HONEST = {
    "a log": "    logging.getLogger('k').info('called')\n    return x",
    "a file at import": "    return x\nREADY = Path('kernel.so').exists()",
    "a list of its own": "    parts = []\n    parts.append(x)\n    return x if len(parts) > 1 else parts[0]",
    "a container whose length is not asked": "    SEEN.append(x.shape)\n    return x",
}


def said(body: str) -> list[str]:
    text = f"{HEAD}SEEN = []\nCOUNT = itertools.count()\ndef kernel(x):\n{body}\n"
    return [f for f in check(Source(dsl="cpp", files={"kernel.py": text})).flags if f.startswith("surroundings:")]


@pytest.mark.parametrize("what", CALLS)
def test_a_channel_between_calls_is_flagged(what: str) -> None:
    assert said(CALLS[what]), what


@pytest.mark.parametrize("what", HONEST)
def test_what_tells_calls_nothing_is_not_flagged(what: str) -> None:
    assert not said(HONEST[what]), said(HONEST[what])
