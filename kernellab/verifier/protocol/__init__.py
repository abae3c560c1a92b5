"""What judge, worker and caller share: messages, the control page, memory, options, numbers."""
