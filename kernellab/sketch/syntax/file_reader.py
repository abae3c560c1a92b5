"""From lines to blocks: the file rule's methods, which attach comments and pins to the nodes.

A child is a token of :class:`~kernellab.sketch.syntax.lexers.LayoutLexer`, whose value is a
:class:`~kernellab.sketch.syntax.lexers.LineNodes`, or what another method has returned."""

from __future__ import annotations

import dataclasses
from typing import Any

from lark import Token

from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.layout import LogicalLine
from kernellab.sketch.syntax.reader import LineReader
from kernellab.sketch.syntax.walk import is_written


class FileReader(LineReader):
    """Adds the file rule's methods to the reader of lines."""

    def file(self, children: list[tree.Sketch]) -> list[tree.Sketch]:
        return children

    def sketch(self, children: list[Any]) -> tree.Sketch:
        head, *middle, close = children
        line, node = head.value
        declarations: list[tree.Declaration] = []
        body: list[tree.Stmt] = []
        for child in middle:
            if isinstance(child, Token) and child.type == "L_DECLS":
                at, nodes = child.value
                declarations.extend(_dressed(declaration, at, i) for i, declaration in enumerate(nodes or ()))
            elif isinstance(child, Token):
                body.extend(_simple(child))
            else:
                body.append(child)
        end = close.value.line
        name = node.content if node is not None else "_"
        span = tree.Span(line.line, line.indent + 1, end.line, end.indent + 2)
        declared, rest = _leading_constants(tuple(declarations), tuple(body))
        comments = tree.Comments(line.before, line.behind)
        return tree.Sketch(name, declared, rest, comments, _comments_of(end), span)

    def block(self, children: list[Any]) -> tuple[tree.Stmt, ...]:
        body: list[tree.Stmt] = []
        for child in children:
            if not isinstance(child, Token):
                body.append(child)
            elif child.type == "L_SIMPLE":
                body.extend(_simple(child))
            elif child.type == "L_INLINE":
                body.extend(child.value.nodes.inline)
        return tuple(body)

    def for_block(self, children: list[Any]) -> Any:
        *hints, head, body = children
        line, node = head.value
        loop_hints = []
        for hint in hints:
            at, value = hint.value
            loop_hints.append(dataclasses.replace(value, comments=tree.Comments(at.before, at.behind)))
        pinned = line.pinned or any(hint.value.line.pinned for hint in hints)
        comments = tree.Comments(line.before, line.behind)
        return dataclasses.replace(node.content, body=body, hints=tuple(loop_hints), comments=comments, pinned=pinned)

    def if_block(self, children: list[Any]) -> tree.If:
        return self._if(children[0], children[1], children[2:])

    def _if(self, head: Token, body: tuple[tree.Stmt, ...], rest: list[Any]) -> tree.If:
        line, node = head.value
        orelse: tuple[tree.Stmt, ...] = ()
        if rest:
            token, block = rest[0]
            is_elif = token.type == "L_ELIF"
            orelse = (self._if(token, block, rest[1:]),) if is_elif else _with_comments_of(token.value.line, block)
        span = tree.Span(line.line, line.indent + 1, line.line, line.indent + len(line.text.strip()) + 1)
        comments = tree.Comments(line.before, line.behind)
        return tree.If(node.content, body, orelse, comments, line.pinned, span)

    def elif_block(self, children: list[Any]) -> tuple[Token, tuple[tree.Stmt, ...]]:
        return children[0], children[1]

    def else_block(self, children: list[Any]) -> tuple[Token, tuple[tree.Stmt, ...]]:
        return children[0], children[1]


def _comments_of(line: LogicalLine) -> tuple[str, ...]:
    return line.before if line.behind is None else (*line.before, line.behind)


def _dressed(node: Any, line: LogicalLine, index: int, last: bool = True) -> Any:
    """Return a node with its line's comments and pin: those before the line go to its first node, the one behind it to
    the ``last``."""
    before = line.before if index == 0 else ()
    behind = line.behind if last else None
    if not before and behind is None and not line.pinned:
        return node
    return dataclasses.replace(node, comments=tree.Comments(before, behind), pinned=line.pinned)


def _simple(token: Token) -> list[tree.Stmt]:
    line, nodes = token.value
    return [_dressed(n, line, i, i == len(nodes) - 1) for i, n in enumerate(nodes)]


def _with_comments_of(line: LogicalLine, body: tuple[tree.Stmt, ...]) -> tuple[tree.Stmt, ...]:
    """Return ``body`` with the comments of its ``else`` line on its first statement: the tree has no other place for
    them."""
    comments = _comments_of(line)
    if not comments or not body:
        return body
    first = body[0]
    merged = dataclasses.replace(first.comments, before=comments + first.comments.before)
    return (dataclasses.replace(first, comments=merged), *body[1:])


def _leading_constants(
    declarations: tuple[tree.Declaration, ...], body: tuple[tree.Stmt, ...]
) -> tuple[tuple[tree.Declaration, ...], tuple[tree.Stmt, ...]]:
    """AKG's ``tile = 128`` before the first loop is a constexpr unless something assigns to it again."""
    count = 0
    declared = list(declarations)
    for stmt in body:
        constant = (
            isinstance(stmt, tree.Assign)
            and len(stmt.targets) == 1
            and isinstance(stmt.value, tree.Num)
            and not is_written(stmt.targets[0].id, body[count + 1 :])
        )
        if not constant or not isinstance(stmt, tree.Assign):
            break
        item = tree.ConstDecl(stmt.targets[0].id, stmt.value, span=stmt.span)
        declared.append(tree.Declaration("constexpr", (item,), stmt.comments, stmt.pinned, stmt.span))
        count += 1
    return tuple(declared), body[count:]
