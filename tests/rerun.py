"""A second look at what failed while tests ran side by side: ``python tests/rerun.py STATUS SECONDS PYTEST OPTIONS``.

Some tests have deadlines, and a machine of two cores that runs two of them can be late. The files of those that failed
in the run before are run once more, whole and one after another. A test that fails and then passes is flaky: it is
named, counted, and written with the run to a log outside of the tree (``KERNELLAB_TEST_LOG``, else
``~/.cache/kernellab/test-runs.jsonl``). ``python tests/rerun.py --last`` shows the last ten runs.

STATUS is the first run's exit status; what was not only failed tests (an interrupt, an error of pytest's own) is handed
on. The log has a line for every run: its day, commit, seconds, whether it passed, the flaky and failed tests, the
seconds of each file and of the slowest tests, and those that processes waited for their turns. The next run begins
with the longest files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: pytest's exit status when some tests failed
FAILED = 1
CACHE = Path(".pytest_cache/v/cache/lastfailed")
#: where a run leaves its files' seconds in pytest's cache
SECONDS = "kernellab/seconds"
#: so many tests of a run are in the log with their seconds
SLOWEST = 200
#: failed tests of more files than this are no accident
MOST = 12
SHOWN = 10


def failed(cache: Path = CACHE) -> list[str]:
    """The tests that failed in the last run, in order."""
    return sorted(json.loads(cache.read_text(encoding="utf-8"))) if cache.exists() else []


def log_file() -> Path:
    chosen = os.environ.get("KERNELLAB_TEST_LOG")
    return Path(chosen) if chosen else Path.home() / ".cache" / "kernellab" / "test-runs.jsonl"


def file_seconds(cache: Path = Path(".pytest_cache/v") / SECONDS) -> dict[str, Any]:
    """``files`` and ``tests``: their seconds in the last run; ``waited``: those of processes. Empty without a run."""
    try:
        found: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def last_seconds(kind: str = "files") -> dict[str, float]:
    """The seconds of each file (or of the slowest ``tests``) in the last run of the log that has them."""
    try:
        rows = [json.loads(line) for line in log_file().read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return {}
    return next((row[kind] for row in reversed(rows) if row.get(kind)), {})


def write(status: int, seconds: float, flaky: list[str], wrong: list[str], files: dict[str, Any]) -> None:
    """Appends one run to the log; a log that cannot be written is reported and ends nothing."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    day = time.strftime("%Y-%m-%d %H:%M")
    row = {"day": day, "commit": git.stdout.strip(), "seconds": round(seconds), "status": status, **files}
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        with log_file().open("a", encoding="utf-8") as log:
            log.write(json.dumps({**row, "flaky": flaky, "failed": wrong}) + "\n")
    except OSError as error:
        print(f"The log of test runs cannot be written: {error}")


def last(count: int = SHOWN) -> str:
    """The last runs, a line each, and the tests that were flaky in them with how often."""
    if not log_file().exists():
        return f"No run is recorded in {log_file()}."
    rows = [json.loads(line) for line in log_file().read_text(encoding="utf-8").splitlines()][-count:]
    lines = [
        f"{row['day']}  {row['commit']:<10} {row['seconds'] / 60:5.1f} min  "
        f"{'passed' if row['status'] == 0 else 'failed'}, {len(row['flaky'])} flaky, {len(row['failed'])} failed"
        for row in rows
    ]
    names = [name for row in rows for name in row["flaky"]]
    for kind in ("files", "tests"):
        slowest = sorted(last_seconds(kind).items(), key=lambda item: -item[1])[:SHOWN]
        lines += [f"{seconds:6.0f} s  {name}" for name, seconds in slowest]
    return "\n".join([*lines, *(f"flaky {names.count(name)} of {len(rows)}: {name}" for name in dict.fromkeys(names))])


def main(status: int, began: float, options: list[str]) -> int:
    seconds, first = file_seconds(), failed() if status == FAILED else []
    files = sorted({name.partition("::")[0] for name in first})
    flaky: list[str] = []
    wrong = first
    if 0 < len(files) <= MOST:
        print(f"\nOnce more, one after another: {' '.join(files)}", flush=True)
        status = subprocess.call([sys.executable, "-m", "pytest", *files, *options])
        wrong = failed() if status else []
        flaky = [name for name in first if name not in wrong]
        print(
            f"FLAKY, {len(flaky)}: failed among others, passed alone: {' '.join(flaky)}"
            if flaky
            else "No test is flaky."
        )
    write(status, time.time() - began, flaky, wrong, seconds)
    return status


if __name__ == "__main__":
    if sys.argv[1:] == ["--last"]:
        print(last())
        sys.exit(0)
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
