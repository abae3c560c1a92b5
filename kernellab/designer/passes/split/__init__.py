"""Work that is cut in parts: a sum among programs, factors among precisions."""
