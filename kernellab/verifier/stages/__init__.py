"""The stages of one verification, in order."""
