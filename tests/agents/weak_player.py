"""A deliberately weak player of the model roles: a script, and no model. What it does, in words:

It has one right design and one right code of each operator (the rules' own) and no other idea.

- **Slips.** Each line that it writes gets a slip with probability ``RATE``, in sketches and in code alike. Which kind
  is drawn by ``SLIPS``' weights among those that fit the line: syntax, mask or bound, axis, race, operation, constant,
  and "slow" (a loop that is not parallel, not on vectors, the smallest tile, a slower exp). Lines that it copies from
  its last answer stay; a line that it writes again may slip again. With ``slow`` every line that a slow slip fits gets
  one with that probability in the first answer, and nothing else slips.
- **Repairs.** It repairs what a message *names*: the line, by number or word for word (of a compiler's line also the
  one above), or the kind (``KINDS``). Of the values that a sketch computes for a wrong element it repairs the first
  line of its code that departs from them. If what is named holds no slip of its, or nothing is named, it reads its
  answer again and sees each slip with probability ``NOTICED``.
- **Guesses.** It does not repeat itself: where it sees no slip it changes a line that is right, as if it were a slip
  (drawn like one, but neither syntax nor slow), and takes that back in its next answer. A guess costs a request in
  every arm alike and is not counted as a slip. With no slip left it keeps its answer (code: ``KEEP``).
- **Faster.** Asked for something faster (by the route, or because its answer is said to be right) it repairs slow
  slips in the same way: those of the line named and of the loops around it, else each with probability ``NOTICED``;
  without one, or where the kernel passed and none of its slips is left, it answers that it is done.

As Coder it writes its own code, whole, at first, also where it is shown code that was compiled by rule.
Chances follow from the seed, the operator and the number of the request alone, and are the same for every arm.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.agents.players import TASK, Scripted

#: of a line that is written, in every arm
RATE = 0.04
#: of a slip that no message names
NOTICED = 0.25
#: kind -> (weight, what is written, what is written instead)
SLIPS: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    "mask": (20, (
        (r" >= ", " > "), (r" <= ", " < "), (r"-inf\b", "0.0"), (r"-kl::INF", "0.0f"), (r" < (?=\w)", " <= "),
        (r"\bkl::inside\([^()]*\)", "(0)"), (r"0:(\d{2,})\]", r"1:\1]"),
    )),
    "axis": (10, (
        (r"axis=1\b", "axis=0"), (r"axis=0\b", "axis=1"), (r"perm=\[1, 0\]", "perm=[0, 1]"),
        (r"\[([a-z]), ([a-z])\b", r"[\2, \1"), (r"\b([a-z]) \* (\w+) \+ ([a-z])\b", r"\3 * \2 + \1"),
    )),
    "race": (10, (
        (r"^( +)(for (?!int)\w+ in range\(.*)$", r'\1@llm_hint("parallel", "coreidx")' + "\n" + r"\1\2"),
        (r"^( +)(for \(int64_t .*)$", r"\1#pragma omp parallel for" + "\n" + r"\1\2"),
    )),
    "syntax": (15, ((r"\)$", ""), (r";(?=\s*(//.*)?$)", ""), (r":$", ""))),
    "operation": (20, (
        (r"reduce_sum\(", "reduce_max("), (r"reduce_max\(", "reduce_sum("), (r"\brsqrt\(", "sqrt("),
        (r"kl::fold<kl::Sum>", "kl::fold<kl::Max>"), (r"kl::fold<kl::Max>", "kl::fold<kl::Sum>"),
        (r"(?<=\w) \+ (?=\w)", " - "), (r"(?<=\w) - (?=\w)", " + "), (r" / (?=\w)", " * "), (r"\bexp\(", "exp2("),
    )),
    "constant": (10, ((r"\b1\.0\b", "2.0"), (r"\b0\.5\b", "0.25"), (r"\b1e-0\d", "1e-01"), (r"\b0\.125\b", "0.25"))),
    "slow": (15, (
        (r'^( *)@llm_hint\("parallel".*$', r"\1# one after another"), (r"^( *)#pragma omp .*$", r"\1// one by one"),
        (r"\bkl::(exp|tanh)\(", r"std::\1("), (r"= (\d+) in \{(\d+), ", r"= \2 in {\2, "),
    )),
}  # fmt: skip
#: words of a message that name a kind
KINDS = {
    "mask": r"\b[Mm]ask |[Mm]ask the|last tile|tail of|end of|past the end|ends early|outside|out of bounds",
    "axis": r"exchanged|index order|transposed|\baxis\b",
    "race": r"\brace\b|[Rr]uns differ|two parallel iterations|iterations write",
    "constant": r"one factor|one constant|initial value|divisor",
    "operation": r"an operation, or what it is applied to",
}
#: headings of prompts, and what stands below them
_FAULT, _EXPECTED, _ROUTE, _TIME = (
    "What the Verifier found in your last code", "What the sketch computes for that element",
    "Why the work comes to you", "What the machine allows",
)  # fmt: skip
#: words that ask for a faster kernel: of a route, and of what the roles' prompts say of the last answer
_FASTER = r"There is headroom|knows nothing faster|certainly slower|The code is right|The kernel is right"
_DONE = '{"done": "I know nothing faster."}'


@dataclass
class Draft:
    """An answer's lines: as they are right, and the slips that stand in them."""

    right: list[str]
    slips: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: the place of a guess, which stands among the slips until the next answer
    guess: int | None = None

    @property
    def text(self) -> str:
        return "\n".join(self.slips[n][1] if n in self.slips else line for n, line in enumerate(self.right)) + "\n"

    def at(self, shown: int) -> int:
        """The place of a line of the text as it was answered (from 1); a slip may have added a line."""
        count = 0
        for n, line in enumerate(self.right):
            count += 1 + (self.slips[n][1] if n in self.slips else line).count("\n")
            if count >= shown:
                return n
        return len(self.right) - 1

    def write(self, places: Sequence[int], chance: random.Random, slow: float | None) -> None:
        for n in places:
            self.slips.pop(n, None)
            if slow is not None:
                if chance.random() < slow and (slip := slipped(self.right, n, chance, ("slow",))):
                    self.slips[n] = slip
            elif chance.random() < RATE and (slip := slipped(self.right, n, chance, tuple(SLIPS))):
                self.slips[n] = slip


def slipped(lines: Sequence[str], at: int, chance: random.Random, kinds: Sequence[str]) -> tuple[str, str] | None:
    """A kind and the line with one slip of it; None where none fits."""
    line = lines[at]
    if not line.strip() or line.lstrip().startswith(("//", "# ", "#include", "}")):
        return None
    code, mark, comment = line.partition("  //")
    fitting: dict[str, list[str]] = {}
    for kind in kinds:
        if kind == "race" and at and lines[at - 1].lstrip().startswith(("@", "#pragma")):
            continue
        for old, new in SLIPS[kind][1]:
            fitting.setdefault(kind, []).extend(
                code[: m.start()] + m.expand(new) + code[m.end() :] for m in re.finditer(old, code)
            )
    others = {kind: [c for c in changed if c != code] for kind, changed in fitting.items()}
    others = {kind: changed for kind, changed in others.items() if changed}
    if not others:
        return None
    kind = chance.choices(list(others), [SLIPS[k][0] for k in others])[0]
    return kind, chance.choice(others[kind]) + mark + comment


def sections(prompt: str) -> dict[str, str]:
    """What stands below each heading, without what is in fences."""
    found, title, fenced = dict[str, list[str]](), "", False
    for line in prompt.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("# "):
            title = line[2:].strip()
        elif not fenced:
            found.setdefault(title, []).append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


@dataclass
class WeakPlayer:
    """One session's player; ``rules`` knows what is right and is shared by the sessions of an operator."""

    operator: str
    seed: int
    rules: Scripted
    slow: float | None = None
    asked: int = 0
    drafts: dict[str, Draft] = field(default_factory=dict)
    #: slips that were written, of any kind but "slow"
    wrong: int = 0
    #: was the prompt that stands a request for something faster?
    faster: bool = False

    def __call__(self, messages: Sequence[dict[str, str]]) -> str:
        self.asked += 1
        prompt, last = messages[0]["content"], messages[-1]["content"]
        prompt = "\n\n".join(m["content"] for m in messages[:2] if m["role"] != "assistant")
        stated = TASK.search(prompt)
        answer = self.rules.right(stated[1], stated[2]) if stated else None
        if answer is None:
            return "I do not know how to write this."
        sketch, files = answer
        role = "sketch" if "You are the Designer" in prompt else "code"
        chance = random.Random(f"{self.seed} {self.operator} {role} {self.asked}")
        again = any(message["role"] == "assistant" for message in messages)
        told = {"": last} if again else sections(prompt)
        if not again:
            self.faster = any(re.search(_FASTER, text) for text in told.values())
        draft = self.drafts.get(role)
        if draft is None:
            text = sketch if role == "sketch" else files["kernel.cpp"]
            draft = self.drafts[role] = Draft(text.rstrip("\n").splitlines())
            self._write(draft, range(len(draft.right)), chance)
        elif self.faster and not again:
            places = list(self._faster(draft, role, told, chance))
            if not places:
                return _DONE
            self._write(draft, places, chance)
        else:
            wrong = self._wrong(draft)
            if draft.guess is not None:
                del draft.slips[draft.guess]
                draft.guess = None
            elif not wrong and self.faster:
                return _DONE
            elif not wrong and role == "code":
                return "KEEP"
            places = list(self._repairs(draft, role, told, chance))
            self._write(draft, places, chance)
            if wrong and not places:
                self._guess(draft, chance)
        if role == "sketch":
            return f"My design.\n\n```sketch\n{draft.text}```\n"
        own = {**files, "kernel.cpp": draft.text}
        # host code and helpers stand already next to code that was shown
        shown = (
            ["kernel.cpp"]
            if re.search("^# (Your last code|The best code so far|Code that was compiled)", prompt, re.M)
            else list(own)
        )
        return "My code.\n\nCRITIQUE:\nI looked at it.\n\n" + "".join(
            f"FILE: {name}\n```cpp\n{own[name].rstrip()}\n```\n" for name in shown
        )

    def _write(self, draft: Draft, places: Sequence[int], chance: random.Random) -> None:
        draft.write(places, chance, self.slow if len(places) == len(draft.right) else 0.0 if self.slow else None)
        self.wrong += sum(draft.slips[n][0] != "slow" for n in places if n in draft.slips)

    @staticmethod
    def _wrong(draft: Draft) -> list[int]:
        return [n for n, (kind, _) in draft.slips.items() if kind != "slow" and n != draft.guess]

    @staticmethod
    def _guess(draft: Draft, chance: random.Random) -> None:
        kinds = [kind for kind in SLIPS if kind not in ("syntax", "slow")]
        for n in chance.sample(range(len(draft.right)), len(draft.right)):
            if n not in draft.slips and (slip := slipped(draft.right, n, chance, kinds)):
                draft.slips[n], draft.guess = slip, n
                return

    def _repairs(self, draft: Draft, role: str, told: dict[str, str], chance: random.Random) -> Iterator[int]:
        wrong = self._wrong(draft)
        text = "\n".join(told.get(title, "") for title in ("", _FAULT, _ROUTE))
        named = set(self._lines(draft, role, text))
        kinds = {kind for kind, words in KINDS.items() if re.search(words, text.replace("no mask", ""))}
        first = next((n for n in self._lines(draft, role, told.get(_EXPECTED, "")) if n in wrong), None)
        hit = [n for n in wrong if n in named or n == first or draft.slips[n][0] in kinds]
        yield from hit or [n for n in wrong if chance.random() < NOTICED]

    def _faster(self, draft: Draft, role: str, told: dict[str, str], chance: random.Random) -> Iterator[int]:
        slow = [n for n, (kind, _) in draft.slips.items() if kind == "slow"]
        text = f"{told.get(_ROUTE, '')}\n{told.get(_TIME, '')}"
        around = {m for n in self._lines(draft, role, text) for m in enclosing(draft.right, n)}
        yield from [n for n in slow if n in around] or [n for n in slow if chance.random() < NOTICED]

    def _lines(self, draft: Draft, role: str, text: str) -> Iterator[int]:
        """The places in a draft that a text names: by file and line, by the sketch's line, or word for word."""
        if role == "code":
            # what a compiler finds missing may end the line above
            yield from (draft.at(int(n) - up) for n in re.findall(r"kernel\.cpp:(\d+)", text) for up in (0, 1))
        for number in re.findall(r"\blines? (\d+)", text):
            if role == "sketch":
                yield draft.at(int(number))
            else:  # lowered code says which line of the sketch a line is of
                yield from (n for n, line in enumerate(draft.right) if re.search(rf"// {number}: ", line))
        quoted = set(re.findall(r"`([^`\n]{6,})`", text))
        shown = draft.text.splitlines()
        yield from (draft.at(n + 1) for n, line in enumerate(shown) if line.strip() in quoted)


def enclosing(lines: Sequence[str], at: int) -> Iterator[int]:
    """A line, the loops around it, and the hints and pragmas directly above each of these, by indentation."""
    depth = len(lines[at]) - len(lines[at].lstrip()) + 1
    for n in range(at, -1, -1):
        line = lines[n].lstrip()
        indent = len(lines[n]) - len(line)
        if line and indent < depth:
            depth = indent
            yield n
            above = n - 1
            while above >= 0 and lines[above].lstrip().startswith(("@", "#pragma")):
                yield above
                above -= 1
