"""The set by DSL: operator to its task and its kernel by hand."""

from __future__ import annotations

from tests.evolve.hand import Hand, cpp_products, cpp_rows, triton_products, triton_rows

SETS: dict[str, dict[str, Hand]] = {
    "cpp": {**cpp_rows.ROWS, **cpp_products.PRODUCTS},
    "triton": {**triton_rows.ROWS, **triton_products.PRODUCTS},
}
