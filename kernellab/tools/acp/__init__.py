"""A coding agent's program that plays a role, by the Agent Client Protocol (extra ``agents``)."""
