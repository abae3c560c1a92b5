"""The fast stage: what a timed call is, its contents, its checks, its figures."""
