"""What one open lesson takes in memory: ``python tools/classroom/memory.py``.

A separate kernel checks a sketch and, as long after as the judge keeps what no one asks for, an answer in Triton, and
ends the judge as it does when it rests. After each, the proportional set sizes (shared pages counted in parts) of the
kernel and of all processes below it are printed, in MB, after what the check said and the largest sum while it ran.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

from kernellab.teach.exercise import solution
from kernellab.verifier.judge.pool import IDLE_SECONDS

#: seconds after a check by which the judge has given back what it freed
_SETTLED = 5.0
#: seconds between two looks while a check runs
_LOOK = 0.1
#: what the kernel does by itself once no one has asked the judge for a while
_REST = "from kernellab.session.engine.engine import engine; engine().verifier().rest(0)"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernellab.toml").touch()
        manager, client = start_new_kernel(cwd=folder)
        try:
            client.execute_interactive("%load_ext kernellab", timeout=120)
            _printed("the extension", manager)
            for at, exercise in enumerate(("two-inputs", "triton-sum")):
                time.sleep(at * (IDLE_SECONDS + 1))
                text = solution(exercise)
                cell = f"%%kernel_exercise {exercise}\n{text}"
                peak = _Peak(manager)
                reply = client.execute_interactive(cell, timeout=600, output_hook=_said)["content"]
                print(f"while {exercise} is checked: {peak.ended()}", flush=True)
                if reply["status"] != "ok":
                    raise SystemExit(f"{exercise} could not be checked: {reply.get('evalue', reply['status'])}")
                time.sleep(_SETTLED)
                _printed(exercise, manager)
            client.execute_interactive(_REST, timeout=60)
            _printed("two minutes without a question", manager)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


class _Peak:
    """Looks at the sizes until :meth:`ended`."""

    def __init__(self, manager: object) -> None:
        self.manager, self.most, self.told = manager, 0.0, ""
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def ended(self) -> str:
        self.over.set()
        self.thread.join()
        return self.told

    def _look(self) -> None:
        while not self.over.wait(_LOOK):
            total, rows = _sizes(self.manager)
            if total > self.most:
                self.most, self.told = total, f"at most {total:.0f} MB ({rows})"


def _said(message: dict[str, Any]) -> None:
    data = message["content"].get("data", {})
    if "text/plain" in data:
        print("  " + data["text/plain"].partition("\n")[0][:100], flush=True)


def _printed(after: str, manager: object) -> None:
    total, rows = _sizes(manager)
    print(f"after {after}: {total:.0f} MB ({rows})", flush=True)


def _sizes(manager: object) -> tuple[float, str]:
    """The sum in MB, and each process that has one or more."""
    pid = manager.provisioner.pid  # type: ignore[attr-defined]
    sizes = {child: _size(child) for child in _below(pid)}
    rows = ", ".join(f"{_name(child)} {size:.0f}" for child, size in sizes.items() if size >= 1)
    return sum(sizes.values()), rows


def _below(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in task.read_text().split():
                found += _below(int(child))
    return found


def _size(pid: int) -> float:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1000


def _name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "process"
    return next((w.decode() for w in words[1:] if w.startswith(b"kernellab") or w.startswith(b"ipykernel")), "process")


if __name__ == "__main__":
    main()
