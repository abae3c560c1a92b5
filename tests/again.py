"""A second look at what failed while tests ran side by side: ``python tests/again.py STATUS PYTEST OPTIONS``.

Some tests have deadlines, and a machine of two cores that runs two of them can be late. The files of those that failed
in the run before are run once more, whole and one after another, and that decides. STATUS is that run's exit status;
what was no mere failure (an interrupt, an error of pytest's own) is handed on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: pytest's exit status when some tests failed
FAILED = 1
CACHE = Path(".pytest_cache/v/cache/lastfailed")
#: more files than this are no accident
MOST = 12


def files(cache: Path = CACHE) -> list[str]:
    """The files with a failed test, in order."""
    failed = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    return sorted({name.partition("::")[0] for name in failed})


def main(status: int, options: list[str]) -> int:
    again = files()
    if status != FAILED or not 0 < len(again) <= MOST:
        return status
    print(f"\nOnce more, one after another: {' '.join(again)}", flush=True)
    return subprocess.call([sys.executable, "-m", "pytest", *again, *options])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
