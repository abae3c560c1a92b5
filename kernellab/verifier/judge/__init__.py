"""The judge's process and its hold on servers, workers and the clock."""
