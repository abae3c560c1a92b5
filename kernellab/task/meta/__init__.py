"""Operators of torch on tensors without memory, without its compiler."""
