"""How a candidate is varied: by rules (rewrites of a sketch, crossover), and by models."""
