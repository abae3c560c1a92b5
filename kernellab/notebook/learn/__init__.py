"""What a learner sees: cards, pictures of accesses and of errors, curves."""
