"""The magics of the course: exercises, predictions, measurements, moving pictures, challenges, progress."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.errors import CourseError, KernellabError
from kernellab.notebook.magics.base import KernelMagic, line_cell_command, line_command

if TYPE_CHECKING:
    from kernellab.records import Source, Verdict
    from kernellab.target import Target
    from kernellab.task import Task
    from kernellab.teach.exercise import Exercise
    from kernellab.teach.judge import Outcome
    from kernellab.verifier.protocol.options import VerifyOptions


@magics_class
class LearnMagics(KernelMagic):
    """exercise, attack, grade, predict, measure, watch, challenge, progress."""

    @line_cell_command
    @argument("id", help="the exercise, as the lesson names it")
    @argument("--pass", dest="whole", action="store_true", help="ask for a full verdict (T2) instead of a quick look")
    def kernel_exercise(self, args: argparse.Namespace, cell: str | None = None) -> Any:
        """Check the answer in the cell (a sketch, or a kernel as a module); without a cell, show what is asked.

        A sketch is read, run on small sizes and held against the exercise's goals, then built and verified by a quick
        look (T1); --pass asks for a whole verdict (T2). A wrong answer gets a hint by its fault, one step further for
        each other answer with the same fault.
        """
        from kernellab.notebook.learn.card import exercise_card, outcome_card
        from kernellab.records import Trust
        from kernellab.teach import progress
        from kernellab.teach.exercise import course
        from kernellab.teach.hints import hint_for
        from kernellab.teach.judge import is_sketch, judge
        from kernellab.teach.translate import translations

        lessons = course()
        exercise = lessons.exercise(args.id)
        if exercise.attack and cell is not None:
            closes = " --close" if exercise.attack == "close" else ""
            raise UsageError(f"The exercise {args.id} is answered with %%kernel_attack{closes}.")
        if cell is None:
            return exercise_card(exercise, lessons.task_text(args.id) or "", progress.read())
        level = Trust.T2 if args.whole else Trust.T1
        task = lessons.task(exercise)
        outcome = judge(cell, task, exercise.goals, self._verify, level, exercise.mistakes)
        history = progress.read()
        hint = hint_for(exercise, outcome, lessons, history, cell)
        name = progress.tried_hash(cell)
        attempt = progress.Attempt(
            exercise=exercise.id, text=name, reached=outcome.reached.value, good=outcome.reached.good,
            trust=outcome.trust.value if outcome.trust else "", keys=outcome.keys, time=time.time(),
        )  # fmt: skip
        progress.record(attempt)
        _points[exercise.id] = exercise.points if outcome.reached.good else 0
        # who interrupts the timing keeps the points
        sketch = outcome.reached.good and is_sketch(cell)
        codes = translations(cell, task) if sketch else []
        notes = self._timed(exercise, cell, task, outcome) if sketch else []
        return outcome_card(exercise.id, outcome, hint, notes, cell, codes)

    @line_cell_command
    @argument("--close", action="store_true", help="the cell holds functions of the judge, rewritten: its holes closed")
    def kernel_attack(self, args: argparse.Namespace, cell: str | None = None) -> Any:
        """Attack the toy judge of lesson 15 with the kernel in the cell, or close its holes; without a cell, show it.

        A point for each different hole: an attempt uses one when the judge with all others closed still accepts it.
        With --close the judge that you repaired meets cheats and honest kernels.
        """
        from kernellab.notebook.learn.attack import broken, closed, shown

        if cell is None:
            return shown()
        scored = closed(cell) if args.close else broken(cell)
        # attempts add up, repairs are one answer
        _points[scored.exercise] = scored.points
        return scored.card

    @line_command
    @argument("id", help="an exercise, or a lesson: the sum of its exercises")
    def kernel_grade(self, args: argparse.Namespace) -> int:
        """The points of the answers that this notebook's cells gave since its kernel started.

        A grader that runs the notebook again (nbgrader) reads the number as the cell's score. It knows right and wrong
        alone: no time enters.
        """
        from kernellab.teach.exercise import course

        lessons = course()
        try:
            exercises = lessons.lesson(args.id).exercise
        except CourseError:
            exercises = (lessons.exercise(args.id),)
        return sum(_points.get(e.id, 0) for e in exercises)

    @line_command
    @argument("name", help="a measurement: its speedup over eager; A/B: how many times as fast as B is A; or a session")
    @argument("expected", nargs="?", default="?", help="how many times as fast: 2x, 0.5, 1/3; ? skips it")
    @argument("reason", nargs="*", help="why, in your words")
    def kernel_predict(self, args: argparse.Namespace) -> None:
        """State what you expect before you measure it; only the first number counts. A session
        whose teaching mode waits for you continues with its measurement."""
        from kernellab.session import Session
        from kernellab.teach import progress

        session = (self.shell.user_ns if self.shell is not None else {}).get(args.name)
        if isinstance(session, Session):
            from kernellab.notebook.board.registry import workbench_of

            prediction = progress.stated(args.name, args.expected, "")
            workbench_of(session, self.lab.teaching).predict(prediction.expected, " ".join(args.reason).strip("\"'"))
            return

        history = progress.read()
        prediction = progress.stated(args.name, args.expected, " ".join(args.reason).strip("\"'"))
        earlier = history.prediction(args.name)
        if earlier is None or (prediction.expected and not earlier.expected):
            progress.record(prediction)
            history = progress.read()
        counts = history.prediction(args.name) or prediction
        if counts.expected == prediction.expected:
            print(f"{args.name}: {f'you expect {prediction.expected:g}x' if prediction.expected else 'you skip it'}.")
        elif counts.expected:
            print(f"{args.name}: your first prediction counts, {counts.expected:g}x.")
        else:
            print(f"{args.name}: it was measured already, and you skipped the prediction.")
        if "/" in args.name and earlier is None:
            from kernellab.notebook.warm import begin_judge

            begin_judge()

    @line_cell_command
    @argument("name", help="the measurement's name")
    @argument("--task", help="a task of the lesson, an exercise, a challenge, a variable or a file; default: NAME")
    @argument("--on", metavar="CHIP", help="on that GPU; where there is none, the lesson's recording, marked as such")
    @argument("--value", metavar="NAME", help="without a cell: a ratio that the notebook computed, by its variable")
    def kernel_measure(self, args: argparse.Namespace, cell: str | None = None) -> Any:
        """Time the sketch or kernel in the cell against PyTorch eager, quickly, next to your prediction.

        Without a cell (%kernel_measure A/B) compare two measurements.
        """
        from kernellab.notebook.learn.measure import compared, measured, replayed, stated_value, unrecorded
        from kernellab.teach import progress
        from kernellab.teach.recorded import here

        if cell is None and args.value:
            if args.value not in self.namespace:
                raise UsageError(f"there is no variable {args.value!r}")
            return stated_value(args.name, self.namespace[args.value])
        if cell is None:
            history = progress.read()
            if args.on and history.ratio(args.name) is None:
                return unrecorded(args.name, args.on)
            return compared(args.name, history, args.on if args.on and here(args.on) is None else "")
        target = here(args.on) if args.on else None
        if args.on and target is None:
            return replayed(args.name, cell, args.on)
        task = self._task(args.task or args.name)
        return measured(args.name, cell, task, self._ranked, target)

    @line_cell_command
    @argument("task", help="a task of the lesson, an exercise, a challenge, a variable or a file")
    @argument("--only", nargs="+", default=[], metavar="TENSOR", help="draw these tensors alone")
    @argument("--compiled", action="store_true", help="what the C++ compiler makes of it: its hottest loop, with facts")
    def kernel_watch(self, args: argparse.Namespace, cell: str = "") -> Any:
        """Watch the sketch in the cell: which elements each step loads and stores, at a small size, step by step."""
        from kernellab.notebook.learn.watch import watched

        if args.compiled:
            from kernellab.notebook.learn.compiled import compiled

            return compiled(cell, self._task(args.task))
        return watched(cell, self._task(args.task), args.only)

    @line_cell_command
    @argument("task", nargs="?", help="a challenge; without one they are listed")
    @argument("--hint", action="store_true", help="a hint, one step further each time")
    @argument("--dsl", help="the cell's DSL; default: a sketch is lowered, of code it is detected")
    @argument("--level", choices=("T2", "T3"), default="T2", help="the trust level of the verdict")
    def kernel_challenge(self, args: argparse.Namespace, cell: str | None = None) -> Any:
        """Practise: write a sketch or kernel for a task of the suite; it is judged on sizes that you do not see.

        The grade is the share of the bound that it reaches; the rules' kernel is timed next to it. Without a cell the
        challenge is shown; without a name all are listed.
        """
        from kernellab.notebook.learn import practice

        if args.task is None:
            return practice.listed()
        if args.hint:
            return practice.hinted(args.task)
        if cell is None:
            return practice.shown(args.task)
        return practice.tried(args.task, cell, args.level, args.dsl)

    @line_command
    @argument("lesson", nargs="?", default="", help="one lesson; default: all")
    @argument("--curve", action="store_true", help="the predictions as a curve")
    @argument("--csv", metavar="FILE", help="write points, tries and days of all exercises to a file, for a teacher")
    def kernel_progress(self, args: argparse.Namespace) -> Any:
        """How far you are: exercises, points, and how near your predictions come."""
        from kernellab.notebook.learn.card import calibration_figure, progress_card
        from kernellab.teach import progress
        from kernellab.teach.exercise import course

        history = progress.read()
        if args.csv:
            from kernellab.content import written
            from kernellab.notebook.saved.receipt import plain

            return plain(f"wrote {written(Path(args.csv), progress.as_csv(course(), history))}")
        if args.curve:
            from kernellab.notebook.saved.figures import themed

            return themed(calibration_figure(history.pairs()), self.lab.theme)
        return progress_card(course(), history, args.lesson)

    def _task(self, name: str) -> Task:
        """What ``name`` stands for: the notebook's, the course's, the suite's, a file."""
        from kernellab.notebook.magics.verify_cell import named_task
        from kernellab.task import load_task
        from kernellab.teach.challenge import challenge, challenges, task_of
        from kernellab.teach.exercise import course

        text = course().task_text(name)
        if name in self.namespace or (text is None and name.endswith(".py")):
            return named_task(name, self.namespace)
        if text is not None:
            return load_task(text, name.replace("-", "_"))
        if name in {t.name for t in challenges()} or "/" in name:
            return task_of(challenge(name))
        return named_task(name, self.namespace)

    @staticmethod
    def _verify(task: Task, source: Source, options: VerifyOptions) -> Verdict:
        from kernellab.session.engine.engine import engine
        from kernellab.sketch.run import confined
        from kernellab.teach.judge import target_of

        # the gate's answer is known, and many open lessons share a machine's memory
        confined.rest()
        with engine().verifying:
            return engine().verifier().verify(task, source, target_of(source), options=options)

    def _timed(self, exercise: Exercise, text: str, task: Task, outcome: Outcome) -> list[str]:
        """A right sketch's time next to eager's, the bound and the reference answer's, and what to try next."""
        from kernellab.teach.feedback import timed
        from kernellab.teach.judge import source_of, target_of

        try:
            source = source_of(text, task)
            timings = timed(exercise, source, task, target_of(source), self._ranked, outcome.facts)
        except KernellabError as error:
            return [f"It was not timed: {error.message}"]
        return [timings.text, f"Next: {timings.next_step}"]

    @staticmethod
    def _ranked(task: Task, source: Source, target: Target) -> Any:
        from kernellab.session.engine.engine import engine

        with engine().verifying:
            return engine().verifier().rank(task, source, target)


#: exercise -> points of the last answer that this process judged. What a grader that runs the notebook again asks for
_points: dict[str, int] = {}
