"""Which axes of a launch are tiled, and how large."""
