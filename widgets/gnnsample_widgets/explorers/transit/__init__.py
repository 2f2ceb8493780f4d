"""Transit-parallel sampling: which threads read which lists, which kernel takes a transit, what the index costs."""
