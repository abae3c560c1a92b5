"""Writes at indices that are values, and products of groups of rows, which move rows by such indices."""
