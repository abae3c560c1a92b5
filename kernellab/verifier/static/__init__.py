"""The static stage: checks of a source's text before the build."""
