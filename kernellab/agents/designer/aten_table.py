"""Every ATen operation that the Designer reads, by name without the overload."""

from __future__ import annotations

from kernellab.agents.designer.aten import OPERATIONS, Handler
from kernellab.agents.designer.aten_norms import NORMALISATIONS
from kernellab.agents.designer.aten_products import PRODUCTS
from kernellab.agents.designer.aten_reduce import REDUCTIONS
from kernellab.agents.designer.aten_scans import SCANS
from kernellab.agents.designer.aten_views import VIEWS
from kernellab.agents.designer.convs import CONVOLUTIONS
from kernellab.agents.designer.orders import ORDERS
from kernellab.agents.designer.picks import PICKS
from kernellab.agents.designer.pools import POOLS
from kernellab.agents.designer.puts import PUTS

HANDLERS: dict[str, Handler] = {
    **OPERATIONS, **VIEWS, **REDUCTIONS, **NORMALISATIONS, **SCANS, **PRODUCTS,
    **CONVOLUTIONS, **POOLS, **PICKS, **ORDERS, **PUTS,
}  # fmt: skip
