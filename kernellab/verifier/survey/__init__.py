"""Inputs drawn from what a task declares: what is proposed, what of it the reference accepts, and what it says."""
