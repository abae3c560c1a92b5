"""The Coder that a model plays: whole files or edits, applied all or not at all, looked at before the Verifier is."""

from __future__ import annotations

import ast
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING

from kernellab.agents.briefs import CodeBrief, CodeReply
from kernellab.agents.model.conversation import REPEATED_REMEDY, REPEATS, Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt
from kernellab.agents.model.prompts.code import Base, base_of, code_prompt, judged
from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.prompts.marks import in_full, in_short
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.reply.edits import apply_edits, carry_lines
from kernellab.agents.model.reply.reading import AnswerError, CodeAnswer, Edit, NoAnswer, finish, parse_code, parse_done
from kernellab.errors import TargetError
from kernellab.lowering.embedded_sketch import same_code
from kernellab.records import Author, Route, Source

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk

_MOST = 6


class ModelCoder:
    """Asks a model for the kernel, and for a fixed answer while it cannot be applied or cannot be honest.

    ``talk`` is a :class:`kernellab.models.Talk`; without ``knowledge`` the DSL's documents are left out.
    """

    author = Author.MODEL

    def __init__(self, talk: Talk, knowledge: Knowledge | None = None, options: Options | None = None) -> None:
        self._talk = talk
        self._library = Library(knowledge)
        self._options = options or Options.within(talk)

    def prompt(self, brief: CodeBrief) -> Prompt:
        """What the model will be sent first. Raises PromptError when it does not fit."""
        return code_prompt(brief, self._library, self._options)

    def code(self, brief: CodeBrief) -> CodeReply | Route:
        """The first answer that can be applied and is a kernel of the target's DSL.

        A route to FINISH where the last code passed and the model leaves it as it is.

        Raises:
            ModelError: the model could not be asked, or its replies were cut or filtered.
            AnswerError: no answer could be used within the repairs; the message holds the last fault.
            PromptError: the prompt does not fit its budget.
        """
        base = base_of(brief, self._options)
        conversation = Conversation(self._talk, code_prompt(brief, self._library, self._options, base), self._options)
        text = conversation.ask()
        words_alone = 0
        for _ in range(self._options.repairs):
            try:
                return _used(text, brief, base)
            except AnswerError as error:
                words_alone = words_alone + 1 if isinstance(error, NoAnswer) else 0
                if words_alone > 1:
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
    """What an answer is, or the end where a kernel has passed and it knows no faster one or keeps that code."""
    if brief.passed and (done := parse_done(text)) is not None:
        return done
    reply = read_code(text, brief, base)
    verdict = judged(brief)
    kept = brief.previous is not None and same_code(reply.source, brief.previous)
    if kept and verdict is not None and verdict.passed:
        return finish(reply.rationale)
    return reply


def read_code(text: str, brief: CodeBrief, base: Base, author: Author = Author.MODEL) -> CodeReply:
    """The source that an answer makes of the base's files.

    Raises:
        AnswerError: it cannot be read or applied, is no kernel of the DSL, or is the code that failed before.
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
    # what a history and a list of turns say of the round
    critique = answer.critique
    kept = "The Coder keeps the code that it was shown." if answer.keep and not (answer.rationale or critique) else ""
    rationale = "\n".join(filter(None, [answer.rationale, critique, kept]))
    return CodeReply(source, dict(brief.constexpr), rationale)


def _about_the_block(error: AnswerError, main_file: str) -> AnswerError:
    """``error`` with what was made of a block that has no name, which is most often what is wrong."""
    said = (
        f"Your block has no FILE: line, so it was taken for the whole of {main_file}. Write FILE: {main_file} before a "
        f"whole file; to change a part of it, write EDIT: {main_file} with SEARCH and REPLACE."
    )
    return AnswerError(error.message, error.remedy, (said, *error.findings))


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
        # to the byte what the rules write: it may run as theirs does
        return base.lowered
    return changed


def _as_shown(edit: Edit, base: Base) -> Edit:
    """``edit`` of the text that a prompt shows, also where it quotes the file's own."""
    if edit.file not in base.in_short:
        return edit
    search, new = (in_short(edit.file, text, base.sketch) for text in (edit.search, edit.replace))
    return replace(edit, search=search, replace=new)


def _check(source: Source) -> None:
    """What can be seen without building: Python that parses, and the DSL's own static rules.

    Raises:
        AnswerError: with a sentence for each finding.
    """
    from kernellab.dsls import get_adapter

    findings: list[str] = []
    if source.entry_file not in source.files:
        findings.append(f"There is no {source.entry_file}, which must define {source.entry}(*inputs).")
    for name, text in source.files.items():
        if name.endswith(".py"):
            try:
                tree = ast.parse(text)
            except SyntaxError as error:
                findings.append(f"{name}:{error.lineno}: {error.msg}.")
                continue
            if name == source.entry_file and not _defines(tree, source.entry):
                findings.append(f"{name} does not define {source.entry}.")
    if not findings:
        try:
            found = get_adapter(source.dsl).static(source)
        except TargetError:
            found = []
        # a helper is not its author's to look into
        findings = [f.message if is_helper(f.file) else f"{f.file}:{f.line or '?'}: {f.message}"
                    for f in found if f.fatal]  # fmt: skip
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
