"""The resolved sketch: values, index arithmetic, the operation table, and its binding to a call."""
