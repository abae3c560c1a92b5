"""The rules Designer, a compiler from a captured graph to sketches."""
