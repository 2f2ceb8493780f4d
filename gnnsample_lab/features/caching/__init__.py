"""The feature cache: which rows lie on the GPU, how the others come, how large it may be."""
