"""Definitions shared by judge, worker and caller: messages, the control page, memory, options, numbers."""
