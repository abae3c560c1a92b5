"""Functions that are called instead of torch's before a reference is traced."""
