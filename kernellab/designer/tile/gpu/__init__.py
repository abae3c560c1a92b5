"""Tiles for GPUs: by the cost model, and by the rows that were measured on a chip."""
