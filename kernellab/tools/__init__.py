"""What an agent may do, as one set of tools: functions with checked requests and results, and nothing of a transport.

The MCP server (``kernellab mcp``) and Jupyter's own server call the same set. A result is short first: what, why, what
next; long texts come in pages. No tool gives seeds, hidden sizes or contents of timed calls: what a tool says of a
verdict is what a person sees of it.
"""

from __future__ import annotations

from kernellab.tools.context import Context
from kernellab.tools.records import ToolError
from kernellab.tools.tool import Tool, call, tools

__all__ = ["Context", "Tool", "ToolError", "call", "tools"]
