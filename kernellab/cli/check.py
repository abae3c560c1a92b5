"""``kernellab check``: the kernels of a repository, for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli.output import emit, say
from kernellab.cli.parameters import with_requests
from kernellab.errors import KernellabError, counted
from kernellab.options.design import CheckCall


@with_requests
def check(
    call: CheckCall,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files and folders to search; default: this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> int:
    """Verify every kernel, capsule and exported module of a repository. Exit 1 when one is wrong or too slow.

    A kernel NAME.py has its task next to it in NAME_task.py, a kernel.py in task.py. Exit 2 when nothing was checked.
    """
    from kernellab import ci
    from kernellab.ci.report import checked, facts, junit, markdown
    from kernellab.content import written
    from kernellab.verifier.protocol.option_words import plain_dsl, verify_options

    if call.update and call.lock is None:
        raise KernellabError("--update records figures, and no lock is named.", "Pass --lock kernels.lock too.")
    options = verify_options(call, None).model_copy(update={"unsandboxed": call.unsandboxed})
    lock = ci.read_lock(call.lock, call.update) if call.lock is not None else None
    found = ci.subjects(paths or [Path(".")], plain_dsl())
    answers = ci.check(
        found, options, least=call.min_speedup, lock=lock, accept=call.update, progress=lambda r: say(r.line)
    )
    results = list(answers)
    if call.update and lock is not None and call.lock is not None:
        for r in results:
            if r.figure is not None and not r.state.fails:
                lock = lock.with_figure(r.machine, r.name, r.figure)
        written(call.lock, lock.text)
    if call.junit is not None:
        written(call.junit, junit(results))
    if call.summary is not None:
        written(call.summary, markdown(results))
    if json:
        emit(facts(results))
    else:
        print("\n".join(ci.failed_lines(results)) or f"{counted(checked(results), 'kernel')} checked, none failed")
    if not checked(results):
        left = (
            f"{counted(len(results), 'kernel')} found, none of which this machine can check"
            if results
            else "none found"
        )
        raise KernellabError(f"Nothing was checked: {left}.", "Run it on the chip, or name the folder of the kernels.")
    return 1 if any(r.state.fails for r in results) else 0
