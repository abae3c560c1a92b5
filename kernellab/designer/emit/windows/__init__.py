"""Window operators: slices of the input that move with the taps (convolutions, pooling, their gradients)."""
