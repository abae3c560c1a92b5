"""The tools over the Model Context Protocol: ``kernellab mcp``, on the official SDK (extra ``agents``)."""
