"""The rules: each function gives the trees that one rewrite makes of a sketch."""
