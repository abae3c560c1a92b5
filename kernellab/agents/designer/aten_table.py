"""Every ATen operation that the Designer reads, by name without the overload."""

from __future__ import annotations

from kernellab.agents.designer.aten import OPERATIONS, Handler
from kernellab.agents.designer.aten_families import FAMILIES
from kernellab.agents.designer.aten_views import VIEWS

HANDLERS: dict[str, Handler] = OPERATIONS | VIEWS | FAMILIES
