"""The Coder that a model plays: whole files or edits, applied all or none, checked before verification."""

from __future__ import annotations

import ast
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING

from kernellab import python_tree
from kernellab.agents.briefs import CodeBrief, CodeReply
from kernellab.agents.model.conversation import REPEATED_REMEDY, REPEATS, Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt
from kernellab.agents.model.prompts.code import code_prompt
from kernellab.agents.model.prompts.code_base import Base, base_of, judged
from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.prompts.marks import in_full, in_short
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.reply.answers import AnswerError, Edit, NoAnswer
from kernellab.agents.model.reply.code import CodeAnswer, parse_code
from kernellab.agents.model.reply.edits import apply_edits, carry_lines
from kernellab.agents.model.reply.sketches import finish, parse_done
from kernellab.errors import TargetError
from kernellab.lowering.embedded_sketch import same_code
from kernellab.records import Author, Route, Source

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk

_MOST = 6


class ModelCoder:
    """Asks a model for the kernel, and for a fixed answer while it cannot be applied or breaks the static rules.

    ``talk`` is a :class:`kernellab.models.Talk`; without ``knowledge`` the DSL's documents are omitted.
    """

    author = Author.MODEL

    def __init__(self, talk: Talk, knowledge: Knowledge | None = None, options: Options | None = None) -> None:
        self._talk = talk
        self._library = Library(knowledge)
        self._options = options or Options.within(talk)

    def prompt(self, brief: CodeBrief) -> Prompt:
        """The model's first prompt. Raises PromptError if it does not fit."""
        return code_prompt(brief, self._library, self._options)

    def code(self, brief: CodeBrief) -> CodeReply | Route:
        """Return the first answer that can be applied and is a kernel of the target's DSL.

        Return a route to FINISH if the last code passed and the model keeps it.

        Raises:
            ModelError: the request failed, or the replies were cut or filtered.
            AnswerError: no answer could be used within the repairs; the message contains the last fault.
            PromptError: the prompt does not fit its budget.
        """
        base = base_of(brief, self._options)
        conversation = Conversation(self._talk, code_prompt(brief, self._library, self._options, base), self._options)
        text = conversation.ask()
        prose_replies = 0
        for _ in range(self._options.repairs):
            try:
                return _used(text, brief, base)
            except AnswerError as error:
                prose_replies = prose_replies + 1 if isinstance(error, NoAnswer) else 0
                if prose_replies > 1:
                    raise AnswerError(
                        f'The model writes no code. It answers: "{shorten(text, 240)}"',
                        "Look at its replies, or give the role to another model, the rules or a person.",
                    ) from None
                request = render("coder", "repair", findings=error.findings[:_MOST])
                text = conversation.again(request, "edit")
                if conversation.repeated:
                    raise AnswerError(f"{REPEATS} {error.findings[0]}", REPEATED_REMEDY, error.findings) from None
        try:
            return _used(text, brief, base)
        except AnswerError as error:
            raise AnswerError(
                f"None of the model's {self._options.repairs + 1} answers could be used. {error.findings[0]}",
                "Look at its replies, or give the role to another model, the rules or a person.",
                error.findings,
            ) from error


def _used(text: str, brief: CodeBrief, base: Base) -> CodeReply | Route:
    """Return the answer's code, or the end if a kernel has passed and the model knows no faster one or keeps it."""
    if brief.passed and (done := parse_done(text)) is not None:
        return done
    reply = read_code(text, brief, base)
    verdict = judged(brief)
    is_kept = brief.previous is not None and same_code(reply.source, brief.previous)
    if is_kept and verdict is not None and verdict.passed:
        return finish(reply.rationale)
    return reply


def read_code(text: str, brief: CodeBrief, base: Base, author: Author = Author.MODEL) -> CodeReply:
    """Return the source that results from an answer and the base's files.

    Raises:
        AnswerError: it cannot be read or applied, is not a kernel of the DSL, or is the code that failed before.
    """
    if parse_done(text) is not None:
        raise AnswerError("No kernel has passed yet, so the work is not done.", "Write the code.")
    answer = parse_code(text, base.main_file, base.shown)
    source = _source(answer, brief, base, author)
    try:
        _check(source)
    except AnswerError as error:
        raise _about_the_block(error, base.main_file) if answer.nameless else error from None
    if brief.previous is not None and same_code(source, brief.previous) and not answer.keep:
        raise AnswerError("The code is the same as before.", "Change what the Verifier found, or answer KEEP.")
    # the text of the round in the history and in the list of turns
    critique = answer.critique
    keep_note = (
        "The Coder keeps the code that it was shown." if answer.keep and not (answer.rationale or critique) else ""
    )
    rationale = "\n".join(filter(None, [answer.rationale, critique, keep_note]))
    return CodeReply(source, dict(brief.constexpr), rationale)


def _about_the_block(error: AnswerError, main_file: str) -> AnswerError:
    """Add how a block without a name was read to ``error``: this is the most frequent cause."""
    explanation = (
        f"Your block has no FILE: line, so it was taken for the whole of {main_file}. Write FILE: {main_file} before a "
        f"whole file; to change a part of it, write EDIT: {main_file} with SEARCH and REPLACE."
    )
    return AnswerError(error.message, error.remedy, (explanation, *error.findings))


def _source(answer: CodeAnswer, brief: CodeBrief, base: Base, author: Author) -> Source:
    if answer.keep:
        if base.source is None:
            raise AnswerError("There is no code to keep.", f"Write FILE: {base.main_file} and the file in a block.")
        return base.source
    files = {**base.files, **base.shown, **answer.files}
    if answer.edits:
        unseen = base.files.keys() - base.shown.keys() - answer.files.keys()
        files = apply_edits(files, [_as_shown(edit, base) for edit in answer.edits], unseen)
    files |= {name: in_full(name, files[name], base.sketch) for name in base.in_short}
    source = base.source or Source(dsl=brief.target.dsl, files={}, origin=author)
    line_map = {
        name: carry_lines(source.files[name], files[name], lines)
        for name, lines in source.line_map.items()
        if name in files
    }
    changed = source.model_copy(update={"files": files, "line_map": line_map, "origin": author})
    if base.lowered is not None and same_code(changed, base.lowered):
        # byte for byte the rules' code: it may run like theirs
        return base.lowered
    return changed


def _as_shown(edit: Edit, base: Base) -> Edit:
    """Return ``edit`` in terms of the text that a prompt shows, also if it quotes the file's own."""
    if edit.file not in base.in_short:
        return edit
    search, new = (in_short(edit.file, text, base.sketch) for text in (edit.search, edit.replace))
    return replace(edit, search=search, replace=new)


def _check(source: Source) -> None:
    """Check without building: that Python parses, and the DSL's static rules.

    Raises:
        AnswerError: the code cannot be built; with a sentence for each finding.
    """
    from kernellab.dsls import get_adapter

    findings: list[str] = []
    if source.entry_file not in source.files:
        findings.append(f"There is no {source.entry_file}, which must define {source.entry}(*inputs).")
    for name, text in source.files.items():
        if name.endswith(".py"):
            try:
                tree = python_tree.parse(text)
            except SyntaxError as error:
                findings.append(f"{name}:{error.lineno}: {error.msg}.")
                continue
            if name == source.entry_file and not _defines(tree, source.entry):
                findings.append(f"{name} does not define {source.entry}.")
    if not findings:
        try:
            static_findings = get_adapter(source.dsl).static(source)
        except TargetError:
            static_findings = []
        # the author of the code cannot see into a helper
        findings = [f.message if is_helper(f.file) else f"{f.file}:{f.line or '?'}: {f.message}"
                    for f in static_findings if f.fatal]  # fmt: skip
    if findings:
        raise AnswerError("The code cannot be built.", "Fix it.", tuple(findings))


def _defines(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in (name, "ModelNew"):
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                return True
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any((a.asname or a.name) == name for a in node.names):
            return True
    return False
