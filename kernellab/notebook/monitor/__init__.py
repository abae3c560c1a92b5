"""The live monitor: one anywidget a search."""
