"""The same again: one case in the caller's process, or a whole verification by a second judge."""
