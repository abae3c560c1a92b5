"""What has changed in a failing kernel's code since a kernel of the same design passed, place by place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from kernellab.agents.briefs import RouteBrief
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import Evidence

#: Maximum characters of a quoted line.
_QUOTED = 120


def changed_since_it_passed(brief: RouteBrief) -> list[str]:
    """Differences between the code and the last one that passed for the same design: ``file:line: text`` for each
    changed stretch of lines, or the number of different lines of a file if most differ."""
    candidate = brief.candidate
    if candidate is None or brief.verdict is None or brief.verdict.passed:
        return []
    for attempt in reversed(brief.history):
        earlier = attempt.candidate
        if earlier is None or attempt.verdict is None or not attempt.verdict.passed:
            continue
        if (earlier.sketch, earlier.constexpr) != (candidate.sketch, candidate.constexpr):
            continue  # another design's code differs everywhere
        old, new = bare(earlier.source).files, bare(candidate.source).files
        is_race = (brief.verdict.evidence or Evidence()).signature == "race"
        files = [_FileChange(name, old.get(name, "").splitlines(), new[name].splitlines(), is_race) for name in new]
        return [place for file in files for place in file.places()]
    return []


@dataclass(frozen=True)
class _FileChange:
    """One file before and after. With ``is_race``, new lines with a variable that all threads share come first."""

    name: str
    old: list[str]
    new: list[str]
    is_race: bool

    def places(self) -> Iterator[str]:
        """Yield the changed places, the likeliest cause first."""
        stretches = self._stretches()
        count = sum(map(len, stretches))
        if len(stretches) > 1 and count > len(self.new) / 2:
            yield f"{count} of {self.name}'s {len(self.new)} lines"
            return
        for stretch in sorted(stretches, key=self._order):
            if not stretch:
                yield f"{self.name}:{stretch.start + 1} (lines removed before it)"
                continue
            significant = [*filter(self._is_shared, stretch), *filter(self._has_effect, stretch), stretch.start]
            yield f"{self.name}:{significant[0] + 1}: {self.new[significant[0]].strip()[:_QUOTED]}"

    def _stretches(self) -> list[range]:
        """The indices of the changed lines of the new text, by stretch; an empty range where lines are missing."""
        matcher = SequenceMatcher(None, self.old, self.new, autojunk=False)
        return [range(start, stop) for tag, _, _, start, stop in matcher.get_opcodes() if tag != "equal"]

    def _order(self, stretch: range) -> tuple[bool, bool]:
        return not any(map(self._is_shared, stretch)), not any(map(self._has_effect, stretch))

    def _is_shared(self, index: int) -> bool:
        """Whether a new line declares a static variable inside a function, which all threads share; only for races."""
        line = self.new[index]
        is_static = line.startswith((" ", "\t")) and line.split()[:1] == ["static"] and "const" not in line
        return self.is_race and is_static and line.strip() not in {old_line.strip() for old_line in self.old}

    def _has_effect(self, index: int) -> bool:
        """Whether a line is not an include, an import, a comment or a brace."""
        text = self.new[index].strip()
        return any(c.isalnum() for c in text) and not text.startswith(("#", "//", "/*", "*", "import ", "from "))
