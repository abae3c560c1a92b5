"""The process in which a candidate or a baseline runs."""
