"""The static stage: what a source's text says before it is built."""
