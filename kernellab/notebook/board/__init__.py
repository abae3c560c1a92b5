"""The live workbench: one anywidget a session."""
