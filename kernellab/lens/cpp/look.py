"""A C++ source under the lens."""

from __future__ import annotations

from kernellab.dsls.machine import cpu_facts
from kernellab.errors import SessionError
from kernellab.lens.cpp.build import compiled, flags_of, main_cpp
from kernellab.lens.cpp.facts import facts
from kernellab.lens.cpp.read import assembly_rows, middle_rows
from kernellab.lens.read.rows import Shown, level
from kernellab.lens.records import Lens
from kernellab.records import Source

_MIDDLE = {
    "gimple": ("c", "GCC's last text before the assembly (GIMPLE)"),
    "llir": ("llvm", "LLVM IR, clang's last text before the assembly"),
}


def look_cpp(source: Source) -> Lens:
    """Assembly and the text before it, with what they show. Blocking: a compiler's seconds.

    Raises:
        SessionError: there is no C++ file or no compiler, or the compiler refuses.
    """
    main = main_cpp(source)
    if main is None:
        raise SessionError(
            "The lens found no single C++ file that a compiler of this machine accepts.",
            "It reads sources with one .cpp file; `kernellab doctor` says whether there is a compiler.",
        )
    made = compiled(tuple(sorted(source.files.items())), main, flags_of(source))
    shown = Shown(main, source.files[main], {main: 0})
    rows = assembly_rows(made, main)
    language, title = _MIDDLE[made.kind]
    levels = [level("asm", [rows], shown, "asm", "the functions of this file in assembly")]
    if made.middle:
        levels.insert(0, level(made.kind, [middle_rows(made, main)], shown, language, title))
    found, notes = facts(made, rows, main)
    notes.append("No counter of the CPU was read: cycles are a model's, and the hottest loop is a guess from the text.")
    return Lens(main, shown.text, f"C++ on {cpu_facts().name}", tuple(levels), tuple(found), tuple(notes))
