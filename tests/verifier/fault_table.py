"""What happens in each fault, and how soon a good kernel passes again: ``python tests/verifier/fault_table.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import faults


def main() -> int:
    failed = 0
    print(f"{'fault':<42} {'recovery':>8}  what happened")
    with faults.ground() as on:
        for fault in faults.KERNELS:
            failed += _show(fault.name, lambda fault=fault: faults.by_kernel(on, fault))
        for event in faults.EVENTS:
            failed += _show(event.__name__.replace("_", " "), lambda event=event: event(on))
    print(f"{'illegal access on a GPU':<42} {'-':>8}  see tests/gpu")
    return failed


def _show(name: str, run) -> int:  # type: ignore[no-untyped-def]
    try:
        found = run()
    except AssertionError as error:
        print(f"{name:<42} {'FAILED':>8}  {error}", flush=True)
        return 1
    print(f"{found.name:<42} {found.recovery:>6.1f} s  {found.what}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
