"""How a candidate is varied: by rules (rewrites of a sketch), and by models; and whether a variation is new."""
