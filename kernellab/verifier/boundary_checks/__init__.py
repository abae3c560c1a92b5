"""Checks at the edges of valid inputs: the end of an input's memory, denormals, processor modes, expanded inputs."""
