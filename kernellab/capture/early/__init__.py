"""Functions that are called in place of torch's before a reference is traced."""
