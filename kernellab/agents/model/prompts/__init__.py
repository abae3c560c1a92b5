"""Prompts: what a role is told, from which sources, under a budget."""
