"""Text to tree and back: layout, grammar, printer, pins, and the text of every diagnostic."""
