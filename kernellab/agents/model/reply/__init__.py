"""Replies: reading code, edits, JSON and claims out of what a model wrote."""
