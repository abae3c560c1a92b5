"""The error rule, which decides whether an output is right."""
