"""A GPU kernel under the lens: a dry call compiles it for a named chip, and its texts are read."""
