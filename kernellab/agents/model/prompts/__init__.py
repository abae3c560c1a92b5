"""Prompts: what a role receives, from which sources, under a budget."""
