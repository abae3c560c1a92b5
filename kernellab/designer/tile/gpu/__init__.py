"""Tiles for GPUs, from the cost model and from rows measured on a chip."""
