"""A class's marks as a page that students may see, and as comma-separated values for a teacher."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from html import escape

from kernellab.teach.grading import Mark


def as_board(marks: Sequence[Mark], title: str) -> str:
    """A page of one table: students by the points of verified answers alone; what has half of its points counts
    nothing here."""
    sums: Counter[tuple[str, str]] = Counter()
    for mark in marks:
        sums[mark.student, mark.exercise] += mark.points  # type: ignore[assignment]
    full = {(m.student, m.exercise): float(m.most) for m in marks if m.most and sums[m.student, m.exercise] >= m.most}
    students = {mark.student: 0.0 for mark in marks}
    exercises = list(dict.fromkeys(m.exercise for m in marks if m.exercise))
    for (student, _), points in full.items():
        students[student] += points
    head = "".join(f"<th>{escape(word)}</th>" for word in ("", "student", "points", *exercises))
    rows = ""
    for student in sorted(students, key=lambda name: (-students[name], name)):
        rank = 1 + sum(points > students[student] for points in students.values())
        cells = "".join(f"<td>{'yes' if (student, e) in full else ''}</td>" for e in exercises)
        rows += f"<tr><td>{rank}</td><td>{escape(student)}</td><td>{students[student]:g}</td>{cells}</tr>\n"
    style = "body{font-family:sans-serif;color-scheme:light dark}td,th{padding:2px 8px;text-align:left}"
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{style}</style>"
        f"<h1>{escape(title)}</h1><p>Points of verified answers.</p><table><tr>{head}</tr>\n{rows}</table></html>\n"
    )


def as_csv(marks: Sequence[Mark]) -> str:
    """The marks as comma-separated values; a cell that a spreadsheet would take for a formula is quoted."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["student", "notebook", "exercise", "points", "of", "reason"])
    for mark in marks:
        student, notebook, reason = (
            f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
            for text in (mark.student, mark.notebook, mark.reason)
        )
        table.writerow([student, notebook, mark.exercise, f"{mark.points:g}", mark.most, reason])
    return file.getvalue()
