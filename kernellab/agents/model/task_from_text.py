"""Writes a task file from a description, loads and audits it; a person approves it before it is used."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab import python_tree
from kernellab.agents.model.conversation import Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.reply.answers import AnswerError
from kernellab.agents.model.reply.blocks import fences
from kernellab.errors import TaskError
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.models import Talk

_FILE = "prompts/task.j2"


@dataclass(frozen=True)
class ProposedTask:
    """A file's text, its task, and its weaknesses as a test (sentences; mostly none)."""

    text: str
    task: Task
    flags: tuple[str, ...] = ()


def task_prompt(words: str, options: Options | None = None) -> Prompt:
    """The prompt for a model, or a person, to write a task file from ``words``."""
    parts = [
        Part("role", _FILE, render("task", "role"), stable=True),
        Part("example", _FILE, render("task", "example"), stable=True),
        Part("answer", _FILE, render("task", "answer"), stable=True),
        Part("words", "a person", render("task", "words", words=words.strip())),
    ]
    return assemble(parts, (options or Options()).token_budget, purpose="task")


def task_from_words(
    words: str, talk: Talk, name: str = "operator", options: Options | None = None
) -> ProposedTask:  # fmt: skip
    """Write a task file for an operator described in words.

    The file runs here to load it, after a check for code that a task does not need, and is audited: outputs that zeros
    or an input would match, inputs that do not matter and randomness are returned to the model.

    Raises:
        TaskError: no words, or no reply contained a file that loads and that a kernel could pass (names the last
        fault). ModelError: the request failed.
    """
    if not words.strip():
        raise TaskError("The description of the task is empty.", "Describe the operator, its inputs and their sizes.")
    options = options or Options()
    conversation = Conversation(talk, task_prompt(words, options), options)
    text = conversation.ask()
    loaded: ProposedTask | None = None
    for last in [False] * options.repairs + [True]:
        try:
            loaded = read_task_file(text, name)
            findings = list(loaded.flags)
        except (AnswerError, TaskError) as error:
            findings = [str(error)]
        if not findings or last:
            break
        text = conversation.again(render("task", "repair", findings=findings), "task")
    if loaded is None:
        raise TaskError(
            f"The model wrote no usable task in {options.repairs + 1} replies. {findings[0]}",
            "Describe the operator differently, or write the task file.",
        )
    return loaded


def read_task_file(text: str, name: str) -> ProposedTask:
    """Return the task of a reply: its Python block, or the whole reply.

    Raises:
        AnswerError: no code, or code that a task does not need (other imports, files, eval).
        TaskError: it does not load, or no kernel can pass it (random, only NaN).
    """
    from kernellab.task.audit import admit

    blocks = [f for f in fences(text) if f.language in ("", "python", "py")]
    code = blocks[-1].text if blocks else text.strip() + "\n"
    if "def " not in code:
        raise AnswerError("The reply has no Python file.", "Write the whole file in one ```python block.")
    _harmless(code)
    task = load_task(code, name)
    # if the audit cannot run at these sizes, the author is not at fault
    flags = tuple(flag.reason for flag in admit(task) if flag.rule != "not-audited")
    return ProposedTask(code, task, flags)


_IMPORTS = frozenset(("torch", "numpy", "math", "kernellab", "__future__", "typing", "functools"))
_REFUSED = frozenset(
    ("open", "exec", "eval", "compile", "__import__", "globals", "locals", "vars", "getattr", "setattr", "delattr",
     "input", "breakpoint", "exit", "quit", "memoryview")
)  # fmt: skip
#: Parts of torch and numpy that read, write, load or build something.
_REACHING = frozenset(
    ("load", "save", "hub", "utils", "ops", "classes", "jit", "package", "distributed", "multiprocessing", "_C",
     "fromfile", "tofile", "loadtxt", "savetxt", "genfromtxt", "memmap", "savez", "ctypeslib", "from_file", "cuda")
)  # fmt: skip


def _harmless(code: str) -> None:
    """Refuse a reference that does more than arithmetic, without running it. This is a check, not a sandbox.

    Raises:
        AnswerError: the code is refused; names the line.
        TaskError: the code does not parse.
    """
    try:
        tree = python_tree.parse(code)
    except SyntaxError as error:
        raise TaskError(f"Line {error.lineno} does not parse: {error.msg}.", "Correct it.") from None
    for node in ast.walk(tree):
        bad = _reaching(node)
        if bad:
            line = getattr(node, "lineno", "?")
            raise AnswerError(f"Line {line} uses {bad}, which a task does not need.", "Write plain tensor arithmetic.")


def _reaching(node: ast.AST) -> str:
    if isinstance(node, ast.Import):
        return next((a.name for a in node.names if not _allowed(a.name)), "")
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{a.name}" for a in node.names]
        return next((n for n in names if node.level or not _allowed(n)), "")
    if isinstance(node, ast.Name) and (node.id in _REFUSED or node.id.startswith("__")):
        return node.id
    if isinstance(node, ast.Attribute):
        hidden = node.attr.startswith("__") and node.attr != "__init__"
        return node.attr if hidden or node.attr in _REACHING else ""
    return ""


def _allowed(name: str) -> bool:
    first, *rest = name.split(".")
    return first in _IMPORTS and not _REACHING & set(rest)
