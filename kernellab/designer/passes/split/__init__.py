"""Work cut into parts: a sum among programs, factors among precisions."""
