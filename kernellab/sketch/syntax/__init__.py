"""Text to tree and back: layout, grammar, printer, pins, and every diagnostic's words."""
