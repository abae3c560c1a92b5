"""Edges of what a kernel may meet: the end of an input's memory, denormals, modes of the processor, expanded inputs."""
