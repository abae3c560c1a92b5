"""Reads code, edits, JSON and claims from a model's reply."""
