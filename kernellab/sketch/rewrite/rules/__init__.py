"""The rules: each function yields the changed trees of one rewrite."""
