"""The audit of a task: its cost, its bound, and whether its inputs distinguish right from wrong."""
