"""What is read of answers: the notebooks they are handed in with, their texts, and what a compiler makes of them."""
