"""The fast stage: timed calls, their contents, their checks, their figures."""
