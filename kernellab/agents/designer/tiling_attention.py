"""Tiles of attention: rows, keys, and how much of a head's width one program holds."""

from __future__ import annotations

from kernellab.agents.designer.attention import Roles, last_key, roles
from kernellab.agents.designer.emit_values import Tiling
from kernellab.agents.designer.expr import Attend, Axis
from kernellab.agents.designer.plan import Kernel
from kernellab.agents.designer.tiling_windows import WindowTiler, even
from kernellab.errors import DesignError

#: columns of the result that one program of a GPU accumulates; width of which one tile holds all
_COLUMNS, _WIDTH = 256, 256
#: shared memory of an SM that holds three stages of 128 keys and values of 128 narrow elements
_LARGE = 224 << 10


class AttentionTiler(WindowTiler):
    """Tilers of one file, attention among its kernels."""

    def _order(self, k: Kernel) -> tuple[Axis, ...]:
        if not isinstance(k.dot, Attend):
            return super()._order(k)
        r = self._roles(k)
        return (*r.batch, r.row, r.width, r.keys, r.col)

    def _roles(self, k: Kernel) -> Roles:
        assert isinstance(k.dot, Attend)
        order = [a for o in k.outs for ix in o.index for a in ix.leaves() if a in k.par]
        found = roles(k.dot, [*dict.fromkeys(order), *(a for a in k.par if a not in order)])
        if found is None:
            raise DesignError("An attention without rows or columns of its own has no template.", "Write it by hand.")
        return found

    def _tiling(self, k: Kernel) -> Tiling:
        if not isinstance(k.dot, Attend):
            return super()._tiling(k)
        t = Tiling(self._order(k), core="grididx" if self.gpu else "coreidx", lanes=self.gpu)
        r = self._roles(k)
        if self.gpu:
            self._gpu_tiles(k.dot, t, r)
        else:
            self._cpu_tiles(t, r)
        t.exact = self._exact(t)
        return t

    def _cpu_tiles(self, t: Tiling, r: Roles) -> None:
        rows, keys = self.style.attention
        t.whole = frozenset([r.width, r.col])
        t.blocks = {r.row: self._pieces("BM", rows, r.row, 8, 256), r.keys: self._pieces("BN", keys, r.keys, 16, 1024)}
        t.precision = "ieee"

    def _pieces(self, name: str, most: int, axis: Axis, least: int, greatest: int) -> str:
        """A fixed extent in equal pieces, so that no row or key is computed in vain; else powers of two."""
        if not isinstance(axis.extent, int):
            return self._block(name, most, axis, least, greatest)
        value = even(axis.extent, most)
        halves = tuple(c for c in (value // 4, value // 2, value) if c >= min(least, value))
        # with pieces that divide the extent, no edge is masked
        exact = tuple(c for c in halves if axis.extent % c == 0)
        return self.consts.add(name, value, exact if value in exact else halves)

    def _gpu_tiles(self, att: Attend, t: Tiling, r: Roles) -> None:
        width, columns = self._size(r.width), self._size(r.col)
        wider = max(min(width, _WIDTH), min(columns, _COLUMNS))
        causal = last_key(att.a, r.row, r.keys) is not None
        rows, keys, t.warps, t.stages = self._gpu_block(att, wider, causal)
        if att.narrow and not self._wide_scores(att) and not self._fused_multiply_add:
            t.descriptors = wider > 64
        t.blocks = {r.row: self._block("BM", rows, r.row, 16, 256), r.keys: self._block("BN", keys, r.keys, 16, 256)}
        whole = []
        for axis, name, most in ((r.width, "BD", _WIDTH), (r.col, "BV", _COLUMNS)):
            if isinstance(axis.extent, int) and axis.extent <= most:
                whole.append(axis)
            else:
                t.blocks[axis] = self.consts.add(name, most // 2, (most // 4, most // 2, most))
        t.whole = frozenset(whole)
        t.precision = self._attention_precision(att)

    def _gpu_block(self, att: Attend, width: int, causal: bool) -> tuple[int, int, int, int]:
        """Rows, keys, warps and stages by the dtype and the wider of a tile's two widths.

        The fastest of 12 tiles each, measured on an H200 at 4 x 16 heads, 2048 and 4096 keys, widths of 64 and 128,
        with and without a causal mask.
        """
        if self.style.attention:
            rows, keys = self.style.attention
            return rows, keys, 4, 2
        if att.parts:
            return (128, 32, 8, 2) if width <= 128 else (64, 32, 8, 2)
        if att.narrow and not self._wide_scores(att):
            if width <= 64:
                return (64, 128, 4, 2) if causal else (128, 64, 8, 3)
            roomy = (self.target.chip.shared_bytes or 0) >= _LARGE
            return (64, 64, 8, 2) if width > 128 else (128, 128, 8, 3) if roomy else (128, 64, 4, 2)
        return (64, 32, 4, 2) if width <= 128 else (32, 32, 4, 2)

    def _wide_scores(self, att: Attend) -> bool:
        return "float32" in (att.inner.a.dtype, att.inner.b.dtype)

    def _attention_precision(self, att: Attend) -> str:
        """What the task says; else what makes products of float32 as exact as they are."""
        if att.dtype == "float64":
            return "ieee"
        wanted = self.task.precision.get("matmul", "bf16x6" if self._exact_products(att) else "ieee")
        if att.parts:
            return ""
        return wanted if wanted in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16") else "ieee"

    def _of_float32(self, k: Kernel) -> bool:
        return self._exact_products(k.dot) if isinstance(k.dot, Attend) else super()._of_float32(k)

    def _exact_products(self, att: Attend) -> bool:
        """Does it multiply float32 without a lesser precision stated?"""
        factors = {att.inner.a.dtype, att.inner.b.dtype, att.b.dtype}
        return "matmul" not in self.task.precision and factors == {"float32"}
