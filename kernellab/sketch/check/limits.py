"""Constraints that values can break: ``require:``, and the memory that the tiles of one iteration take."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.records import Diagnostic
from kernellab.sketch.program import affine
from kernellab.sketch.program.alive import declared_tiles, most_alive
from kernellab.sketch.program.ints import IntExpr, product
from kernellab.sketch.program.program import If, Loop, Program, Statement, Tile
from kernellab.sketch.syntax.messages import diagnostic
from kernellab.sketch.syntax.tree import Span
from kernellab.target import Chip


def check_limits(program: Program, constexpr: Mapping[str, int | float], chip: Chip | None) -> list[Diagnostic]:
    """Broken constraints, and kernels whose tiles do not fit on ``chip``."""
    env: dict[str, int | float] = dict(constexpr)
    if chip is not None:
        env |= chip_facts(chip)
    found = [d for c in program.requires if (d := _broken(c, env, program)) is not None]
    if chip is not None and chip.on_chip_bytes:
        found += [d for k in program.kernels if (d := _footprint(k.body, k.span, constexpr, chip)) is not None]
    return found


def chip_facts(chip: Chip) -> dict[str, int]:
    """The facts of ``chip`` that a constraint may name."""
    return {
        "cores": chip.cores,
        "simd_bits": chip.simd_bits,
        "l1_bytes": chip.l1_bytes,
        "l2_bytes": chip.l2_bytes,
        "l3_bytes": chip.l3_bytes,
        "shared_bytes": chip.shared_bytes,
        "on_chip_bytes": chip.on_chip_bytes,
    }


def _broken(condition: IntExpr, env: Mapping[str, int | float], program: Program) -> Diagnostic | None:
    names = sorted(condition.names())
    if any(n not in env for n in names):
        return None
    try:
        if condition.evaluate(env):  # type: ignore[arg-type]
            return None
    except ZeroDivisionError:
        pass
    spans = [c.span for c in program.constexprs if c.name in names]
    span = spans[0] if spans else program.kernels[0].span
    values = ", ".join(f"{n} is {env[n]}" for n in names)
    return diagnostic("require", span.line, span.col, what=f"'{_bare(condition)}'", values=values)


def _bare(condition: IntExpr) -> str:
    text = str(condition)
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _footprint(
    body: tuple[Statement, ...], span: Span, constexpr: Mapping[str, int | float], chip: Chip
) -> Diagnostic | None:
    env = {n: int(v) for n, v in constexpr.items()}
    total, tiles = most_alive(body, lambda tile: _bytes(tile, env))
    if total <= chip.on_chip_bytes:
        return None
    largest = max(tiles, key=lambda t: _bytes(t, env), default=None)
    names = sorted({n for t in tiles for d in t.shape for n in d.names()}) or ["the tiles"]
    place = span if largest is None else _declared_at(body, largest) or span
    return diagnostic(
        "footprint", place.line, place.col, bytes=f"{total:,}", chip=chip.name, limit=f"{chip.on_chip_bytes:,}",
        names=", ".join(names),
    )  # fmt: skip


def _bytes(tile: Tile, env: Mapping[str, int]) -> int:
    """Bytes of ``tile``; 0 when its extent depends on a symbol, whose size is not known here."""
    try:
        return affine.simplify(product(tile.shape)).evaluate(env) * tile.dtype.bytes
    except KeyError:
        return 0


def _declared_at(body: tuple[Statement, ...], tile: Tile) -> Span | None:
    for stmt in body:
        if isinstance(stmt, Loop):
            found = _declared_at(stmt.body, tile)
        elif isinstance(stmt, If):
            found = _declared_at(stmt.then, tile) or _declared_at(stmt.orelse, tile)
        else:
            found = stmt.span if tile in declared_tiles(stmt) else None
        if found is not None:
            return found
    return None
