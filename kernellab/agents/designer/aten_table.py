"""Every ATen operation that the Designer reads, by name without the overload."""

from __future__ import annotations

from kernellab.agents.designer.aten import OPERATIONS, Handler
from kernellab.agents.designer.aten_families import FAMILIES
from kernellab.agents.designer.aten_views import VIEWS
from kernellab.agents.designer.convs import CONVOLUTIONS
from kernellab.agents.designer.orders import ORDERS
from kernellab.agents.designer.picks import PICKS
from kernellab.agents.designer.pools import POOLS
from kernellab.agents.designer.puts import PUTS

HANDLERS: dict[str, Handler] = OPERATIONS | VIEWS | FAMILIES | CONVOLUTIONS | POOLS | PICKS | ORDERS | PUTS
