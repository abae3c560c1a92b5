"""The texts of answers, read before anything runs."""
