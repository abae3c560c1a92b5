"""The cases of a verification, and the reference's answers to them."""
