"""Launches as sketch text."""
