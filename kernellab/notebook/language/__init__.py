"""The sketch editor's services: diagnostics while typing, completion, hover, pins."""
