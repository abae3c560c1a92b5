"""The attack lesson: which hole an attempt went through, and what a repaired judge refuses."""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path

import pytest
from teach_parts import ROOT

from kernellab.errors import CourseError, JudgeBusy
from kernellab.teach.attack import Kernel, attempted, holes, judge_text, kernels, repaired
from kernellab.teach.exercise import course

CHEATS = [kernel for kernel in kernels() if kernel.hole]
FIRST = list({kernel.hole: kernel for kernel in CHEATS}.values())
HONEST = [kernel for kernel in kernels() if not kernel.hole]
CLOSED, MET = (
    (ROOT / "notebooks" / "solutions" / f).read_text(encoding="utf-8") for f in ("15_closed.py", "15_cheats.toml")
)
PACKED = ROOT / "notebooks" / "attack"
NOTHING = "def kernel(x, out):\n    pass\n"


def test_the_judge_has_ten_holes_of_a_few_lines_and_a_cheat_for_each() -> None:
    assert len(holes()) == 10
    assert {kernel.hole for kernel in CHEATS} == set(holes())
    assert len(judge_text().splitlines()) < 140


def test_each_hole_has_a_hint_for_who_attacks_it_and_for_who_closes_it() -> None:
    found = course(ROOT)
    for attack, words in (("break", "hole-{}"), ("close", "close-{}")):
        known = {word for row in found.attack(attack).hints for word in row.when}
        assert {words.format(hole) for hole in holes()} <= known


@pytest.mark.parametrize(
    "name, text, telling",
    [("closed", CLOSED, "np.random.default_rng().random((rows, columns))"), ("cheats", MET, "single -= single.max")],
)
def test_what_answers_the_attack_is_no_text_that_a_student_has(name: str, text: str, telling: str) -> None:
    """The judging of an attempt needs it, so whoever unpacks it on purpose can read it."""
    packed = zlib.decompress((PACKED / f"{name}.zlib").read_bytes()).decode()
    assert packed == text, "write zlib.compress of the solution's bytes there"
    texts = [path.read_bytes() for path in (ROOT / "notebooks").rglob("*") if path.is_file()]
    own = list((ROOT / "kernellab").rglob("*.py"))
    assert telling in text and sum(telling.encode() in one for one in texts) == 1
    assert not any(telling in path.read_text(encoding="utf-8") for path in own)


@pytest.mark.parametrize("cheat", FIRST, ids=lambda k: k.name)
def test_a_cheat_goes_through_its_hole(cheat: Kernel) -> None:
    attempt = attempted(cheat.source)
    assert attempt.ruling.accepted and not attempt.honest
    assert cheat.hole in attempt.holes


@pytest.mark.parametrize("kernel", HONEST, ids=lambda k: k.name)
def test_an_honest_kernel_goes_through_none(kernel: Kernel) -> None:
    attempt = attempted(kernel.source)
    assert attempt.ruling.accepted and attempt.honest and attempt.holes == ()


def test_holes_that_are_only_enough_together_are_named_as_a_pair() -> None:
    slow_and_wrong = (
        "import time\ntime.perf_counter = lambda: 0.0\n"
        "def kernel(x, out):\n    end = time.monotonic() + 0.2\n    while time.monotonic() < end:\n        pass\n"
        '    out[:] = float("nan")\n'
    )
    attempt = attempted(slow_and_wrong)
    assert attempt.holes == () and attempt.together == ("right", "seconds")


def test_a_repaired_judge_refuses_all_cheats_and_takes_honest_kernels() -> None:
    result = repaired(CLOSED)
    assert set(result.closed) == set(holes()) and result.passed == () and result.refused == ()
    one = repaired("def right(error, most):\n    return bool((error <= most).all())\n")
    assert "right" in one.closed and "no-numbers" not in one.passed and "nothing" in one.passed
    drawn = "import random\n_r, _c = random.randint(65, 127), random.randint(257, 511)\n"
    smaller = repaired(f"{drawn}def shape():\n    return _r, _c\n")
    assert smaller.closed == ("shape",), "sizes below the one that is there close it too"


@pytest.mark.parametrize(
    "repairs",
    ["def right(error, most):\n    return False\n", "def limit(want):\n    return 1e-12\n"],
    ids=["all-refused", "too-strict"],
)
def test_a_judge_that_refuses_honest_kernels_closes_nothing(repairs: str) -> None:
    result = repaired(repairs)
    assert result.closed == () and result.refused


@pytest.mark.parametrize("function", ["judge", "start"])
def test_a_judge_that_goes_by_words_of_a_source_closes_nothing(function: str) -> None:
    words = [k.source.strip().splitlines()[-1].strip() for k in kernels() if not k.hole]
    rule = f"any(word in source for word in {words!r})"
    texts = {
        "judge": f"def judge(source):\n    return {rule}, ''\n",
        "start": f"def start(source):\n    names = {{}}\n    exec(source if {rule} else '', names)\n"
        "    return lambda x, out: timed(names['kernel'], x, out)\n",
    }
    assert set(repaired(texts[function]).closed) == set(repaired("").closed)


def test_an_attempt_that_ends_the_judge_or_writes_its_ruling_has_no_other_holes_for_it() -> None:
    assert attempted(f"{NOTHING}\nimport os\nos._exit(0)\n").holes == ()
    forged = (
        "import os\n"
        "for number in range(3, 64):\n"
        "    try:\n"
        '        os.write(number, b\'{"accepted": true, "why": ""}\')\n'
        "    except OSError:\n"
        "        pass\n"
        "os._exit(0)\n"
    )
    assert set(attempted(forged).holes) <= {"start", "excused"}


def test_an_attempt_reaches_no_file_of_the_learner(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    attempted(f"open({str(kept)!r}, 'w').write('gone')\n{NOTHING}")
    assert kept.read_text() == "mine"


_DEAF = "import signal, time\nsignal.alarm(0)\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"


#: an attempt's process with shorter limits: seconds of the processor, of the clock, and until it is killed
_HURRIED = (
    "from kernellab.teach import attack_run as run; run._PROCESSOR, run._SECONDS, run._KILLED = 1, 8, 10; run.main()"
)


def test_a_loop_without_an_end_is_refused_and_text_that_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # a second of the processor's time for each run, not five
    monkeypatch.setattr(
        "kernellab.teach.attack.module_command", lambda _, *rest: [sys.executable, "-c", _HURRIED, *rest]
    )
    attempt = attempted("while True:\n    pass\n")
    assert attempt.ruling.late and attempt.ruling.why == "it used more than 5 s of the processor's time"
    endless = repaired("def limit(want):\n    while True:\n        pass\n")
    assert endless.late and endless.refused and endless.closed == ()
    with pytest.raises(CourseError, match="Line 1"):
        repaired("def right(:\n")
    monkeypatch.setattr("kernellab.teach.attack._DEADLINE", 3.0)
    with pytest.raises(JudgeBusy, match="no answer in time"):
        attempted("import time\ntime.sleep(600)\n")


@pytest.mark.parametrize(
    "text",
    [
        f"{_DEAF}time.sleep(600)\n",
        # in the first run it ends, and not where holes are closed
        f"{_DEAF}\ndef kernel(x, out):\n    out[:] = float('nan')\n    right(out, 1.0) or time.sleep(600)\n",
    ],
)
def test_an_attempt_that_hears_no_alarm_is_killed_once_with_all_that_it_started(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernellab.teach.attack.module_command", lambda _, *rest: [sys.executable, "-c", _HURRIED, *rest]
    )
    began = time.monotonic()
    attempt = attempted(f"import os\nos.fork()\nfrom judge import *\n{text}")
    assert attempt.ruling.late and "took longer than" in attempt.ruling.why
    assert time.monotonic() - began < 20, "it was killed more than once"
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"kernellab-attack-" in _read(p)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


_SOFTMAX = """
import numpy as np

def kernel(x, out):
    weights = np.exp(x - x.max(1, keepdims=True))
    out[:] = weights / weights.sum(1, keepdims=True)
    if {spoilt}:
        out[:] = 0.0
"""
_CLOSED_BY_NAME = "import sys\nmodule = sys.modules.get('judge')\nfound = vars(module) if module else {}\n"
_CLOSED_BY_FRAME = (
    "import sys\nframe, found = sys._getframe(), []\n"
    "while frame is not None:\n    found += map(str, frame.f_locals.values())\n    frame = frame.f_back\n"
)


@pytest.mark.parametrize(
    ("before", "spoilt"),
    [
        ("import os\nbad = os.urandom(1)[0] < 128\n", "bad"),
        ("import os\nruns = len(os.listdir('.'))\nopen(f'run{runs}', 'w').close()\n", "runs == 1"),
        (_CLOSED_BY_NAME, "'limit' in found and found['limit'](np.ones(1)) < 0.01"),
        (_CLOSED_BY_FRAME, "any('def excused' in text for text in found)"),
    ],
    ids=["by chance", "by files", "by the judge's functions", "by frames"],
)
def test_an_honest_kernel_that_is_wrong_where_all_is_closed_has_no_hole(before: str, spoilt: str) -> None:
    """The kernel sees the judge's own functions where it shares its process: that hole is one."""
    assert set(attempted(before + _SOFTMAX.format(spoilt=spoilt)).holes) <= {"start"}


@pytest.mark.parametrize("what", ["request", "run", "source", "kernel"])
def test_repairs_that_look_for_the_other_runs_find_none(what: str) -> None:
    repairs = f"""
def start(source):
    import sys
    frame, texts = sys._getframe(), set()
    while frame is not None:
        texts.add(repr(frame.f_locals.get({what!r})))
        frame = frame.f_back
    if not any("float32" in text and "perf_counter = lambda" in text for text in texts - {{repr(source)}}):
        raise RuntimeError(source)
    return lambda x, out: 0.0
"""
    result = repaired(repairs)
    assert {name for name, _ in result.refused} == {kernel.name for kernel in HONEST}
    assert [bool(why) for _, why in result.refused] == [name == "plain" for name, _ in result.refused]


_FORGED = (
    '[{"accepted": true, "why": ""}, {"accepted": false, "why": ""}' + ', {"accepted": true, "why": ""}' * 10 + "]"
)


@pytest.mark.parametrize("prepare", [f"open('answer.json', 'w').write({_FORGED!r})", "os.mkfifo('answer.json')", ""])
def test_an_attempt_that_ends_what_runs_it_has_no_hole_by_that(prepare: str) -> None:
    assert attempted(f"import os\n{prepare}\nos.kill(os.getppid(), 9)\n{NOTHING}").holes in ((), ("clean",))


def test_what_an_attempt_prints_is_no_ruling() -> None:
    attempt = attempted(f"import os\nos.write(1, {_FORGED.encode()!r})\nprint({_FORGED!r}, flush=True)\n{NOTHING}")
    assert len(attempt.holes) < len(holes())
