"""A process that designs problems one after another: ``python -m kernellab.bench.worker``.

Each line on stdin is a :class:`~kernellab.bench.run_problem.Job`; each line on its original standard output is the
job's Row, or a word: ``waits`` before a wait for device memory, ``begins`` after it, or ``later`` instead of a row.
Output of a task goes to stderr. The process ends with its stdin."""

from __future__ import annotations

import os
import sys
import time

from kernellab.bench.rows import Row
from kernellab.bench.run_problem import BEGUN, POSTPONED, WAITING, Job, Later, run_job, with_suite_labels


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(line: bytes) -> None:
        answers.write(line + b"\n")
        answers.flush()

    for line in sys.stdin:
        job = Job.model_validate_json(line)
        began = time.perf_counter()
        try:
            row = run_job(job, lambda: say(WAITING), lambda: say(BEGUN))
        except Later:
            say(POSTPONED)
            continue
        except Exception as error:  # an internal fault costs one row, which names it
            reason = f"kernellab failed: {type(error).__name__}: {error}"
            row = Row.of(job.name, job.category, job.dynamic, None, 0, time.perf_counter() - began, reason)
            row = with_suite_labels(row, job)
        say(row.model_dump_json().encode())


if __name__ == "__main__":
    main()
