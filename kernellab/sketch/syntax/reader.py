"""From the grammar's rules to tree nodes: one method for each rule, which lark calls while it parses a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lark import Token, Transformer

from kernellab.sketch.syntax import tree


class Misplaced(Exception):
    """A line that the grammar reads but the language does not allow; ``span`` is the place."""

    def __init__(self, message: str, remedy: str, span: tree.Span) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.span = span


def constants_inside(span: tree.Span) -> Misplaced:
    return Misplaced("Constants are declared inside a block.", "Declare them before the first loop.", span)


class Head(NamedTuple):
    """A header line: its word (for, if, elif, else, sketch), its contents, and the statements after the colon.

    The contents are a loop without its body, a condition, a sketch's name, or None for ``else``."""

    word: str
    content: Any
    inline: tuple[tree.Stmt, ...]


class LineReader(Transformer[Token, Any]):
    """Builds the nodes of one line. ``base`` is the number of lines before it: places are those of the file."""

    base = 0

    # -- places

    def _at(self, token: Token) -> tree.Span:
        line, end_line = self.base + (token.line or 1), self.base + (token.end_line or 1)
        return tree.Span(line, token.column or 1, end_line, token.end_column or 1)

    @staticmethod
    def _join(first: tree.Span, last: tree.Span, extra: int = 0) -> tree.Span:
        return tree.Span(first.line, first.col, last.end_line, last.end_col + extra)

    # -- expressions

    def number(self, children: list[Token]) -> tree.Num:
        token = children[0]
        text = str(token)
        return tree.Num(_number(text), text, self._at(token))

    def string(self, children: list[Token]) -> tree.Str:
        return tree.Str(str(children[0])[1:-1], self._at(children[0]))

    def true(self, children: list[Token]) -> tree.Bool:
        return tree.Bool(True, self._at(children[0]))

    def false(self, children: list[Token]) -> tree.Bool:
        return tree.Bool(False, self._at(children[0]))

    def name(self, children: list[Token]) -> tree.Name:
        return tree.Name(str(children[0]), self._at(children[0]))

    def group(self, children: list[tree.Expr]) -> tree.Expr:
        return children[0]

    def unary(self, children: list[Any]) -> tree.Expr:
        token, operand = children
        span = self._join(self._at(token), operand.span)
        if token == "-" and isinstance(operand, tree.Num):
            # -inf and -1 are literals
            text = operand.text[1:] if operand.text.startswith("-") else f"-{operand.text}"
            return tree.Num(-operand.value, text, span)
        return tree.Unary(str(token), operand, span)

    def binary(self, children: list[Any]) -> tree.Binary:
        left, token, right = children
        return tree.Binary(str(token), left, right, self._join(left.span, right.span))

    def compare(self, children: list[Any]) -> tree.Binary:
        links = [self.binary(children[i : i + 3]) for i in range(0, len(children) - 2, 2)]
        result = links[0]
        for link in links[1:]:
            result = tree.Binary("and", result, link, self._join(result.span, link.span))
        return result

    def square(self, children: list[Any]) -> tree.List:
        items = tuple(c for c in children if c is not None)
        span = self._join(items[0].span, items[-1].span, 1) if items else tree.NOWHERE
        return tree.List(items, span)

    def arguments(self, children: list[Any]) -> list[Any]:
        return children

    def keyword(self, children: list[Any]) -> tree.Keyword:
        name, value = children
        return tree.Keyword(str(name), value, self._join(self._at(name), value.span))

    def call(self, children: list[Any]) -> tree.Call:
        name, member, arguments = children[0], children[1], children[2] or []
        args, keywords, misordered = _arguments(arguments)
        start = self._at(name)
        span = self._join(start, arguments[-1].span if arguments else start, 1)
        func = str(name) if member is None else f"{name}.{member}"
        return tree.Call(func, args, keywords, misordered, span)

    def bound(self, children: list[Any]) -> tree.Expr | None:
        return children[0]  # type: ignore[no-any-return]

    def cut(self, children: list[Any]) -> tree.Slice:
        start, stop, step = (*children, None)[:3]  # a slice without a second colon has no step
        spans = [c.span for c in (start, stop, step) if c is not None]
        return tree.Slice(start, stop, step, self._join(spans[0], spans[-1]) if spans else tree.NOWHERE)

    def newaxis(self, children: list[Token]) -> tree.NewAxis:
        return tree.NewAxis(self._at(children[0]))

    def subscript(self, children: list[Any]) -> tree.Subscript:
        name, items = children[0], tuple(children[1:])
        start = self._at(name)
        end = items[-1].span if items[-1].span is not tree.NOWHERE else start
        return tree.Subscript(str(name), items, self._join(start, end, 1))

    def indexed(self, children: list[Any]) -> tree.Expr:
        value, items = children[0], tuple(children[1:])
        end = items[-1].span if items[-1].span is not tree.NOWHERE else value.span
        span = self._join(value.span, end, 1)
        return (
            tree.Subscript(value.id, items, span) if isinstance(value, tree.Name) else tree.Indexed(value, items, span)
        )

    # -- small statements

    def simple(self, children: list[Any]) -> tuple[tree.Stmt, ...]:
        statements = tuple(c for c in children if c is not None)
        constants = [c for c in statements if isinstance(c, tree.Declaration)]
        if constants and len(constants) < len(statements):
            raise Misplaced(
                "Constants and statements are on one line.",
                "Declare constants on separate lines.",
                constants[0].span,
            )
        return statements

    def assign(self, children: list[Any]) -> tree.Assign | tree.Declaration:
        targets = [c for c in children if isinstance(c, Token)]
        values = children[len(targets) :]
        names = tuple(tree.Name(str(t), self._at(t)) for t in targets)
        span = self._join(names[0].span, values[-1].span)
        if len(values) == 1:
            return tree.Assign(names, values[0], span=span)
        if len(values) != len(names):
            raise Misplaced(
                f"{len(names)} names on the left and {len(values)} values on the right.",
                "Write one value for each name.",
                span,
            )
        # several values are constants: m0, n0 = 128, 256 of AKG
        items = tuple(
            tree.ConstDecl(n.id, v, span=self._join(n.span, v.span)) for n, v in zip(names, values, strict=True)
        )
        return tree.Declaration("constexpr", items, span=span)

    def augmented(self, children: list[Any]) -> tree.Assign:
        """Return ``s = s - x`` for ``s -= x``; it is printed so too."""
        target, sign, value = children
        name = tree.Name(str(target), self._at(target))
        span = self._join(name.span, value.span)
        return tree.Assign((name,), tree.Binary(str(sign)[:-1], name, value, span), span=span)

    def call_stmt(self, children: list[tree.Call]) -> tree.CallStmt:
        return tree.CallStmt(children[0], span=children[0].span)

    def move(self, children: list[Any]) -> tree.Move:
        name, arguments, _arrow, dest, *keywords = children
        args, more, _ = _arguments(arguments)
        span = self._join(self._at(name), (keywords[-1] if keywords else dest).span, 1)
        if not args:
            raise Misplaced(f"{name} has nothing before '->'.", f"Write {name}(source -> destination).", span)
        source = args[0] if len(args) == 1 else tree.List(args, self._join(args[0].span, args[-1].span))
        return tree.Move(str(name), source, dest, (*more, *keywords), span=span)

    # -- headers

    def inline(self, children: list[Any]) -> tuple[tree.Stmt, ...]:
        statements = self.simple(children)
        if statements and isinstance(statements[0], tree.Declaration):
            raise constants_inside(statements[0].span)
        return statements

    def sketch_head(self, children: list[Token]) -> Head:
        return Head("sketch", str(children[0]), ())

    def hint(self, children: list[Any]) -> tree.Hint:
        name, arguments = children[0], children[1] or []
        at = self._at(name)
        if name != "llm_hint":
            raise Misplaced(f"Unknown decorator '@{name}'.", 'Write @llm_hint("...") before a loop.', at)
        args, keywords, _ = _arguments(arguments)
        return tree.Hint(
            args + tuple(k.value for k in keywords), span=self._join(at, arguments[-1].span if arguments else at, 1)
        )

    def for_head(self, children: list[Any]) -> Head:
        name, arguments, inline = children
        args, keywords, _ = _arguments(arguments)
        at = self._at(name)
        if keywords or len(args) > 3:
            message = f"range takes no '{keywords[0].name}='." if keywords else "range takes one to three values."
            raise Misplaced(
                message,
                "Write range(stop), range(start, stop) or range(start, stop, step).",
                keywords[0].span if keywords else at,
            )
        span = self._join(at, args[-1].span, 2)
        return Head("for", tree.For(str(name), args, (), span=span), inline)

    def if_head(self, children: list[Any]) -> Head:
        return Head("if", children[0], children[1])

    def elif_head(self, children: list[Any]) -> Head:
        return Head("elif", children[0], children[1])

    def else_head(self, children: list[Any]) -> Head:
        return Head("else", None, children[0])

    # -- declarations

    def declarations(self, children: list[tree.Declaration]) -> tuple[tree.Declaration, ...]:
        return tuple(children)

    def symbols(self, children: list[Any]) -> tree.Declaration:
        return self._declaration("symbols", children[0], children[1:])

    def symbol(self, children: list[Any]) -> tree.SymbolDecl:
        name, value = children
        at = self._at(name)
        return tree.SymbolDecl(str(name), value, at if value is None else self._join(at, value.span))

    def tensors(self, children: list[Any]) -> tree.Declaration:
        return self._declaration("tensors", children[0], children[1:])

    def constexprs(self, children: list[Any]) -> tree.Declaration:
        return self._declaration("constexpr", children[0], children[1:])

    def requires(self, children: list[Any]) -> tree.Declaration:
        return self._declaration("require", children[0], children[1:])

    def opaques(self, children: list[Any]) -> tree.Declaration:
        return self._declaration("opaque", children[0], children[1:])

    def _declaration(self, kind: str, word: Token, items: Iterable[Any]) -> tree.Declaration:
        declared = tuple(items)
        span = self._join(self._at(word), declared[-1].span)
        return tree.Declaration(kind, declared, span=span)

    def tensor(self, children: list[Any]) -> tree.TensorDecl:
        name, *rest = children
        role = rest.pop()
        dtype = rest.pop()
        shape = tuple(c for c in rest if c is not None)
        span = self._join(self._at(name), self._at(role if role is not None else dtype))
        return tree.TensorDecl(str(name), shape, str(dtype), None if role is None else str(role), span)

    def const(self, children: list[Any]) -> tree.ConstDecl:
        name, value, *choices = children
        values = tuple(c for c in choices if c is not None)
        at = self._at(name)
        last = values[-1] if values else value
        return tree.ConstDecl(str(name), value, values, self._join(at, last.span) if last is not None else at)

    def opaque(self, children: list[Any]) -> tree.OpaqueDecl:
        name, *rest = children
        dtype = rest.pop()
        arrow = next(i for i, c in enumerate(rest) if isinstance(c, Token) and c.type == "ARROW")
        params = tuple(c for c in rest[:arrow] if c is not None)
        shape = tuple(c for c in rest[arrow + 1 :] if c is not None)
        return tree.OpaqueDecl(str(name), params, shape, str(dtype), self._join(self._at(name), self._at(dtype)))


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text) if text.isdigit() else float(text)


class _Arguments(NamedTuple):
    """Positional arguments, keywords, and whether a positional one came after a keyword."""

    args: tuple[tree.Expr, ...]
    keywords: tuple[tree.Keyword, ...]
    misordered: bool


def _arguments(nodes: list[Any]) -> _Arguments:
    args = tuple(node for node in nodes if not isinstance(node, tree.Keyword))
    keywords = tuple(node for node in nodes if isinstance(node, tree.Keyword))
    return _Arguments(args, keywords, any(isinstance(node, tree.Keyword) for node in nodes[: len(args)]))
