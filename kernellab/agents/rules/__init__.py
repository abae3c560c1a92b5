"""The roles by rules: no model, no key, the same answer every time."""
