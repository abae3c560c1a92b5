"""What a group of warps writes to memory after its products: stores of each thread, scatters of rows, and stores
through the copy engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.lowering.gluon.matrices import matrix_shape, row_index, transposed_matrix_shape
from kernellab.lowering.gluon.parts import Layouts
from kernellab.lowering.gluon.roles import Roles, coordinates
from kernellab.lowering.python_text import tidy
from kernellab.lowering.triton.folded import RangeLanes, lanes_of_parts
from kernellab.lowering.triton.kernel import KernelWriter
from kernellab.lowering.triton.values import Text
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import DType, Point, Range, Scatter, Store, Value

#: bytes of the widest access of a thread to global memory
_ACCESS_BYTES = 16


def rows_and_columns(shape: Sequence[IntExpr]) -> tuple[RangeLanes, ...]:
    """Return the positions of the ranges of ``shape`` in a matrix whose columns are the last range; none for a
    matrix."""
    last = len(shape) - 1
    return lanes_of_parts([range(last), [last]], shape) if last > 1 else ()


@dataclass(frozen=True)
class Results:
    """Writes the stores of the groups' function."""

    roles: Roles
    writer: KernelWriter
    layouts: Layouts

    def store(self, stmt: Store) -> None:
        """Write a store, through the copy engine if the plan says so."""
        region, is_transposed = stmt.region, False
        shape, lanes = region.shape, rows_and_columns(region.shape)
        if len(shape) > 2:
            is_transposed = stmt.value.type.shape == transposed_matrix_shape(shape)
            if is_transposed:
                lanes = lanes_of_parts([range(1, len(shape)), [0]], shape)
            shape = stmt.value.type.shape if is_transposed else matrix_shape(shape)
        code = self._converted(stmt.value, shape, region.tensor.dtype, self.layouts.of_tile(shape))
        if stmt is self.roles.plan.async_store:
            self._engine_store(stmt, code, shape)
            return
        self.writer.places.enter()
        place = self.writer.places.place(region, write=True, lanes=lanes)
        pointer, mask = tidy(place.pointer), tidy(place.mask) if place.mask else ""
        layout = self.layouts.vector
        if len(shape) == 2:
            layout = self._define_stored_layout(region.tensor.dtype, shape, is_transposed)
            code = f"gl.convert_layout({code}, {layout})"
        if len(shape) == 2 or self.layouts.is_rows(shape):
            pointer = f"gl.set_auto_layout({pointer}, {layout})"
        mask = f", mask=gl.set_auto_layout({mask}, {layout})" if mask else ""
        self.writer.out.put(f"gl.store({pointer}, {code}{mask})")
        self.writer.places.leave(release=True)

    def _converted(self, value: Value, shape: tuple[IntExpr, ...], dtype: DType, layout: str) -> str:
        """Return ``value`` filled to ``shape`` and converted to ``dtype``, computed in ``layout``."""
        values = self.writer.values
        with self.layouts.computing(layout):
            code = values.filled(value, shape)
            return tidy(values.cast(Text(code, shape), value.type.dtype, dtype).code)

    def scatter(self, stmt: Scatter) -> None:
        """Write rows of a result at the indices of a vector; those outside the tensor write nothing."""
        writer, tensor, put = self.writer, stmt.tensor, self.writer.out.put
        code = self._converted(stmt.value, stmt.shape, tensor.dtype, self.layouts.of(stmt.shape))
        layout = self._define_stored_layout(tensor.dtype, stmt.shape, False)
        terms, tests = [tensor.name], []
        for dim, (value, item) in enumerate(zip(stmt.index, stmt.items, strict=True)):
            size, name = writer.int_text(tensor.shape[dim]), writer.names.fresh("placed")
            put(f"{name} = {self._scatter_index(value, item, stmt.shape[:1], layout)}")
            tests.append(f"({name} >= 0) & ({name} < {size})")
            # inside the tensor it has 32 bits, as the offset does
            strides = [f"({writer.int_text(s)})" for s in tensor.shape[dim + 1 :] if not s.is_one]
            terms.append(" * ".join([f"tl.cast({name}, tl.int32)", *strides]))
        code = f"gl.convert_layout({code}, {layout})"
        put(f"gl.store({' + '.join(terms)}, {code}, mask={' & '.join(tests)})")

    def _scatter_index(self, value: Value, item: Point | Range | None, rows: tuple[IntExpr, ...], layout: str) -> str:
        """Return the index of a result's elements in one dimension: its columns, a vector for its rows, or a number."""
        writer, values = self.writer, self.writer.values
        if isinstance(item, Range):
            start, extent = writer.int_text(item.start), writer.int_text(item.extent)
            return f"({start} + gl.arange(0, {extent}, gl.SliceLayout(0, {layout})))[None, :]"
        if not value.type.shape:
            return tidy(values.write(value).code)
        with self.layouts.computing(self.layouts.of_result()):
            # positions have no layout until they meet a tile that has one
            zeros = values.full(rows, "0", value.type.dtype)
            vector = f"{values.filled(row_index(value), rows)} + {zeros}"
        return f"gl.convert_layout({vector}, gl.SliceLayout(1, {layout}))[:, None]"

    def _engine_store(self, stmt: Store, code: str, shape: Sequence[IntExpr]) -> None:
        """Write a store of ``code`` through the copy engine, which reads it from shared memory."""
        source, plan, put = self.roles.boxes[id(stmt)], self.roles.plan, self.writer.out.put
        for part, name in enumerate(self._column_parts(code, shape)):
            target = self._result_buffer(part)
            if plan.store_parts > 1:
                put("tma.store_wait(1)  # the part before the last one has been read")
            else:
                put("tma.store_wait(0)  # the last tile's has been read")
            put(f"{target}.store({name})")
            put("fence_async_shared()")
            if len(source.box.block) > 2:
                target += f".reshape([{', '.join(self.writer.int_text(b) for b in source.box.block)}])"
            put(f"tma_store({source.name}, [{coordinates(self.writer, source.box, part)}], {target})")

    def _result_buffer(self, part: int) -> str:
        """Return the buffer of a part: each group has one, or two that its parts use in turn."""
        plan = self.roles.plan
        if plan.store_parts > 1:
            return f"result_buffer.index({f'who * 2 + {part % 2}' if plan.groups > 1 else part % 2})"
        return "result_buffer.index(who)" if plan.groups > 1 else "result_buffer"

    def _column_parts(self, code: str, shape: Sequence[IntExpr]) -> list[str]:
        """Return the parts of a result's columns, in order: halves, and halves of those."""
        wanted, names = self.roles.plan.store_parts, self.writer.names
        if wanted == 1:
            return [code]
        rows, columns = shape
        parts = [names.fresh("whole")]
        self.writer.out.put(f"{parts[0]} = {code}")
        while len(parts) < wanted:
            width = self.writer.int_text(int_op("//", columns, num(2 * len(parts))))
            extents = f"[{self.writer.int_text(rows)}, 2, {width}]"
            halves = [names.fresh("part") for _ in range(2 * len(parts))]
            for at, whole in enumerate(parts):
                left, right = halves[2 * at : 2 * at + 2]
                self.writer.out.put(f"{left}, {right} = {whole}.reshape({extents}).permute(0, 2, 1).split()")
            parts = halves
        return parts

    def _define_stored_layout(self, dtype: DType, shape: Sequence[IntExpr], is_transposed: bool) -> str:
        """Write the layout of a matrix in which each thread stores 16 contiguous bytes, and return its name."""
        if is_transposed:  # neighbouring rows are contiguous
            layout = "gl.BlockedLayout([1, 1], [32, 1], [WARPS, 1], [0, 1])"
        else:
            columns = self.writer.ints.const(shape[1]) or 1
            each = max(1, min(_ACCESS_BYTES // dtype.bytes, columns))
            across = max(1, min(32, columns // each))
            layout = f"gl.BlockedLayout([1, {each}], [{32 // across}, {across}], [WARPS, 1], [1, 0])"
        name = self.writer.names.fresh("STORED")
        self.writer.out.put(f"{name}: gl.constexpr = {layout}")
        return name


__all__ = ["Results", "rows_and_columns"]
