"""Who runs the jobs of a search: threads of this process with its judges, or a Dask cluster."""
