"""Repeated runs: one case in the caller's process, or a whole verification by a second judge."""
