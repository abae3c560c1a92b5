"""Rewrites of expressions and launches."""
