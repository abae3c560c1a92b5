"""Samples of a task: edge sizes, legal values, smaller inputs."""
