"""The commands on whole models."""
