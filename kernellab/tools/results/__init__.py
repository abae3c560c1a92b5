"""What tools answer: sessions and verdicts as an agent sees them, in a bounded number of tokens."""
