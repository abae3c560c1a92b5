"""A dry call of a GPU kernel: its host code runs on tensors without contents, and its compiled kernels and launches are
recorded. It needs no GPU and launches nothing."""
