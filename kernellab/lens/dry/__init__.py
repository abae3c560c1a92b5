"""A dry call of a GPU kernel: its host code runs on tensors without contents, and what it compiles and would launch is
kept. No GPU is needed, and nothing is launched."""
