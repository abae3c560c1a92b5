"""Samples of a task: sizes that show edges, legal values, smaller inputs."""
