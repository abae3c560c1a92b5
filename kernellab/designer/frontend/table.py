"""Every ATen operation that the Designer reads, by name without the overload."""

from __future__ import annotations

from kernellab.designer.frontend.build import Handler
from kernellab.designer.frontend.convolutions import CONVOLUTIONS
from kernellab.designer.frontend.gather import PICKS
from kernellab.designer.frontend.norms import NORMALISATIONS
from kernellab.designer.frontend.pointwise import OPERATIONS
from kernellab.designer.frontend.pooling import POOLS
from kernellab.designer.frontend.products import PRODUCTS
from kernellab.designer.frontend.reductions import REDUCTIONS
from kernellab.designer.frontend.scans import SCANS
from kernellab.designer.frontend.scatter.grouped import GROUPED
from kernellab.designer.frontend.scatter.writes import PUTS
from kernellab.designer.frontend.sorting import ORDERS
from kernellab.designer.frontend.views import VIEWS
from kernellab.designer.steps.loops import STEPS

HANDLERS: dict[str, Handler] = {
    **OPERATIONS, **VIEWS, **REDUCTIONS, **NORMALISATIONS, **SCANS, **PRODUCTS,
    **CONVOLUTIONS, **POOLS, **PICKS, **ORDERS, **PUTS, **GROUPED, **STEPS,
}  # fmt: skip
