"""Successes and failures, stored in LanceDB and retrieved by an operator's computation."""
