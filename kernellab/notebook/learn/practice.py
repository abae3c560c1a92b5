"""The practice ground in a notebook: its list, one challenge, its hints, a try."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from kernellab.dsls.machine import detect_target
from kernellab.notebook.learn.card import challenge_card, tries_svg
from kernellab.notebook.saved.coloured import coloured
from kernellab.notebook.saved.receipt import Shown, plain
from kernellab.notebook.saved.snapshot import PRE
from kernellab.records import Trust
from kernellab.teach import challenge, progress

#: challenge -> hints that were given in this process
_given: dict[str, int] = defaultdict(int)


def listed() -> Shown:
    """All challenges by category, those that were passed with their best grade."""
    history = progress.read()
    best = {t.task: t.grade for t in sorted(_passed(history), key=lambda t: t.grade, reverse=True)}
    rows: dict[str, list[str]] = defaultdict(list)
    for task in challenge.challenges():
        grade = best.get(f"{task.category}/{task.name}")
        rows[task.category].append(f"{task.name} ({grade})" if grade else task.name)
    total = sum(map(len, rows.values()))
    lines = [f"{total} challenges; %kernel_challenge NAME shows one, %%kernel_challenge NAME judges your cell."]
    lines += [f"{category}: {', '.join(names)}" for category, names in rows.items()]
    return plain("\n".join(lines))


def _passed(history: progress.Progress) -> list[progress.Tried]:
    return [e for e in history.entries if isinstance(e, progress.Tried) and e.passed]


def shown(name: str) -> Shown:
    """The challenge's task, and one's own tries."""
    chosen = challenge.challenge(name)
    title = f"{chosen.category}/{chosen.name}"
    tries = progress.read().tries(title)
    tried_words = f"{title}: tried {len(tries)} times" if tries else f"{title}: not tried yet"
    code = f"<pre {PRE}>{coloured(chosen.text.strip(), 'task.py')}</pre>"
    return Shown(f"{tried_words}\n{chosen.text.strip()}", f"<b>{escape(tried_words)}</b>{tries_svg(tries)}{code}")


def hinted(name: str) -> Shown:
    """The next hint; the last one again when there are no more."""
    chosen = challenge.challenge(name)
    says = challenge.hints(challenge.task_of(chosen), detect_target())
    step = min(_given[name], len(says) - 1)
    _given[name] += 1
    return plain(f"Hint {step + 1} of {len(says)}: {says[step]}")


def tried(name: str, text: str, level: str, dsl: str | None) -> Shown:
    """Judges the cell, and keeps the try."""
    from kernellab.session.engine.engine import engine

    chosen = challenge.challenge(name)
    task, target = challenge.task_of(chosen), detect_target(dsl)
    with engine().verifying:
        result = challenge.attempt(text, task, target, engine().verifier(), Trust(level), dsl)
    progress.record(challenge.line_of(chosen, text, result))
    title = f"{chosen.category}/{chosen.name}"
    return challenge_card(title, result, progress.read().tries(title))
