"""The judge's process and its control of servers, workers and the clock."""
