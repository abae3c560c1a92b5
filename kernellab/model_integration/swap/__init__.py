"""A kernel in the place of a model's part: the rewritten call, its guards, and the check of the whole model."""
